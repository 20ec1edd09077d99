"""Elastic workloads: grown and shrunk in whole groups, between their minimum and their maximum.

An elastic option starts with as many groups as are free, at least its minimum. It grows into what nobody waits
for, and
gives groups back when somebody is blocked who is of no lower priority: first who has the most beyond the minimum. A
serving workload is as large as its load asks for (`LoadReported`, in groups): it grows at once, and shrinks when
the load
has been lower for `STEADY` seconds. Groups are told to leave first, and are free when the backend says that they are
left (`AttemptResized`), so use never exceeds what there is and nothing is taken from under running code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.commands import ResizeAttempt
from stellwerk.scheduling.index import Lane, WaitClass
from stellwerk.scheduling.model import Grant, Option
from stellwerk.scheduling.order import Entry
from stellwerk.scheduling.policy import backfill, queues
from stellwerk.scheduling.state import Attempt, WorkloadState

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
        if larger is not None:
            return larger
    return grants


def _allowed(book: Book, found: WaitClass, index: int, chips: int) -> int:
    accelerator = found.shape.options[index].parts[0].accelerator
    free = queues.available(found.account, accelerator)
    return 1_000_000 if free is None else free // chips


def flexible(book: Book, lane: Lane) -> Iterator[WorkloadState]:
    """Elastic attempts in a lane that run and are not being resized, in the order they came."""
    for workload in sorted(book.flexible.values(), key=lambda each: each.order):
        attempt = workload.attempts[-1]
        if (
            workload.phase in ("starting", "running")
            and attempt.grants[0].pool == lane.pool.name
            and attempt.settled == attempt.resizes
        ):
            yield workload


def grow(book: Book, lane: Lane) -> None:
    """Give what nobody waits for to those who want more."""
    for workload in list(flexible(book, lane)):
        attempt, option = workload.attempts[-1], option_of(workload)
        part, have = option.parts[0], groups(attempt)
        found = book.class_of(workload.demand)
        room = have + _allowed(book, found, attempt.option, part.chips)
        for count in range(min(wanted(workload, option), room), have, -1):
            need = lane.places.need(replace(part, count=count - have))
            more = lane.places.fit(need) if need is not None else None
            if more is not None:
                used = {grant.group for grant in attempt.grants}
                fresh = [number for number in range(count + have) if number not in used]
                _order(book, workload, (*attempt.grants, *(replace(g, group=fresh[g.group]) for g in more)), ())
                break


def shrink_for(book: Book, lane: Lane, entry: Entry) -> bool:
    """Let elastic work of no higher priority leave groups, so that the first blocked of a lane fits."""
    needs = [need for plan in entry[4].shape.plans for part in plan for other, need in part if other is lane]
    missing = min((need.units for need in needs), default=0) - lane.places.whole_free()
    missing -= sum(len(w.attempts[-1].leaving) for w in book.flexible.values() if w.attempts[-1].leaving)
    spare = [
        (-(groups(w.attempts[-1]) - _floor(w)), w.order, w)
        for w in flexible(book, lane)
        if -w.demand.priority >= entry[0]
    ]
    if missing <= 0 or sum(-surplus for surplus, _, _ in spare) <= 0:
        return False
    for surplus, _, workload in sorted(spare, key=lambda each: each[:2]):
        if missing > 0 and surplus < 0:
            missing -= leave(book, workload, min(-surplus, missing))
    return True


def _floor(workload: WorkloadState) -> int:
    option = option_of(workload)
    return wanted(workload, option) if workload.demand.kind == "serve" else option.minimum or 1


def leave(book: Book, workload: WorkloadState, count: int) -> int:
    """Order the last `count` groups of an attempt to be left; how many units that frees."""
    attempt = workload.attempts[-1]
    numbers = list(dict.fromkeys(grant.group for grant in attempt.grants))
    going = set(numbers[len(numbers) - count :])
    left = tuple(grant for grant in attempt.grants if grant.group in going)
    _order(book, workload, tuple(grant for grant in attempt.grants if grant.group not in going), left)
    return len(left)


def _order(book: Book, workload: WorkloadState, grants: tuple[Grant, ...], leaving: tuple[Grant, ...]) -> None:
    attempt = workload.attempts[-1]
    book.rebook(workload, attempt, grants, leaving)
    attempt.resizes += 1
    book.out.append(ResizeAttempt(workload.key, attempt.number, attempt.resizes, grants))


def resized(book: Book, workload: WorkloadState) -> None:
    """The attempt has left what it was told to leave."""
    attempt = workload.attempts[-1]
    attempt.settled = attempt.resizes
    book.rebook(workload, attempt, attempt.grants, ())


def load_reported(book: Book, workload: WorkloadState, load: float) -> None:
    """Note the load of a serving workload, and resize it when it asks for another size."""
    workload.load = load
    if workload.phase not in ("starting", "running") or workload.key not in book.flexible:
        return
    attempt = workload.attempts[-1]
    low = wanted(workload, option_of(workload)) < groups(attempt)
    if not low:
        workload.load_low_since = None
        book.dirty[book.lanes[attempt.grants[0].pool]] = None
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
