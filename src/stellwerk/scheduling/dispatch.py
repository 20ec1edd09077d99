"""One lane's turn: whoever is first in its order gets everything that one of its open options asks for, or nothing.

The turn ends with the first that is blocked. Where the policy lets shorter work pass, `backfill` goes on from there.
`propose` is the one place where a workload is tried: it knows which options are open, what the queue may hold, which
units are kept for those that come before, and the memory of the machine that plays the fleet.
"""

from __future__ import annotations

from typing import Literal

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import Lane, WaitClass
from stellwerk.scheduling.lifecycle import end_impossible
from stellwerk.scheduling.model import NO_LIMITS, Grant
from stellwerk.scheduling.placement.index import Need
from stellwerk.scheduling.placement.together import place
from stellwerk.scheduling.plain import start
from stellwerk.scheduling.policy import backfill, elastic, fallback, preemption, queues, sjf
from stellwerk.scheduling.state import WorkloadState

Answer = Literal["started", "parked", "blocked"]


def arrived(book: Book, workload: WorkloadState) -> None:
    """A new workload: start it at once if nobody comes before it, else enter it in its line and try to let it pass."""
    found = book.catalogue.class_of(workload.demand)
    if (plain := found.plain) is not None and not found.line.size and (not plain[0].classes or plain[0].top() is None):
        if (quick := found.quick) is not None:
            if start(book, workload, quick):
                return
        elif (grants := plain[0].places.fit(plain[1])) is not None:
            book.start(workload, found, 0, grants)
            return
    if None not in found.never:
        never = found.never[0]
        end_impossible(book, workload, never.message if never else "")
        return
    book.enter(workload, found)
    demand, lanes = workload.demand, found.shape.lanes
    for lane in lanes:
        if (top := lane.top()) is not None and top[5] is workload:
            book.dirty[lane] = None
    if found.quick is not None and demand.limits is NO_LIMITS:
        return  # nobody passes, and nothing is timed
    if demand.limits is not NO_LIMITS or len(demand.options) > 1 or found.skips or found.account.quota:
        if len(demand.options) > 1:
            fallback.leave_cooling(book, workload)
        book.schedule(workload)
    if found.skips:
        book.dirty.update(dict.fromkeys(lanes))
    if found.backfills and found.parked is None and not any(lane in book.dirty for lane in lanes):
        offer(book, found, workload)
    for lane in lanes:
        if lane.elastic:
            book.sized[lane] = None


def serve(book: Book, lane: Lane) -> None:
    """Serve a lane in order until somebody is blocked, then let shorter work pass."""
    if book.rules.displaces:
        book.ask_rest()
        sjf.serve(book, lane)
        return
    book.serving = lane
    if lane.aside:
        lane.back_in_line()
    if book.asking:
        book.ask_next(lane)
    while (entry := lane.top()) is not None:
        found = entry[4]
        if (quick := found.quick) is not None:
            if not start(book, entry[5], quick):
                break
            book.granted(entry[5], found)
        elif (plain := found.plain) is not None:
            grants = lane.places.fit(plain[1])
            if grants is None:
                break
            book.grant(entry[5], found, 0, grants)
        elif offer(book, found, entry[5]) == "blocked":
            if found.timed and not _presses(book, found, entry[5], lane):
                lane.set_aside(entry)
            else:
                break
        if book.asking:
            book.ask_next(lane)
    else:
        if book.flexible:
            elastic.grow(book, lane)
        return
    if book.asking:
        book.ask_rest()
    if book.flexible and elastic.shrink_for(book, lane, entry):
        return
    if book.preempts and entry.first.key not in book.claims:
        _preempt(book, found, entry.first)
    if book.tracking:
        backfill.fill(book, lane)
        if (now := lane.top()) is None or now.first is not entry.first:
            book.dirty[lane] = None


def _presses(book: Book, found: WaitClass, workload: WorkloadState, lane: Lane) -> bool:
    """Whether a blocked workload wants this very lane now: by an option that is open and within its queue's quota."""
    return any(
        any(lane is other for part in found.shape.plans[index] for other, _ in part)
        for index in fallback.open_options(found, workload, book.state.now)
        if _held_back(book, found, workload, index) is None
    )


def _preempt(book: Book, found: WaitClass, workload: WorkloadState) -> None:
    """Make room for the first of a lane on its preferred option, if it is of higher priority than some who run."""
    for index in fallback.open_options(found, workload, book.state.now):
        if _held_back(book, found, workload, index) is not None:
            continue

        def fits(option: int = index) -> bool:
            return propose(book, found, workload, option, ask=True) is not None

        if preemption.for_first(book, found, workload, fits):
            return


