"""The plain case in few steps: a cell of one unit, where nothing but free chips can stand in the way.

Most work in most clusters asks for one option, of one part that fits in a unit and that one pool serves. Where no queue
is declared, no machine's memory is counted, and the policy foresees nothing (`Book.bare`), there is nothing to be asked
but whether the chips are free. `start` and `end` then do at once what `book`, `dispatch` and `lifecycle` do in general,
without the questions whose answer is known; what they cannot do they leave to those. The tests hold both against each
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk.scheduling.commands import StartAttempt
from stellwerk.scheduling.model import NO_LIMITS
from stellwerk.scheduling.state import attempt_of

if TYPE_CHECKING:
    from stellwerk.scheduling.book import Book
    from stellwerk.scheduling.events import AttemptEnded
    from stellwerk.scheduling.index import Quick
    from stellwerk.scheduling.state import Attempt, WorkloadState


def start(book: Book, workload: WorkloadState, quick: Quick) -> bool:
    """Start a workload if its cell is free; if it is entered in a line it still is."""
    counts, need = quick
    taken = counts.cut(need)
    if taken is None:
        return False
    unit, grants = taken
    demand, attempts = workload.demand, workload.attempts
    key, number = demand.key, len(attempts) + 1
    attempts.append(attempt_of(number, 0, grants, book.state.now))
    workload.phase = "starting"
    unit.held[key] = need.cell
    order = StartAttempt(key, number, 0, grants)
    book.out.append(order)
    if number > 1 or demand.limits is not NO_LIMITS:
        book.started(workload)
    return True


def end(book: Book, workload: WorkloadState, attempt: Attempt, event: AttemptEnded) -> bool:
    """End a workload whose attempt succeeded, if it held a cell or one unit."""
    grants = attempt.grants
    if event.outcome != "succeeded" or len(grants) != 1 or workload.phase == "stopping":
        return False
    lane = book.lanes.get(grants[0].pool)
    unit = lane.counts.uncut(grants[0]) if lane is not None and lane.counts is not None else None
    if lane is None or unit is None:
        return False
    key, state = event.workload, book.state
    held = unit.held
    del held[key]
    if not held:
        unit.idle_since = state.now
    if lane.classes:
        book.dirty[lane] = None
    workload.phase = "ended"
    if book.forget and not book.timers.due:
        del state.workloads[key]
        return True
    attempt.finished, attempt.outcome = state.now, "succeeded"
    attempt.message, attempt.exit_code = event.message or attempt.message, event.exit_code
    workload.finished, workload.outcome = state.now, "succeeded"
    book.ended(workload)
    return True
