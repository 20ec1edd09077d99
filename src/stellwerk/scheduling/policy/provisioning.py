"""How many units a pool should have.

Each pool wants what is in use, what is meant for somebody who waits, and its warm buffer, within its minimum and
maximum. A blocked workload adds the units it lacks if all of them can be had, since a part of a gang is of no use; they
are meant for it until anyone is granted them. Units that nobody needs are given back after the pool's idle time, the
last name first; those that were meant for a workload that left the option, or is over, are given back at once. A
provider that refused is not asked again before the cool-down is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from operator import itemgetter

from stellwerk.scheduling import reasons
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.commands import ProvisionUnit, RecycleUnit, ReleaseUnit
from stellwerk.scheduling.index import Lane, WaitClass
from stellwerk.scheduling.placement.index import Need
from stellwerk.scheduling.placement.units import natural
from stellwerk.scheduling.policy import fallback, queues
from stellwerk.scheduling.state import UnitState, WorkloadState

COOL_DOWN = 300.0
"""Seconds that a pool is not asked for units after its provider refused one."""

QUOTA_COOL_DOWN = 1800.0
"""The same after a refusal by the provider's quota, which people change, not time."""


def cool_down(code: str) -> float:
    """Seconds that a pool is not asked for units after a refusal with this code."""
    return QUOTA_COOL_DOWN if code == "quota" else COOL_DOWN


MOST_SERVED = 256
"""Waiting workloads of a lane for which units are made in one cycle."""


def members(book: Book, pool: str) -> list[UnitState]:
    """Units of a pool in natural name order."""
    return sorted(book.members.get(pool, {}).values(), key=lambda unit: natural(unit.name))


def cooling(book: Book, lane: Lane) -> bool:
    """Whether the provider of a pool refused lately."""
    cool_down = book.state.cool_downs.get(lane.pool.name)
    return cool_down is not None and cool_down.until > book.state.now


def headroom(book: Book, lane: Lane) -> int:
    """Units that could still be provisioned now."""
    if cooling(book, lane):
        return 0
    return max(0, lane.pool.maximum - len(book.members[lane.pool.name]))


def resize(book: Book, lane: Lane) -> None:
    """Make the units that a lane lacks and give back those that nobody needs; sets the lane's next time."""
    pool, units = lane.pool, book.members[lane.pool.name]
    wanted = 0
    if lane.elastic:
        claimed = _make_for_waiting(book, lane)
        held = sum(1 for unit in units.values() if unit.held)
        meant = sum(1 for unit in units.values() if not unit.held and unit.meant is not None)
        wanted = held + max(meant, claimed)
    target = min(max(wanted + pool.buffer, pool.minimum), pool.maximum)
    for _ in range(min(target - len(units), headroom(book, lane)) if pool.minimum or pool.buffer else 0):
        provision(book, lane, None)
    if lane.elastic or len(units) > target:
        _give_back(book, lane, len(units) - target)


def _give_back(book: Book, lane: Lane, surplus: int) -> None:
    pool, now = lane.pool, book.state.now
    cool = book.state.cool_downs.get(pool.name)
    times = [cool.until] if cool is not None else []
    for unit in reversed(members(book, pool.name)) if surplus > 0 else ():
        if surplus > 0 and not unit.held and unit.meant is None:
            abandoned = unit.name in book.abandoned and unit.phase in ("up", "provisioning")
            if abandoned or (unit.idle and unit.idle_since + pool.idle <= now):
                release(book, unit)
                surplus -= 1
            elif unit.idle:
                times.append(unit.idle_since + pool.idle)
    for name in [name for name in book.abandoned if name in book.members[pool.name]]:
        del book.abandoned[name]
    book.timers.set(("pool", pool.name), min(times, default=None))


def _make_for_waiting(book: Book, lane: Lane) -> int:
    """Order the units that those who wait in this lane lack, in their order; how many units of it they need in
    all."""
    claimed: Counter[Lane] = Counter()
    for found, workload in waiting_in(book, lane):
        if claimed[lane] >= lane.pool.maximum:
            break
        for index in _to_make(book, found, workload):
            here = any(lane is other for part in found.shape.plans[index] for other, _ in part)
            if here and _makes(book, found, workload, index, claimed):
                break
    return claimed[lane]


def waiting_in(book: Book, lane: Lane) -> Iterator[tuple[WaitClass, WorkloadState]]:
    """The first of those who wait in a lane, in the order in which they are served."""
    places = ((book.place_of(found, workload), found, workload) for found in lane.entered() for workload in found.line)
    for _, found, workload in nsmallest(MOST_SERVED, places, key=itemgetter(0)):
        yield found, workload


