"""EASY backfill: shorter or smaller work passes a blocked workload if that does not delay it.

For the first blocked workload of a lane a reservation is made: the earliest time T at which its own shape can be placed
if everything that runs ends as estimated, and the set of units M on which (Lifka, 1995, but by units instead of a count
of processors: 8 free GPUs on 8 nodes are no node). Later work may start now if it ends by T, or if it takes no unit of
M. So the first blocked workload starts at T at the latest, as long as nothing runs longer than its estimate; that is
what is promised to it. A reservation is made anew in every turn in which something fits that could pass, and only then.
Of a queue that has used clearly more of its share than the first's nothing passes but what ends by T, while T is near
(see `fairshare`).

Where the end of what runs is unknown there is no T, and nothing passes. Work without an estimate never ends by T.
Those who pass are taken in the order of the queue: the oldest of each class that is short enough, by a tree over
the class's estimates; a policy may count chips as places in the line (`Rules.places`). Where many queues wait with
one shape, the `DEPTH` first of them are looked at.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import Entry, Lane, Reservation, Shape, WaitClass
from stellwerk.scheduling.placement.index import INF, Forecast
from stellwerk.scheduling.policy import fairshare, fallback, sjf
from stellwerk.scheduling.policy.rules import remaining
from stellwerk.scheduling.state import WorkloadState

FEW = 8
"""Classes of one shape that are all asked for work that is short enough."""

DEPTH = 64
"""Classes of one shape that are looked at for work that may pass."""

EVERYTHING: Final = -1
"""The set of all units."""


def kept(book: Book, lane: Lane, found: WaitClass, workload: WorkloadState, option: int, *, ask: bool = False) -> int:
    """The units of `lane` that `workload` must not touch, because they are kept for work that comes before it.

    With `ask` it is what they were by the last decision, and nothing is promised to anybody.
    """
    top = lane.top()
    if top is None or (top[4] is found and top[3] == workload.order):
        return 0
    if top[:4] > book.place_of(found, workload):
        return 0
    if found.skips:
        return EVERYTHING if sjf.claimant(book, lane, book.place_of(found, workload)) is not None else 0
    if not found.backfills:
        return EVERYTHING
    if book.claims and top[5].key in book.claims:
        return EVERYTHING
    reserved = standing(book, lane, top) if ask else promised(book, lane)
    if reserved is None or reserved.at == INF:
        return EVERYTHING
    wait = reserved.at - book.state.now
    if remaining(workload, option) <= wait:
        return 0
    return EVERYTHING if found.account.level > fairshare.most(top[4].account, wait) else reserved.mask


def promised(book: Book, lane: Lane) -> Reservation | None:
    """The reservation of the first that waits in a lane, which is thereby promised to it; None when nobody waits."""
    top = lane.top()
    if top is None:
        return None
    blocked = lane.blocked
    if blocked is None or blocked.turn is not book.out or blocked.holder.order != top.age:
        before, blocked = blocked, reserved_for(book, lane, top)
        lane.blocked = blocked
        if lane is not book.serving and (before is None or (before.at, before.mask) != (blocked.at, blocked.mask)):
            book.dirty[lane] = None
        blocked.holder.promise = blocked.at if book.state.now < blocked.at < INF else None
    return blocked


def standing(book: Book, lane: Lane, top: Entry) -> Reservation:
    """The reservation that the last decision in a lane was made on, or would be made on now."""
    blocked = lane.blocked
    return blocked if blocked is not None and blocked.holder is top.first else reserved_for(book, lane, top)


def reserved_for(book: Book, lane: Lane, top: Entry) -> Reservation:
    """A reservation for the first of the class that is on top of a lane, as of now."""
    first = top.found.line.first()
    assert first is not None
    return Reservation(first, _forecast(book, lane, top.found, first), book.out)


def _forecast(book: Book, lane: Lane, found: WaitClass, first: WorkloadState) -> Forecast:
    """When the first possible option that needs this lane is open and can be placed, and where in this lane."""
    now, best = book.state.now, Forecast(INF, 0)
    opens = fallback.opens_at(first, found.never) if len(found.never) > 1 else [now]
    for plan, never, opened in zip(found.shape.plans, found.never, opens, strict=True):
        if never is not None:
            continue
        mask, here, at = 0, False, max(now, opened)
        for part in plan:
            forecasts = [(other.places.earliest(need, now), other) for other, need in part]
            forecast, chosen = min(forecasts, key=lambda pair: (pair[0].at, pair[1].number))
            at = max(at, forecast.at)
            if chosen is lane:
                mask, here = mask | forecast.mask, True
        if here and at < best.at:
            best = Forecast(at, mask)
    return best


def starts(book: Book, shape: Shape, option: int) -> float:
    """When an option could be placed at the earliest, if everything that runs ends as estimated; `inf` if unknown."""
    now = book.state.now
    return max(min(lane.places.earliest(need, now).at for lane, need in part) for part in shape.plans[option])


def fill(book: Book, lane: Lane) -> None:
    """Start what may pass the first blocked workload of a lane, in order."""
    from stellwerk.scheduling.dispatch import offer

    tried: set[WaitClass] = set()
    while (best := _best(book, lane, tried)) is not None:
        _, found, workload = best
        if offer(book, found, workload) != "started":
            tried.add(found)


def _best(
    book: Book, lane: Lane, tried: set[WaitClass]
) -> tuple[Entry | tuple[int, float, int], WaitClass, WorkloadState] | None:
    best = None
    top = lane.top()
    if top is None or not lane.places.free:
        return None
    head, places = top.found, book.rules.places
    for shape in lane.active:
        simple = shape.simple
        if shape is head.shape and simple is not None:
            continue
        if simple is not None and not lane.places.fits(simple[1]):
            continue
        reserved = promised(book, lane)
        if reserved is None:
            return None
        long = simple is None or (reserved.at < INF and lane.places.fits(simple[1], reserved.mask))
        window = reserved.at - book.state.now if reserved.at < INF else -1.0
        passing = _passing(shape, head, window, tried, long=long)
        if passing is not None:
            found, workload = passing
            key = (found.rank, found.account.level, workload.order - places * shape.total)
            if best is None or key < best[0]:
                best = (key, found, workload)
    return best


def _passing(
    shape: Shape, head: WaitClass, window: float, tried: set[WaitClass], *, long: bool
) -> tuple[WaitClass, WorkloadState] | None:
    """The first of a shape that may pass the class `head`, with `long` also for longer than `window` seconds."""
    if not long:
        return _short(shape, head, window, tried)
    most = fairshare.most(head.account, window)
    first = _first(shape, head, most, tried)
    if most == INF:
        return first
    short = _short(shape, head, window, tried)
    return min((each for each in (first, short) if each is not None), key=_place, default=None)


def _first(shape: Shape, head: WaitClass, most: float, tried: set[WaitClass]) -> tuple[WaitClass, WorkloadState] | None:
    """The first of a shape that may pass, of queues up to the level `most`, among the `DEPTH` first classes."""
    for found in islice(shape.order.upto(most), DEPTH):
        if _may(found, head, tried) and (workload := found.line.first()) is not None:
            return found, workload
    return None


def _short(
    shape: Shape, head: WaitClass, window: float, tried: set[WaitClass]
) -> tuple[WaitClass, WorkloadState] | None:
    """The first of a shape that may pass within `window` seconds.

    Where few classes wait, or few are so short, these are compared; else the `DEPTH` first classes are looked at.
    """
    if shape.shortest() > window:
        return None
    few = _short_of_each(shape, window) if len(shape.active) <= FEW else shape.within(window, DEPTH)
    if few is not None:
        return min((each for each in few if _may(each[0], head, tried)), key=_place, default=None)
    for found in islice(shape.order, DEPTH):
        if _may(found, head, tried) and (workload := found.line.first_within(window)) is not None:
            return found, workload
    return None


def _may(found: WaitClass, head: WaitClass, tried: set[WaitClass]) -> bool:
    return found is not head and found not in tried and found.backfills


def _short_of_each(shape: Shape, window: float) -> list[tuple[WaitClass, WorkloadState]]:
    """The first of each class of a shape that takes at most `window` seconds."""
    firsts = ((found, found.line.first_within(window)) for found in shape.active)
    return [(found, workload) for found, workload in firsts if workload is not None]


def _place(each: tuple[WaitClass, WorkloadState]) -> tuple[int, float, int]:
    return each[0].rank, each[0].account.level, each[1].order
