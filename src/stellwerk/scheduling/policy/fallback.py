"""Which of a workload's options are open to it now.

Options are in order of preference. The first is open at once; each later one opens when the patience of those before it
is used up, counted from when the workload began to wait, or when they were left earlier: because the provider refused
them. An option that can never be met costs no patience. An open option stays open: if its units are free it is taken.
Units are made for the last option that has opened; those that were made for one that was left are given back. An option
is also taken before its turn if it would finish clearly earlier than the one that is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import WaitClass
from stellwerk.scheduling.model import Option, Reason
from stellwerk.scheduling.placement.index import INF
from stellwerk.scheduling.policy.rules import remaining
from stellwerk.scheduling.state import Departure, WorkloadState

PATIENCE = 60.0
"""Seconds for an option that states no patience of its own."""

MARGIN, PART = 60.0, 0.1
"""A later option must finish earlier by so many seconds, and by this part of its runtime, to be taken before its
turn."""


def patience_of(option: Option) -> float:
    """Seconds to wait for `option` before the next one opens."""
    return PATIENCE if option.patience is None else option.patience


def opens_at(workload: WorkloadState, never: Sequence[Reason | None]) -> list[float]:
    """When each option opens, in order; options that can never be granted take no patience."""
    opens: list[float] = []
    time = workload.waiting_since
    left = {departure.option: departure.at for departure in workload.departures}
    for index, option in enumerate(workload.demand.options):
        opens.append(time)
        if never[index] is None:
            time = min(time + patience_of(option), left.get(index, INF))
    return opens


def open_options(found: WaitClass, workload: WorkloadState, now: float) -> list[int]:
    """The options that are open now and possible, in order."""
    if len(found.never) == 1:
        return [0] if found.never[0] is None else []
    opens = opens_at(workload, found.never)
    return [index for index, at in enumerate(opens) if at <= now and found.never[index] is None]


def current(found: WaitClass, workload: WorkloadState, now: float) -> int | None:
    """The option for which units are made: the last that has opened."""
    return max(open_options(found, workload, now), default=None)


def refused(book: Book, workload: WorkloadState, pool: str, code: str) -> None:
    """A unit that was to be made for a waiting workload was refused: leave the option, unless part of it has come.

    A stock-out after some of the units have come may pass within the option's patience; a quota does not.
    """
    if workload.phase != "waiting":
        return
    found = book.class_of(workload.demand)
    index = current(found, workload, book.state.now)
    if index is None or not _uses(found, index, pool):
        return
    if code == "quota" or not book.meant.get(workload.key):
        depart(book, found, workload, index, code)


def depart(book: Book, found: WaitClass, workload: WorkloadState, option: int, code: str) -> None:
    """Leave an option for the next; units that were made for it are given back by those who see to the pools."""
    if any(departure.option == option for departure in workload.departures):
        return
    if all(never is not None for never in found.never[option + 1 :]):
        return
    workload.departures = (*workload.departures, Departure(book.state.now, option, code))
    book.dirty.update(dict.fromkeys(found.shape.lanes))
    book.sized.update(dict.fromkeys(found.shape.lanes))
    book.schedule(workload)
    book.settle(workload)


def leave_cooling(book: Book, workload: WorkloadState) -> None:
    """Leave, one after the other, the options whose pools the provider refuses now and that cannot be had from
    units."""
    found = book.class_of(workload.demand)
    for index in range(len(found.never) - 1):
        now = book.state.now
        if index == current(found, workload, now) and cooling(book, found, index):
            depart(book, found, workload, index, "cool-down")


def out_of_patience(book: Book, workload: WorkloadState) -> None:
    """Write down the options whose patience is used up."""
    found, now = book.class_of(workload.demand), book.state.now
    opens = opens_at(workload, found.never)
    for index, at in enumerate(opens[1:]):
        if at <= now and found.never[index] is None:
            depart(book, found, workload, index, "limit")


def finishes_earlier(book: Book, workload: WorkloadState, starts: float, first: int, later: int) -> bool:
    """Whether option `later`, started now, ends clearly before option `first`, which starts at `starts`."""
    one, other = remaining(workload, first), remaining(workload, later)
    if INF in (one, other, starts):
        return False
    return starts + one > book.state.now + other + max(MARGIN, PART * other)


def _uses(found: WaitClass, option: int, pool: str) -> bool:
    return any(lane.pool.name == pool for part in found.shape.plans[option] for lane, _ in part)


def cooling(book: Book, found: WaitClass, option: int) -> bool:
    """Whether an option needs units of pools that are refused now."""
    cool = book.state.cool_downs
    for part in found.shape.plans[option]:
        if not any(lane.places.fits(need) or lane.pool.name not in cool for lane, need in part):
            return True
    return False
