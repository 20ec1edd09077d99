"""Shortest first; with preemption, smallest remaining work first.

Without preemption the line is ordered by the estimate of what remains, and whoever is first and blocked blocks all.

With preemption (`preempt`) whoever has the smaller key runs, if it can be placed at all:

    key = remaining seconds x sqrt(chips) + AGEING x time of submission

Remaining time alone would let one long small job hold up many; remaining area (x chips) makes large work wait
for very long. The square root lies between, and measured best of all powers on the Philly trace, for the mean and for
the large. A key grows with the time of submission, so of two equal ones the older is first, and what was
submitted long enough ago comes before anything new, whatever its size: nothing starves. A blocked workload stops
those who run with larger keys, the largest first, and no more than it needs; work that is stopped keeps its
checkpoint
and pays its restart. Smaller work that is blocked does not block larger that fits, because it can take its place
back.
"""

from __future__ import annotations

from math import sqrt

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import Lane
from stellwerk.scheduling.order import Entry
from stellwerk.scheduling.policy import preemption
from stellwerk.scheduling.policy.rules import AGEING, remaining
from stellwerk.scheduling.state import WorkloadState


def key_now(workload: WorkloadState, now: float) -> float:
    """The key of a running workload: what remains of its estimate now.

    It is never above the key that the workload would wait with, so nobody who is stopped stops in turn who stopped it.
    """
    left = remaining(workload) - (now - workload.attempts[-1].began)
    return max(1.0, left) * sqrt(workload.demand.options[0].chips) + AGEING * workload.submitted


def serve(book: Book, lane: Lane) -> None:
    """Start whoever fits, the smallest key first; for one that does not, stop those with larger keys."""
    from stellwerk.scheduling.dispatch import offer

    book.serving = lane
    tried: set[int] = set()
    while (entry := _next(lane, tried)) is not None:
        found, first = entry[4], entry[5]
        if claimant(book, lane, entry[:4]) is not None:
            return
        if offer(book, found, first) != "blocked":
            continue
        tried.add(id(found))
        if found.shape.simple is not None and _displace(book, lane, entry):
            return


def _next(lane: Lane, tried: set[int]) -> Entry | None:
    valid = [found.entry for found in lane.entered() if found.entry is not None and id(found) not in tried]
    return min(valid, default=None)


def claimant(book: Book, lane: Lane, place: tuple[float, ...]) -> WorkloadState | None:
    """Somebody before `place` for whom room is being made in this lane, and who is to get it."""
    for key in book.claims:
        workload = book.state.workloads.get(key)
        if workload is None or workload.phase != "waiting" or key in book.held:
            continue
        found = book.class_of(workload.demand)
        if lane in found.shape.lanes and book.place_of(found, workload) < place:
            return workload
    return None


def _displace(book: Book, lane: Lane, entry: Entry) -> bool:
    now, key = book.state.now, entry[2]
    running = [each for each in preemption.holders(book, [lane]) if each.phase in ("starting", "running")]
    keys = {each.key: (-each.demand.priority, key_now(each, now)) for each in running}
    larger = [each for each in running if keys[each.key] > (entry[0], key)]
    if not larger or entry[4].shape.simple is None:
        return False
    larger.sort(key=lambda each: (keys[each.key], each.order), reverse=True)
    need = entry[4].shape.simple[1]
    return preemption.make_room(book, entry[4], entry[5], larger, lambda: lane.places.fits(need))