def _to_make(book: Book, found: WaitClass, workload: WorkloadState) -> list[int]:
    """The options for which units may be made: the current one, then those that were refused a while ago."""
    now = book.state.now
    current = fallback.current(found, workload, now)
    if current is None:
        return []
    again = [
        each.option
        for each in workload.departures
        if each.code != "limit" and each.option < current and not fallback.cooling(book, found, each.option)
    ]
    options = [current, *sorted(again)]
    return [index for index in options if not queues.blocked(found, workload, index, now)]


def _makes(book: Book, found: WaitClass, workload: WorkloadState, index: int, claimed: Counter[Lane]) -> bool:
    """Make what an option lacks, if all of it can be had; True when it lacks nothing, or it was ordered."""
    lacking: Counter[Lane] = Counter()
    needed: Counter[Lane] = Counter()
    memory = book.state.fleet.overhead
    for part in found.shape.plans[index]:
        lane, need = next(((lane, need) for lane, need in part if not cooling(book, lane)), part[0])
        needed[lane] += need.units
        memory += reasons.part_memory(lane.pool, need.part)
        lacking[lane] = claimed[lane] + needed[lane] - _coming_or_free(book, lane, need)
        if lacking[lane] <= 0 and not claimed[lane] and _scattered(book, lane, need):
            lacking[lane] = 1
    if book.memory is not None and memory > (book.memory if book.claim is None else 0):
        return False
    claimed.update(needed)
    if any(lack > headroom(book, lane) for lane, lack in lacking.items()):
        return False
    for lane, lack in lacking.items():
        for _ in range(lack):
            provision(book, lane, workload.key)
    return True


def _coming_or_free(book: Book, lane: Lane, need: Need) -> int:
    least = lane.pool.chips if need.whole else need.cell
    units = book.members[lane.pool.name].values()
    return sum(1 for unit in units if unit.free >= least or unit.phase in ("provisioning", "recycling"))


def _scattered(book: Book, lane: Lane, need: Need) -> bool:
    """Whether as many units are free as are needed, and not as they are needed; then others are made one by one."""
    units = book.members[lane.pool.name].values()
    return not lane.places.fits(need) and not any(unit.phase in ("provisioning", "recycling") for unit in units)


def could_make(book: Book, found: WaitClass, index: int) -> bool:
    """Whether all units that an option lacks could be made now, were it alone."""
    lacking: Counter[Lane] = Counter()
    for part in found.shape.plans[index]:
        lane, need = part[0]
        lacking[lane] += need.units
    return all(
        count - _coming_or_free(book, lane, found.shape.plans[index][0][0][1]) <= headroom(book, lane)
        for lane, count in lacking.items()
    )


def settle(book: Book, workload: WorkloadState) -> None:
    """Give back at once what was made for a workload that needs it no more: it has started, is over, or left the
    option."""
    names = book.meant.get(workload.key)
    if not names:
        return
    keep: set[str] = set()
    if workload.phase == "waiting":
        found = book.class_of(workload.demand)
        index = fallback.current(found, workload, book.state.now)
        keep = {lane.pool.name for part in found.shape.plans[index] for lane, _ in part} if index is not None else set()
    for name in list(names):
        unit = book.state.units[name]
        if unit.pool not in keep:
            book.mean(unit, None)
            book.abandoned[name] = None
            if unit.pool in book.lanes:
                book.sized[book.lanes[unit.pool]] = None


def mend(book: Book) -> None:
    """Rebuild broken units that nobody holds, and give back those that leave or belong to no pool."""
    state = book.state
    for name in sorted(book.attention, key=natural):
        unit = state.units.get(name)
        if unit is None or unit.held:
            continue
        if unit.leaving or unit.pool not in state.pools:
            if unit.phase in ("up", "broken"):
                release(book, unit)
        elif unit.phase == "broken":
            incarnation = state.incarnations[name] + 1
            state.incarnations[name] = incarnation
            unit.phase, unit.incarnation, unit.since = "recycling", incarnation, state.now
            book.unit_changed(unit)
            book.out.append(RecycleUnit(unit.pool, name, incarnation))
    book.attention.clear()


def provision(book: Book, lane: Lane, meant: str | None) -> None:
    """A new unit under the lowest free name."""
    state, pool = book.state, lane.pool
    while (name := f"{pool.name}-{lane.named}") in state.units:
        lane.named += 1
    incarnation = state.incarnations.get(name, 0) + 1
    state.incarnations[name] = incarnation
    unit = UnitState(name, pool.name, incarnation, "provisioning", pool.chips, pool.hosts, state.now)
    unit.idle_since = state.now
    state.units[name] = unit
    book.unit_changed(unit)
    if meant is not None:
        book.mean(unit, meant)
    book.out.append(ProvisionUnit(pool.name, name, incarnation))


def release(book: Book, unit: UnitState) -> None:
    """Give `unit` back."""
    unit.phase = "releasing"
    if unit.meant is not None:
        book.mean(unit, None)
    book.unit_changed(unit)
    book.out.append(ReleaseUnit(unit.name, unit.incarnation))
