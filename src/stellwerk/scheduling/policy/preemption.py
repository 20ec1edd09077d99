"""Stopping what runs, so that something else can start. Only where the fleet says `preempt`.

Who may be stopped for whom: of lower priority for a blocked workload that is first in its lane, or anything of queues
that borrow, for a workload within its own queue's quota that waits because others hold what the queue lent. Those who
cost the least are stopped first: the lowest priority, then the least work lost, which is chips times the seconds since
the last checkpoint (or the start). No more are stopped than are needed: of the chosen, each that turns out not to be
needed is let go on. The victims are given `GRACE` seconds to save a checkpoint, wait in their lines again, and lose no
retries.

While the victims of a workload are stopping it has a claim: what they leave is for it, so nobody who comes after it is
started in its lanes until they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from stellwerk.scheduling import reasons
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import Cohort, Lane, WaitClass, chips_held
from stellwerk.scheduling.lifecycle import stop
from stellwerk.scheduling.placement.index import INF
from stellwerk.scheduling.policy import queues
from stellwerk.scheduling.state import WorkloadState

GRACE = 30.0
"""Seconds that a preempted attempt has to save a checkpoint."""

PAUSE = 60.0
"""Seconds after which others are stopped again for a workload that could not start when they had been."""

Fits = Callable[[], bool]


def lost_work(workload: WorkloadState, now: float) -> float:
    """Chip-seconds since the last checkpoint, or the start, that stopping the live attempt would throw away."""
    attempt = workload.attempts[-1]
    since = attempt.running if attempt.running is not None else attempt.began
    if workload.checkpoint_at is not None:
        since = max(since, workload.checkpoint_at)
    return sum(grant.chips for grant in attempt.grants) * max(0.0, now - since)


def holders(book: Book, lanes: Iterable[Lane]) -> list[WorkloadState]:
    """Those who hold anything in these lanes, in the order they came."""
    keys = {key for lane in lanes for unit in book.members[lane.pool.name].values() for key in unit.held}
    return sorted((book.state.workloads[key] for key in keys), key=lambda workload: workload.order)


def for_first(book: Book, found: WaitClass, workload: WorkloadState, fits: Fits) -> bool:
    """Make room for a blocked workload that is first in its lane, by stopping work of lower priority."""
    now = book.state.now
    lower = [
        each
        for each in holders(book, found.shape.lanes)
        if each.demand.priority < workload.demand.priority and each.phase in ("starting", "running")
    ]
    lower.sort(key=lambda each: (each.demand.priority, lost_work(each, now), -each.order))
    return bool(lower) and make_room(book, found, workload, lower, fits)


def make_room(book: Book, found: WaitClass, workload: WorkloadState, victims: list[WorkloadState], fits: Fits) -> bool:
    """Stop the first of `victims`, and no more than are needed, so that `workload` fits; False when that is not
    enough."""
    if workload.key in book.claims:
        return True
    if workload.made_room is not None and book.state.now < workload.made_room + PAUSE:
        return False

    def enough() -> bool:
        return fits() and _memory_allows(book, found)

    lifted = [each for each in holders(book, found.shape.lanes) if each.phase == "stopping"]
    for each in lifted:
        _lift(book, each)
    chosen: list[WorkloadState] = []
    try:
        for victim in victims:
            if enough():
                break
            _lift(book, victim)
            chosen.append(victim)
        if not enough():
            return False
        for victim in chosen[:-1]:
            _lower(book, victim)
            if enough():
                chosen.remove(victim)
            else:
                _lift(book, victim)
    finally:
        for each in [*lifted, *victims]:
            _lower(book, each)
    for victim in chosen:
        stop(book, victim, "preempted", GRACE)
        victim.stop_for = workload.key
        book.claims[workload.key] = book.claims.get(workload.key, 0) + 1
        workload.made_room = book.state.now
    return bool(chosen)


def _memory_allows(book: Book, found: WaitClass) -> bool:
    """Whether the machine that plays the fleet would have the memory, once those who are lifted have left."""
    if book.memory is None:
        return True
    if book.claim is not None and (found.entry is None or book.claim < found.current()):
        return False
    back = sum(book.memory_of(book.state.workloads[key].attempts[-1].grants) for key in book.lifted)
    needed = (reasons.memory_needed(book.state, option) for option in found.shape.options)
    return max(needed) <= book.memory + back


def reclaim(book: Book, found: WaitClass, workload: WorkloadState) -> bool:
    """Give a queue back what it lent: stop borrowers of its cohort until `workload` is within what is available."""
    account, cohort = found.account, found.account.cohort
    if workload.key in book.claims:
        return True
    if workload.made_room is not None and book.state.now < workload.made_room + PAUSE:
        return False
    if not queues.owns(found):
        return False
    for accelerator, needed in found.shape.chips[0].items():
        if accelerator not in account.quota:
            continue
        missing = needed - (queues.available(account, accelerator) or 0)
        borrowed = {each.name: queues.borrowed(each, accelerator) for each in cohort.accounts if each is not account}
        for victim in _borrowers(cohort, borrowed, book.state.now):
            if missing <= 0:
                break
            name, chips = victim.demand.queue, _chips(victim, accelerator)
            if not chips or borrowed[name] <= 0:
                continue
            if victim.phase != "stopping":
                stop(book, victim, "preempted", GRACE)
                victim.stop_for = workload.key
                book.claims[workload.key] = book.claims.get(workload.key, 0) + 1
            missing -= chips
            borrowed[name] -= chips
    if workload.key in book.claims:
        workload.reclaims, workload.made_room = True, book.state.now
        cohort.claimants[workload.key] = found
    return workload.reclaims


def _borrowers(cohort: Cohort, borrowed: dict[str, int], now: float) -> list[WorkloadState]:
    """Workloads of queues that borrow, those that cost the least to stop first."""
    found = [each for account in cohort.accounts if borrowed.get(account.name, 0) > 0 for each in account.live.values()]
    return sorted(
        found, key=lambda each: (each.phase != "stopping", each.demand.priority, lost_work(each, now), -each.order)
    )


def _chips(workload: WorkloadState, accelerator: str) -> int:
    attempt = workload.attempts[-1]
    return chips_held(workload.demand.options[attempt.option], attempt.grants).get(accelerator, 0)


@contextmanager
def without(book: Book, workload: WorkloadState) -> Generator[None, None, None]:
    """Within this the indexes believe that a holder has left."""
    _lift(book, workload)
    try:
        yield
    finally:
        _lower(book, workload)


def _lift(book: Book, workload: WorkloadState) -> None:
    """Let the indexes believe that a holder has left."""
    if workload.key in book.lifted:
        return
    book.lifted[workload.key] = None
    attempt = workload.attempts[-1]
    for lane, own in book.by_lane(attempt.grants + attempt.leaving):
        lane.places.give(own, workload.key)


def _lower(book: Book, workload: WorkloadState) -> None:
    """Take that back."""
    if workload.key not in book.lifted:
        return
    del book.lifted[workload.key]
    attempt = workload.attempts[-1]
    until = INF if attempt.expected is None else attempt.expected
    for lane, own in book.by_lane(attempt.grants + attempt.leaving):
        lane.places.retake(own, workload.key, until, attempt.began)
