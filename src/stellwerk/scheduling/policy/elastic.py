"""Elastic workloads: grown and shrunk in whole groups, between their minimum and their maximum.

An elastic option starts with as many groups as are free, at least its minimum. It grows into what nobody waits for, and
gives groups back when somebody is blocked who is of no lower priority, if that is enough to let them start: first who
has the most beyond the minimum. Where one machine plays the fleet, its memory counts like units. A serving workload is
as large as its load asks for (`LoadReported`, in groups): it grows at once, and shrinks when the load has been lower
for `STEADY` seconds. Work that begins anew when its size changes is grown at once only the first time, and then no
sooner than `CALM` seconds after the last change: what comes free for a moment is not worth a restart. Groups are told
to leave first, and are free when the backend says that they are left (`AttemptResized`), so use never exceeds what
there is and nothing is taken from under running code. A unit that the provider will take away is left in the same way,
where enough of the attempt remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.commands import ResizeAttempt
from stellwerk.scheduling.index import Entry, Lane, WaitClass
from stellwerk.scheduling.model import Grant, Option
from stellwerk.scheduling.policy import backfill, queues
from stellwerk.scheduling.spending import settle
from stellwerk.scheduling.state import Attempt, WorkloadState

GRACE = 30.0
"""Seconds that code has to leave groups."""

MARGIN = 5.0
"""Seconds before a unit is taken away by which its hosts have to be left."""

CALM = 600.0
"""Seconds after a change of size before work that begins anew for it is grown again."""

GOES_ON = ("job", "cluster", "serve")
"""Kinds that go on when their size changes."""

STEADY = 300.0
"""Seconds that a lower load must last before a serving workload is shrunk."""


def option_of(workload: WorkloadState) -> Option:
    """The option of the live attempt."""
    return workload.demand.options[workload.attempts[-1].option]


def groups(attempt: Attempt) -> int:
    """Groups that an attempt stands on."""
    return len({grant.group for grant in attempt.grants})


def wanted(workload: WorkloadState, option: Option) -> int:
    """Groups that a workload should have if they are free."""
    least, most = option.minimum or 1, option.maximum or 1
    if workload.demand.kind != "serve":
        return most
    return least if workload.load is None else max(least, min(most, ceil(workload.load)))


def calm_until(workload: WorkloadState) -> float:
    """When a live workload may be grown again."""
    changed = workload.attempts[-1].settled_at
    return 0.0 if changed is None or workload.demand.kind in GOES_ON else changed + CALM


def calm(book: Book, workload: WorkloadState) -> None:
    """A live workload may be grown again: what is free is offered to it."""
    if workload.key in book.flexible and book.state.now >= calm_until(workload):
        book.dirty.update(dict.fromkeys(lane for lane, _ in book.by_lane(workload.attempts[-1].grants)))


def widened(
    book: Book, found: WaitClass, workload: WorkloadState, index: int, grants: tuple[Grant, ...]
) -> tuple[Grant, ...]:
    """Grants for as many groups as are wanted and free, at least those of `grants`."""
    option = workload.demand.options[index]
    lane, part = book.lanes[grants[0].pool], option.parts[0]
    most = min(wanted(workload, option), _allowed(book, found, index, part.chips))
    kept = backfill.kept(book, lane, found, workload, index)
    for count in range(most, len({grant.group for grant in grants}), -1):
        need = lane.places.need(replace(part, count=count))
        larger = lane.places.fit(need, kept) if need is not None else None
        if larger is not None and _affordable(book, larger):
            return larger
    return grants


def _affordable(book: Book, grants: tuple[Grant, ...], before: tuple[Grant, ...] = ()) -> bool:
    """Whether the machine that plays the fleet has the memory for these grants in place of those before."""
    return book.memory is None or book.memory_of(grants) - (book.memory_of(before) if before else 0) <= book.memory


def _allowed(book: Book, found: WaitClass, index: int, chips: int) -> int:
    accelerator = found.shape.options[index].parts[0].accelerator
    free = queues.available(found.account, accelerator)
    return 1_000_000 if free is None else free // chips


def flexible(book: Book, lane: Lane | None = None) -> Iterator[WorkloadState]:
    """Elastic attempts that run and are not being resized, in a lane or in all, in the order they came."""
    for workload in sorted(book.flexible.values(), key=lambda each: each.order):
        attempt = workload.attempts[-1]
        if (
            workload.phase in ("starting", "running")
            and (lane is None or attempt.grants[0].pool == lane.pool.name)
            and attempt.settled == attempt.resizes
        ):
            yield workload


def grow(book: Book, lane: Lane) -> None:
    """Give what nobody waits for to those who want more."""
    if book.claim is not None:
        return
    for workload in list(flexible(book, lane)):
        if book.state.now < calm_until(workload):
            continue
        attempt, option = workload.attempts[-1], option_of(workload)
        part, have = option.parts[0], groups(attempt)
        found = book.class_of(workload.demand)
        room = have + _allowed(book, found, attempt.option, part.chips)
        for count in range(min(wanted(workload, option), room), have, -1):
            need = lane.places.need(replace(part, count=count - have))
            more = lane.places.fit(need) if need is not None else None
            if more is None:
                continue
            used = {grant.group for grant in attempt.grants}
            fresh = [number for number in range(count + have) if number not in used]
            grants = (*attempt.grants, *(replace(each, group=fresh[each.group]) for each in more))
            if _affordable(book, grants, attempt.grants):
                _order(book, workload, grants, ())
                break


def shrink_for(book: Book, lane: Lane, entry: Entry) -> bool:
    """Let elastic work of no higher priority leave groups, so that the first blocked of a lane fits."""
    needs = [need for plan in entry.found.shape.plans for part in plan for other, need in part if other is lane]
    units = min((need.units for need in needs), default=0)
    coming = sum(len(w.attempts[-1].leaving) for w in book.flexible.values() if _leaves(lane, w))
    missing = max(0, units - lane.places.whole_free() - coming)
    lacking = _memory_missing(book, lane, units)
    if not missing and not lacking:
        return False
    spare = [_Spare(book, lane, w) for w in flexible(book) if -w.demand.priority >= entry.rank]
    return _shrink(book, [each for each in spare if each.groups > 0], missing, lacking)


class _Spare:
    """What an elastic attempt can give: so many groups, each of `units` in the lane and `memory` in bytes."""

    def __init__(self, book: Book, lane: Lane, workload: WorkloadState) -> None:
        grants, have = workload.attempts[-1].grants, groups(workload.attempts[-1])
        self.workload, self.groups = workload, have - _floor(workload)
        self.units = len(grants) // have if grants[0].pool == lane.pool.name else 0
        self.memory = book.memory_of(grants) // have if book.memory is not None else 0


def _memory_missing(book: Book, lane: Lane, units: int) -> int:
    """Bytes that so many units of a lane lack, beyond what is being left already."""
    if book.memory is None or not units:
        return 0
    coming = sum(book.memory_of(w.attempts[-1].leaving) for w in book.flexible.values() if w.attempts[-1].leaving)
    return max(0, book.state.fleet.overhead + units * lane.pool.footprint - book.memory - coming)


def _shrink(book: Book, spare: list[_Spare], units: int, memory: int) -> bool:
    """Let groups be left until so many units and bytes come free; nothing at all where all would not be enough."""
    if sum(each.units * each.groups for each in spare) < units or sum(e.memory * e.groups for e in spare) < memory:
        return False
    for each in sorted(spare, key=lambda each: (-each.groups, each.workload.order)):
        by_units = -(-units // each.units) if units > 0 and each.units else 0
        by_memory = -(-memory // each.memory) if memory > 0 and each.memory else 0
        count = min(each.groups, max(by_units, by_memory))
        if count:
            leave(book, each.workload, count)
            units, memory = units - count * each.units, memory - count * each.memory
    return True


def _leaves(lane: Lane, workload: WorkloadState) -> bool:
    return any(grant.pool == lane.pool.name for grant in workload.attempts[-1].leaving)


def _floor(workload: WorkloadState) -> int:
    option = option_of(workload)
    return wanted(workload, option) if workload.demand.kind == "serve" else option.minimum or 1


def leave(book: Book, workload: WorkloadState, count: int) -> None:
    """Order the last `count` groups of an attempt to be left."""
    numbers = list(dict.fromkeys(grant.group for grant in workload.attempts[-1].grants))
    _leave(book, workload, set(numbers[len(numbers) - count :]), GRACE)


def give_up(book: Book, workload: WorkloadState, unit: str, grace: float) -> bool:
    """Let an elastic attempt leave a unit that is taken away in `grace` seconds, if enough of it remains."""
    attempt = workload.attempts[-1]
    running = workload.phase in ("starting", "running") and attempt.settled == attempt.resizes
    if workload.key not in book.flexible or not running or grace < MARGIN:
        return False
    going = {grant.group for grant in attempt.grants if grant.unit == unit}
    if groups(attempt) - len(going) < (option_of(workload).minimum or 1):
        return False
    _leave(book, workload, going, grace - MARGIN)
    return True


def _leave(book: Book, workload: WorkloadState, going: set[int], grace: float) -> None:
    grants = workload.attempts[-1].grants
    left = tuple(grant for grant in grants if grant.group in going)
    _order(book, workload, tuple(grant for grant in grants if grant.group not in going), left, grace)


def _order(
    book: Book, workload: WorkloadState, grants: tuple[Grant, ...], leaving: tuple[Grant, ...], grace: float = GRACE
) -> None:
    attempt = workload.attempts[-1]
    _rebook(book, workload, grants, leaving)
    attempt.resizes += 1
    book.out.append(ResizeAttempt(workload.key, attempt.number, attempt.resizes, grants, grace))


def _rebook(book: Book, workload: WorkloadState, grants: tuple[Grant, ...], leaving: tuple[Grant, ...]) -> None:
    """Let an attempt hold something else: what it has cost so far is written down, its limits come at another time."""
    settle(book.state, workload.attempts[-1])
    book.rebook(workload, workload.attempts[-1], grants, leaving)
    book.schedule(workload)


def resized(book: Book, workload: WorkloadState) -> None:
    """The attempt has left what it was told to leave."""
    attempt = workload.attempts[-1]
    attempt.settled = attempt.resizes
    _rebook(book, workload, attempt.grants, ())


def load_reported(book: Book, workload: WorkloadState, load: float) -> None:
    """Note the load of a serving workload, and resize it when it asks for another size."""
    workload.load = load
    if workload.phase not in ("starting", "running") or workload.key not in book.flexible:
        return
    attempt = workload.attempts[-1]
    low = wanted(workload, option_of(workload)) < groups(attempt)
    if not low:
        workload.load_low_since = None
        book.dirty.update(dict.fromkeys(lane for lane, _ in book.by_lane(attempt.grants)))
    elif workload.load_low_since is None:
        workload.load_low_since = book.state.now
    book.schedule(workload)


def steady(book: Book, workload: WorkloadState) -> None:
    """Shrink a serving workload whose load has been lower for long enough."""
    since, attempt = workload.load_low_since, workload.attempts[-1]
    if since is None or book.state.now < since + STEADY or attempt.settled != attempt.resizes:
        return
    surplus = groups(attempt) - wanted(workload, option_of(workload))
    workload.load_low_since = None
    if surplus > 0:
        leave(book, workload, surplus)
