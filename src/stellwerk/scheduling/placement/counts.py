"""Whole units, and chips of a unit by count: the layout of TPU slices that are handed out whole and of GPU nodes.

Formulation: `buckets[n]` is the set of available units with exactly `n` chips free. A cell of `c` chips goes to the
unit that it leaves the least free (best fit), one of the first bucket at or above `c` that is not empty. Of units that
are equally full it takes the one that was wholly idle last, so that those that have been cut for longer drain (of the
`MOST_COMPARED` highest ranks); where only idle units are left it cuts the highest rank, while whole units are taken
from the lowest up, which keeps cells and gangs apart. All of that follows from the state. Every answer costs a few
operations on whole numbers, for a pool of twelve thousand units about a microsecond each.

For forecasts two lists are kept sorted: when each unit is wholly free, and when each grant ends. A need for `n` whole
units can be met when the n-th unit is free; a need for cells, when the grants that end in order have freed enough on
single units. Of the units that are free by then those that come free last are named, so that others can be used until
then. A holder that is past its expected end is expected to take as long again, and then twice, and so on.

Limits: a cell never spans units; a forecast for whole units assumes that nothing else takes them before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.index import INF, Forecast, Need
from stellwerk.scheduling.placement.units import natural, serves, units_for, units_needed
from stellwerk.scheduling.state import UnitState

SHORTEST: Final = 60.0
"""Seconds that a holder past its expected end is expected to go on at least."""

UNAVAILABLE: Final = -1

MOST_COMPARED: Final = 16
"""Equally full units of which it is looked up which was idle last."""

Cell = tuple[UnitState, tuple[Grant, ...]]
"""A unit, and the grant of one cell of it."""


class CountIndex:
    """Free chips of one pool by unit. `track` keeps what forecasts need; without it `earliest` knows nothing. `plain`
    makes no difference here."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.track, self.plain = pool, True, False
        self.free = 0
        self._available = 0
        self._chips = pool.chips
        self._rank: dict[str, int] = {}
        self._names: list[str] = []
        self._bits: list[int] = []
        self._left: list[int] = []
        self._units: list[UnitState | None] = []
        self._cells: list[dict[Need, Cell]] = []
        self._buckets = [0] * (pool.chips + 1)
        self._free_at: list[float] = []
        self._frees: list[tuple[float, int]] = []
        self._ends: list[tuple[float, int, int, str]] = []
        self._holders: dict[str, tuple[tuple[Grant, ...], float, float, float]] = {}

    def need(self, part: Part) -> Need | None:
        """The compiled part; None when no state of this pool could ever hold it."""
        if not serves(self.pool, part) or self.most(part) < part.count:
            return None
        return Need(self.pool, part)

    def most(self, part: Part) -> int:
        """Groups of `part` that the pool could hold if it were at its maximum and empty."""
        whole, cell = units_needed(self.pool, part)
        if whole == 0:
            return self.pool.maximum * (self.pool.chips // cell)
        return self.pool.maximum // (whole + bool(cell))

    def fits(self, need: Need, avoid: int = 0) -> bool:
        """Whether `fit` would find grants."""
        if need.single:
            masks = self._buckets[need.cell :]
            return any(mask & ~avoid for mask in masks) if avoid else any(masks)
        if need.whole:
            return (self._buckets[self._chips] & ~avoid).bit_count() >= need.units
        return (
            sum((mask & ~avoid).bit_count() * (left // need.cell) for left, mask in enumerate(self._buckets))
            >= need.count
        )

    def fit(self, need: Need, avoid: int = 0) -> tuple[Grant, ...] | None:
        """Grants for all groups of `need`, or None."""
        if not need.single:
            return self._gang(need, avoid) if self.fits(need, avoid) else None
        cell = left = need.cell
        if self.free < cell:
            return None
        buckets = self._buckets
        if avoid:
            for free in buckets[cell:]:
                if mask := free & ~avoid:
                    break
                left += 1
            else:
                return None
        elif mask := next(filter(None, buckets[cell:]), 0):
            left = buckets.index(mask, cell)
        else:
            return None
        rank = self._cut(mask, left)
        return (self._cells[rank].get(need) or self._cell(rank, need))[1]

    def cut(self, need: Need) -> Cell | None:
        """Take the cell that `fit` would find for `need`, which is a single one; None when there is none."""
        cell, buckets = need.cell, self._buckets
        left = cell
        for mask in buckets[cell:]:
            if mask:
                break
            left += 1
        else:
            return None
        rank = mask.bit_length() - 1
        bit = self._bits[rank]
        if bit != mask and left != self._chips:
            rank = self._cut(mask, left)
            bit = self._bits[rank]
        buckets[left] = mask ^ bit
        self._left[rank] = left = left - cell
        buckets[left] |= bit
        self.free -= cell
        return self._cells[rank].get(need) or self._cell(rank, need)

    def uncut(self, grant: Grant) -> UnitState | None:
        """Give one grant back; None, and nothing is given back, when its unit cannot be handed out as it was."""
        rank = self._rank.get(grant.unit, UNAVAILABLE)
        unit = self._units[rank] if rank >= 0 else None
        if unit is None or unit.incarnation != grant.incarnation:
            return None
        buckets, bit, chips = self._buckets, self._bits[rank], grant.chips
        left = self._left[rank]
        buckets[left] ^= bit
        self._left[rank] = left = left + chips
        buckets[left] |= bit
        self.free += chips
        return unit

    def _cut(self, mask: int, left: int) -> int:
        """Of the units in `mask`, with `left` chips free, the one that a cell is cut from."""
        rank = mask.bit_length() - 1
        if left == self._chips or not (mask := mask ^ self._bits[rank]):
            return rank
        units, best, compared = self._units, rank, 1
        unit = units[rank]
        assert unit is not None
        since = unit.idle_since
        while mask and compared < MOST_COMPARED:
            rank = mask.bit_length() - 1
            mask ^= self._bits[rank]
            unit = units[rank]
            assert unit is not None
            if unit.idle_since > since:
                best, since = rank, unit.idle_since
            compared += 1
        return best

    def _cell(self, rank: int, need: Need) -> Cell:
        unit = self._units[rank]
        assert unit is not None
        made = self._cells[rank][need] = (unit, (self._grant(rank, need, 0, need.cell),))
        return made

    def _gang(self, need: Need, avoid: int) -> tuple[Grant, ...]:
        if not need.whole:
            return self._many(need, avoid)
        full = self._buckets[self._chips] & ~avoid
        grants: list[Grant] = []
        for group in range(need.count):
            for _ in range(need.whole):
                rank = (full & -full).bit_length() - 1
                full ^= self._bits[rank]
                grants.append(self._grant(rank, need, group, self._chips))
            if need.cell:
                rank = full.bit_length() - 1
                full ^= self._bits[rank]
                grants.append(self._grant(rank, need, group, need.cell))
        return tuple(grants)

    def _many(self, need: Need, avoid: int) -> tuple[Grant, ...]:
        buckets = [mask & ~avoid for mask in self._buckets]
        grants: list[Grant] = []
        for group in range(need.count):
            left = next(left for left in range(need.cell, self._chips + 1) if buckets[left])
            rank = self._cut(buckets[left], left)
            buckets[left] ^= self._bits[rank]
            buckets[left - need.cell] |= self._bits[rank]
            grants.append(self._grant(rank, need, group, need.cell))
        return tuple(grants)

    def _grant(self, rank: int, need: Need, group: int, chips: int) -> Grant:
        unit = self._units[rank]
        assert unit is not None
        hosts = unit.hosts if chips == unit.chips else max(1, -(-unit.hosts * chips // unit.chips))
        made = Grant(need.part.role, group, self.pool.name, unit.name, unit.incarnation, chips, hosts)
        return made

    def _shift(self, rank: int, chips: int) -> None:
        """`chips` more of a unit are free (fewer, if negative)."""
        left, bit, buckets = self._left[rank], self._bits[rank], self._buckets
        buckets[left] ^= bit
        self._left[rank] = left = left + chips
        buckets[left] |= bit
        self.free += chips

    def take(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """The holder `key` has these, and is expected to end at `until`."""
        for grant in grants:
            self._shift(self._rank[grant.unit], -grant.chips)
        if self.track:
            self._hold(grants, key, until, now)

    def retake(self, grants: tuple[Grant, ...], key: str, until: float, since: float) -> None:
        """As `take`, for a holder that had these before; units that cannot be handed out any more may be among
        them."""
        for grant in grants:
            rank = self._rank.get(grant.unit, UNAVAILABLE)
            unit = self._units[rank] if rank >= 0 else None
            if unit is not None and unit.incarnation == grant.incarnation:
                self._shift(rank, -grant.chips)
        self.note(grants, key, until, since)

    def note(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """As `take`, for what the units already say is held."""
        if self.track:
            self._hold(grants, key, until, now)

    def give(self, grants: tuple[Grant, ...], key: str) -> None:
        """The holder has left these."""
        for grant in grants:
            self.uncut(grant)
        if self.track:
            self._unhold(key)

    def put(self, unit: UnitState) -> None:
        """`unit` can be handed out, but for what is held of it."""
        rank = self._ranked(unit.name)
        self._remove(rank)
        left = unit.chips - sum(unit.held.values())
        self._units[rank], self._left[rank] = unit, left
        self._cells[rank] = {}
        self._buckets[left] |= self._bits[rank]
        self.free += left
        self._available += 1
        self._set_free_at(rank, max((self._holders[key][2] for key in unit.held if key in self._holders), default=0.0))

    def drop(self, name: str) -> None:
        """The unit cannot be handed out, for now or for ever."""
        if name in self._rank:
            self._remove(self._rank[name])
            self._set_free_at(self._rank[name], INF)

    def expect(self, name: str, at: float) -> None:
        """The unit cannot be handed out yet, and will be at `at`."""
        rank = self._ranked(name)
        self._remove(rank)
        self._set_free_at(rank, at)

    def earliest(self, need: Need, now: float) -> Forecast:
        """When and where `need` could be met at the latest, if all holders end as expected."""
        if not self.track:
            return Forecast(INF, 0)
        self._extend_until(now)
        if need.whole:
            if len(self._frees) < need.units:
                return Forecast(INF, 0)
            at, mask = max(now, self._frees[need.units - 1][0]), 0
            last = bisect_right(self._frees, (at, len(self._names)))
            for _, rank in self._frees[last - need.units : last]:
                mask |= self._bits[rank]
            return Forecast(at, mask)
        return self._earliest_cells(need, now)

    def _earliest_cells(self, need: Need, now: float) -> Forecast:
        cell = need.cell
        gained: dict[int, int] = {}
        groups = sum(mask.bit_count() * (left // cell) for left, mask in enumerate(self._buckets))
        mask = 0
        for left in range(cell, self._chips + 1):
            mask |= self._buckets[left]
        for at, rank, chips, key in self._coming_and_ends():
            if groups >= need.count or at == INF:
                break
            if key and self._left[rank] < 0:
                continue
            before = gained.get(rank, max(0, self._left[rank]))
            gained[rank] = before + chips
            if grown := (before + chips) // cell - before // cell:
                groups += grown
                mask |= self._bits[rank]
                now = max(now, at)
        return Forecast(now, mask) if groups >= need.count else Forecast(INF, 0)

    def _coming_and_ends(self) -> list[tuple[float, int, int, str]]:
        if len(self._frees) <= self._available:
            return self._ends
        coming = [(at, rank, self._chips, "") for at, rank in self._frees if self._left[rank] < 0]
        return sorted([*self._ends, *coming]) if coming else self._ends

    def largest(self) -> tuple[int, str]:
        """The largest group that could be placed now."""
        whole = self._buckets[self._chips].bit_count()
        if self.pool.topology is not None:
            return (self._chips, self.pool.topology) if whole else (0, "nothing")
        chips = whole * self._chips or max((left for left, mask in enumerate(self._buckets) if mask), default=0)
        return chips, f"{chips} chips"

    def fragmentation(self) -> float:
        """How far the largest placeable group is from what the free chips would make, 0 to 1; 0 for whole slices."""
        if self.pool.topology is not None or not self.free:
            return 0.0
        return 1 - self.largest()[0] / self.free

    def whole_free(self, avoid: int = 0) -> int:
        """Units that are wholly free, and not in `avoid`."""
        return (self._buckets[self._chips] & ~avoid).bit_count()

    def content(self, now: float) -> object:
        """Free chips by name, and what forecasts know."""
        self._extend_until(now)
        left = {name: self._left[rank] for name, rank in self._rank.items() if self._left[rank] >= 0}
        frees = sorted((at, self._names[rank]) for at, rank in self._frees if at < INF)
        ends = sorted((at, self._names[rank], chips, key) for at, rank, chips, key in self._ends)
        return (dict(sorted(left.items())), self.free, frees, ends)

    def _ranked(self, name: str) -> int:
        rank = self._rank.get(name)
        if rank is None:
            if self._names and natural(name) < natural(self._names[-1]):
                return self._rerank(name)
            rank = self._rank[name] = len(self._names)
            self._names.append(name)
            self._bits.append(1 << rank)
            self._left.append(UNAVAILABLE)
            self._units.append(None)
            self._cells.append({})
            self._free_at.append(INF)
        return rank

    def _rerank(self, name: str) -> int:
        """Make room for a name that comes before others: everything known by rank is made anew."""
        old = self._names
        order = sorted([*old, name], key=natural)
        known = {each: (self._left[rank], self._units[rank], self._free_at[rank]) for rank, each in enumerate(old)}
        self._names, self._rank = order, {each: rank for rank, each in enumerate(order)}
        self._bits = [1 << rank for rank in range(len(order))]
        rows = [known.get(each, (UNAVAILABLE, None, INF)) for each in order]
        self._left, self._units = [row[0] for row in rows], [row[1] for row in rows]
        self._cells = [{} for _ in order]
        self._free_at = [row[2] for row in rows]
        self._frees = sorted((at, rank) for rank, at in enumerate(self._free_at) if at < INF)
        self._ends = sorted((at, self._rank[old[rank]], chips, key) for at, rank, chips, key in self._ends)
        self._buckets = [0] * (self._chips + 1)
        for rank, left in enumerate(self._left):
            if left >= 0:
                self._buckets[left] |= self._bits[rank]
        return self._rank[name]

    def _remove(self, rank: int) -> None:
        left = self._left[rank]
        if left >= 0:
            self._buckets[left] ^= self._bits[rank]
            self.free -= left
            self._available -= 1
            self._left[rank], self._units[rank] = UNAVAILABLE, None

    def _set_free_at(self, rank: int, at: float) -> None:
        before = self._free_at[rank]
        if at == before or not self.track:
            return
        if before < INF:
            del self._frees[bisect_left(self._frees, (before, rank))]
        if at < INF:
            insort(self._frees, (at, rank))
        self._free_at[rank] = at

    def _hold(self, grants: tuple[Grant, ...], key: str, until: float, since: float, span: float = 0.0) -> None:
        if not span:
            span = until - since
            span = span if span > SHORTEST else SHORTEST
        self._holders[key] = (grants, since, until, span)
        for grant in grants:
            name = grant.unit
            rank = self._rank[name] if name in self._rank else self._ranked(name)
            insort(self._ends, (until, rank, grant.chips, key))
            if until > self._free_at[rank]:
                unit = self._units[rank]
                if unit is not None and unit.incarnation == grant.incarnation:
                    self._set_free_at(rank, until)

    def _unhold(self, key: str) -> None:
        grants, _, until, _ = self._holders.pop(key)
        for grant in grants:
            rank = self._rank[grant.unit]
            del self._ends[bisect_left(self._ends, (until, rank, grant.chips, key))]
            if until >= self._free_at[rank]:
                unit = self._units[rank]
                if unit is not None and unit.incarnation == grant.incarnation:
                    self._set_free_at(rank, self._last_end(unit, key))

    def _last_end(self, unit: UnitState, leaving: str) -> float:
        holders, last = self._holders, 0.0
        for key in unit.held:
            if key != leaving and key in holders and (end := holders[key][2]) > last:
                last = end
        return last

    def _extend_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            self._extend(self._ends[0][3], now)

    def _extend(self, key: str, now: float) -> None:
        """A holder past its expected end: expect it to take twice as long, until that is later than now."""
        grants, since, _, span = self._holders[key]
        while since + span <= now:
            span *= 2.0
        self._unhold(key)
        self._hold(grants, key, since + span, since, span)


__all__ = ["CountIndex", "units_for"]
