"""The index of a pool whose units are split into sub-slices (layout `subslices`).

A TPU part asks for slices of a topology that the pool's units are, or can be split into; a slice smaller than a unit is
a cell, and its grant tells the place of it. The geometry is that of `subslices`; here units get their incarnations,
holders and expected ends. What is held of a unit is known from `take` and `give` alone.

Limits: sets of units that must not be touched are whole units, so a reservation of a cell keeps its unit clear.
"""

from __future__ import annotations

from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.grid import Place
from stellwerk.scheduling.placement.index import INF, Forecast, Need
from stellwerk.scheduling.placement.placed import PlacedIndex, matches
from stellwerk.scheduling.placement.subslices import Cuts, cut
from stellwerk.scheduling.placement.units import natural
from stellwerk.scheduling.state import UnitState


class SubsliceIndex(PlacedIndex):
    """What is free in one pool of units that are split alike; `plain` makes no difference here."""

    def __init__(self, pool: Pool) -> None:
        if pool.topology is None:
            raise ValueError(f"pool {pool.name} has no topology that could be split")
        super().__init__(pool)
        self.kind = cut(pool.accelerator, pool.topology, pool.machine)
        self._cuts = Cuts(self.kind)
        self._block = pool.chips // self.kind.grid.points
        self._units: dict[str, UnitState] = {}
        self._held: dict[tuple[str, int], int] = {}
        self._coming: dict[str, float] = {}
        self._bits: dict[str, int] = {}
        self._names: list[str] = []

    def need(self, part: Part) -> Need | None:
        """The compiled part; None when no state of this pool could ever hold it."""
        return Need(self.pool, part, part.topology) if 0 < part.count <= self.most(part) else None

    def most(self, part: Part) -> int:
        """Groups of `part` that the pool could hold if it were at its maximum and empty."""
        if not matches(self.pool, part) or part.topology not in self.kind.places:
            return 0
        return self.pool.maximum * self.kind.count(self.kind.grid.full, part.topology)

    def fits(self, need: Need, avoid: int = 0) -> bool:
        """Whether `fit` would find grants."""
        return self._parts(need, avoid) is not None

    def fit(self, need: Need, avoid: int = 0) -> tuple[Grant, ...] | None:
        """Grants for all groups of `need`, or None."""
        parts = self._parts(need, avoid)
        if parts is None:
            return None
        return tuple(self._grant(need, group, unit, place) for group, (unit, place) in enumerate(parts))

    def _parts(self, need: Need, avoid: int) -> list[tuple[str, Place]] | None:
        shut = [name for name, bit in self._bits.items() if bit & avoid] if avoid else []
        if need.count == 1:
            part = self._cuts.fit(need.form, shut)
            return None if part is None else [part]
        return self._cuts.fit_all([need.form] * need.count, shut)

    def _grant(self, need: Need, group: int, name: str, place: Place) -> Grant:
        unit, blocks = self._units[name], place.mask.bit_count()
        hosts = max(1, unit.hosts * blocks // self.kind.grid.points)
        words = "" if place.mask == self.kind.grid.full else self.kind.words(place)
        part = need.part
        return Grant(part.role, group, self.pool.name, name, unit.incarnation, blocks * self._block, hosts, words)

    def take(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """The holder `key` has these, and is expected to end at `until`."""
        for grant in grants:
            mask, held = self._mask(grant), (grant.unit, grant.incarnation)
            if self._here(grant):
                self._cuts.take(grant.unit, mask)
                self.free -= grant.chips
            self._held[held] = self._held.get(held, 0) | mask
        if self.track:
            self._ends.hold(key, grants, now, until)

    def give(self, grants: tuple[Grant, ...], key: str) -> None:
        """The holder has left these."""
        for grant in grants:
            mask, held = self._mask(grant), (grant.unit, grant.incarnation)
            left = self._held.pop(held, 0) & ~mask
            if left:
                self._held[held] = left
            if self._here(grant):
                self._cuts.give(grant.unit, mask)
                self.free += grant.chips
        self._ends.leave(key)

    def _mask(self, grant: Grant) -> int:
        return self.kind.place(grant.place).mask if grant.place else self.kind.grid.full

    def _here(self, grant: Grant) -> bool:
        unit = self._units.get(grant.unit)
        return unit is not None and unit.incarnation == grant.incarnation

    def put(self, unit: UnitState) -> None:
        """`unit` can be handed out, but for what is held of it."""
        self.drop(unit.name)
        held = self._held.get((unit.name, unit.incarnation), 0)
        self._rank(unit.name)
        self._units[unit.name] = unit
        self._cuts.add(unit.name, held)
        self.free += self._free_chips(unit.name)

    def drop(self, name: str) -> None:
        """The unit cannot be handed out, for now or for ever."""
        self._coming.pop(name, None)
        if self._units.pop(name, None) is not None:
            self.free -= self._free_chips(name)
            self._cuts.remove(name)

    def expect(self, name: str, at: float) -> None:
        """The unit cannot be handed out yet, and will be at `at`."""
        self.drop(name)
        self._rank(name)
        self._coming[name] = at

    def _free_chips(self, name: str) -> int:
        return self._cuts.free[name].bit_count() * self._block

    def _rank(self, name: str) -> int:
        if name not in self._bits:
            self._bits[name] = 1 << len(self._names)
            self._names.append(name)
        return self._bits[name]

    def earliest(self, need: Need, now: float) -> Forecast:
        """When and where `need` could be met at the latest, if all holders end as expected."""
        if not self.track:
            return Forecast(INF, 0)
        releases = [(at, grant.unit, self._mask(grant)) for at, grant in self._ends.expected(now) if self._here(grant)]
        releases += [(max(at, now), name, self.kind.grid.full) for name, at in self._coming.items()]
        known = (release for release in releases if release[0] < INF)
        found = self._cuts.earliest(need.form, need.count, known)
        if found is None:
            return Forecast(INF, 0)
        return Forecast(max(now, found[0]), sum(self._bits[name] for name in found[1]))

    def largest(self) -> tuple[int, str]:
        """The largest slice that could be placed now."""
        shape = self._cuts.largest()
        return (self.kind.size(shape) * self._block, shape) if shape else (0, "nothing")

    def fragmentation(self) -> float:
        """How far the largest free slice is from what the free chips would make, 0 to 1; see `Cuts.fragmentation`."""
        return self._cuts.fragmentation()

    def whole_free(self, avoid: int = 0) -> int:
        """Units that are wholly free, and not in `avoid`."""
        shut = sum(1 for name in self._units if self._bits[name] & avoid and self._whole(name)) if avoid else 0
        return self._cuts.count(self.kind.topology) - shut

    def _whole(self, name: str) -> bool:
        return self._cuts.free[name] == self.kind.grid.full

    def content(self, now: float = 0.0) -> object:
        """Free blocks by unit, what is coming, and what forecasts know."""
        free = sorted(self._cuts.free.items(), key=lambda item: natural(item[0]))
        return free, self.free, sorted(self._coming.items()), self._ends.content(now)
