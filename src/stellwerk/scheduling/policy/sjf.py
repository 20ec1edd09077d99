"""Shortest first; with preemption, smallest remaining work first.

Without preemption the line is ordered by the estimate of what remains, and whoever is first and blocked blocks all.

With preemption (`preempt`) whoever has the smaller key runs, if it can be placed at all:

    key = remaining seconds x sqrt(chips) + AGEING x time of submission
    key = AGEING x time of submission - OLD                                  once it is old

Remaining time alone would let one long small job hold up many; remaining area (x chips) makes large work wait
for very long. The square root lies between, and measured best of all powers on the Philly trace, for the mean and for
the large. A blocked workload stops those who run with larger keys, the largest first, and no more than it needs, in all
pools that its parts want; work that is stopped keeps its checkpoint and pays its restart. Smaller work that is blocked
does not block larger that fits, because it can take its place back.

Nothing starves. A workload is old `STRETCH` times its estimate after its submission (at least `LEAST` seconds,
`UNKNOWN` seconds without an estimate). From then on nothing of its priority that was submitted later comes before it
or stops it. So if A is the age at which it is old, and nothing of higher priority comes:

    delay <= A + running times (with restarts) of all that were submitted before it and are not over at that age

since whenever it waits after A somebody older runs, or room is made. Higher priority adds its own running times for as
long as it keeps coming. `STRETCH` is as small as leaves the mean where it was: on philly_ge4, 95 % busy for 114 days,
the mean completion is 286,463 s without this rule (longest delay 8,837,248 s), 289,211 s with 13 (7,782,088 s),
290,795 s with 12, 297,549 s with 10 (6,048,000 s) and 328,502 s with 8 (4,838,400 s). That a few of the largest wait
longer than under `fifo` (2,651,941 s) is what the mean is bought with: the backlog of a full fleet stands somewhere,
and costs least where it stands in the fewest workloads.
"""

from __future__ import annotations

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import Entry, Lane, WaitClass
from stellwerk.scheduling.policy import fallback, preemption, queues
from stellwerk.scheduling.policy.rules import area_key, old_at, remaining
from stellwerk.scheduling.state import WorkloadState


def key_now(workload: WorkloadState, now: float) -> float:
    """The key of a running workload: what remains of its estimate now.

    It is never above the key that the workload would wait with, so nobody who is stopped stops in turn who stopped it.
    """
    left = remaining(workload) - (now - workload.attempts[-1].began)
    return area_key(workload, max(1.0, left), now)


def grown_old(book: Book, workload: WorkloadState) -> None:
    """A waiting workload may have become old: give it its new place."""
    found = book.class_of(workload.demand)
    if book.state.now >= old_at(workload) and workload.key not in book.held:
        found.line.move(workload, book.place_of(found, workload)[2])
        book.refresh(found)
        book.ask(found)


def serve(book: Book, lane: Lane) -> None:
    """Start whoever fits, the smallest key first; for one that does not, stop those with larger keys."""
    from stellwerk.scheduling.dispatch import offer

    book.serving = lane
    tried: set[int] = set()
    while (entry := _next(lane, tried)) is not None:
        if claimant(book, lane, entry[:4]) is not None:
            return
        if offer(book, entry.found, entry.first) != "blocked":
            continue
        tried.add(id(entry.found))
        if _displace(book, lane, entry):
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
    """Stop those with larger keys for a blocked workload, in all lanes where it could stand."""
    now, found, first = book.state.now, entry.found, entry.first
    running = [each for each in preemption.holders(book, found.shape.lanes) if each.phase in ("starting", "running")]
    keys = {each.key: (-each.demand.priority, key_now(each, now)) for each in running}
    larger = [each for each in running if keys[each.key] > (entry.rank, entry.key)]
    if not larger:
        return False
    larger.sort(key=lambda each: (keys[each.key], each.order), reverse=True)
    if (simple := found.shape.simple) is not None:
        return preemption.make_room(book, found, first, larger, lambda: lane.places.fits(simple[1]))
    return any(
        preemption.make_room(book, found, first, larger, _placed(book, found, first, index))
        for index in fallback.open_options(found, first, now)
        if not queues.blocked(found, first, index, now)
    )


def _placed(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> preemption.Fits:
    from stellwerk.scheduling.dispatch import propose

    return lambda: propose(book, found, workload, index, ask=True) is not None