def offer(book: Book, found: WaitClass, workload: WorkloadState) -> Answer:
    """Start a waiting workload that is entered in its line, if one of its open options can be granted now."""
    simple = found.shape.simple
    if simple is not None and book.memory is None:
        lane, need = simple
        if why := _held_back(book, found, workload, 0):
            _park(book, found, workload, why)
            return "parked"
        top = lane.top()
        first = top is not None and top[5] is workload
        grants = lane.places.fit(need) if first else _passing(book, found, workload, lane, need)
        if grants is None:
            return "blocked"
        book.grant(workload, found, 0, grants)
        return "started"
    return _offer_options(book, found, workload)


def _passing(book: Book, found: WaitClass, workload: WorkloadState, lane: Lane, need: Need) -> tuple[Grant, ...] | None:
    """Grants for one who is not the first; if it can, it leaves alone even what it may take of the first's."""
    if not lane.places.fits(need):
        return None
    avoid = backfill.kept(book, lane, found, workload, 0)
    if not avoid and lane.blocked is not None:
        grants = lane.places.fit(need, ~lane.blocked.mask)
        if grants is not None:
            return grants
    return lane.places.fit(need, avoid)


def _held_back(book: Book, found: WaitClass, workload: WorkloadState, option: int) -> str | None:
    if not found.account.quota:
        return None
    return queues.held_back(found, workload, found.shape.chips[option], book.state.now)


def _park(book: Book, found: WaitClass, workload: WorkloadState, why: str) -> None:
    book.park(found, why)
    if book.preempts and why == "cohort":
        preemption.reclaim(book, found, workload)


def _offer_options(book: Book, found: WaitClass, workload: WorkloadState) -> Answer:
    why: str | None = None
    options = fallback.open_options(found, workload, book.state.now)
    for index in options:
        why = _held_back(book, found, workload, index)
        if why is None and _grant_option(book, found, workload, index):
            return "started"
    if why is not None and len(found.never) == 1:
        _park(book, found, workload, why)
        return "parked"
    if len(options) < len(found.never) and _offer_early(book, found, workload, options):
        return "started"
    if len(found.shape.lanes) > 1:  # what it lacks in one pool may be made now that another has what it needs
        book.sized.update(dict.fromkeys(lane for lane in found.shape.lanes if lane.elastic))
    return "blocked"


def _grant_option(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> bool:
    grants = propose(book, found, workload, index)
    if grants is None or not _affordable(book, found, grants):
        return False
    if found.shape.options[index].maximum is not None:
        grants = elastic.widened(book, found, workload, index, grants)
    book.grant(workload, found, index, grants)
    return True


def _offer_early(book: Book, found: WaitClass, workload: WorkloadState, options: list[int]) -> bool:
    """Take an option before its turn where it would finish clearly earlier than the one that is waited for."""
    if not options or workload is not found.line.first():
        return False
    first = options[-1]
    starts = backfill.starts(book, found.shape, first)
    for index in range(first + 1, len(found.never)):
        if found.never[index] is not None or not fallback.finishes_earlier(book, workload, starts, first, index):
            continue
        if _held_back(book, found, workload, index) is None and _grant_option(book, found, workload, index):
            return True
    return False


def _affordable(book: Book, found: WaitClass, grants: tuple[Grant, ...]) -> bool:
    """Whether the machine that plays the fleet has the memory; if not, whoever is first gets it first."""
    if book.memory is None:
        return True
    needed, entry = book.memory_of(grants), found.current() if found.entry is not None else None
    if not needed:
        return True
    if book.claim is not None and entry is not None and book.claim < entry:
        return False
    if needed <= book.memory:
        return True
    book.claim = entry
    return False


def propose(
    book: Book, found: WaitClass, workload: WorkloadState, index: int, *, ask: bool = False
) -> tuple[Grant, ...] | None:
    """Grants for every part of an option, or None; nothing is changed (with `ask`, nothing promised either)."""

    def fit(choice: tuple[Lane, Need]) -> tuple[Grant, ...] | None:
        lane, need = choice
        return lane.places.fit(need, backfill.kept(book, lane, found, workload, index, ask=ask))

    return place(found.shape.plans[index], lambda choice: choice[0].places, fit, book.state.now)
