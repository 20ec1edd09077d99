"""The life of a workload: stopped, returned to the queue, ended.

Whatever ends an attempt gives back everything it held in the same step, so a waiting workload holds nothing.
"""

from __future__ import annotations

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.commands import StopAttempt
from stellwerk.scheduling.events import AttemptEnded
from stellwerk.scheduling.model import Cause, Outcome
from stellwerk.scheduling.state import Attempt, WorkloadState

MOST_SETBACKS = 20
"""Infrastructure failures in a row, without progress, after which a workload is ended rather than tried for ever."""

PROGRESS = 600.0
"""Seconds of running that count as progress for a workload that reports no checkpoints."""


def stop(book: Book, workload: WorkloadState, cause: Cause, grace: float) -> None:
    """Order the end of the live attempt; the first cause stays, but for a person's wish, which is final."""
    attempt, now = workload.attempts[-1], book.state.now
    if workload.stop_cause is None or cause == "stopped-by-user":
        workload.stop_cause = cause
    if attempt.stopping is None:
        attempt.stopping = now
    attempt.stop_by = now + grace if attempt.stop_by is None else min(attempt.stop_by, now + grace)
    workload.phase = "stopping"
    book.out.append(StopAttempt(workload.key, attempt.number, workload.stop_cause, grace))
    book.schedule(workload)


def attempt_ended(book: Book, workload: WorkloadState, attempt: Attempt, event: AttemptEnded) -> None:
    """Give back what the live attempt held, then end the workload or return it to the queue."""
    outcome, cause = event.outcome, None
    if outcome != "succeeded":
        cause = workload.stop_cause or event.cause or "infrastructure"
        outcome = "stopped" if cause == "stopped-by-user" else "failed"
        attempt.cause = cause
    if workload.stop_for is not None:
        book.unclaim(workload.stop_for)
    workload.phase = "ended"
    attempt.finished, attempt.outcome = book.state.now, outcome
    if event.message:
        attempt.message = event.message
    if event.exit_code is not None:
        attempt.exit_code = event.exit_code
    book.release(workload, attempt)
    if outcome == "failed" and _again(workload, attempt, cause):
        _wait_again(book, workload)
    else:
        _over(book, workload, outcome, cause, event.message)


def end(book: Book, workload: WorkloadState, outcome: Outcome, cause: Cause | None, message: str = "") -> None:
    """A waiting workload is over."""
    workload.phase = "ended"
    book.leave(workload)
    _over(book, workload, outcome, cause, message)


def end_impossible(book: Book, workload: WorkloadState, message: str) -> None:
    """A workload that was never entered in a line is over: no option could ever be granted."""
    _over(book, workload, "failed", "impossible", message)


def _over(book: Book, workload: WorkloadState, outcome: Outcome, cause: Cause | None, message: str) -> None:
    workload.phase, workload.finished, workload.outcome = "ended", book.state.now, outcome
    if cause is not None:
        workload.cause, workload.message, workload.reasons = cause, message, ()
        workload.stop_cause = workload.stop_for = workload.promise = None
    book.ended(workload)


def _wait_again(book: Book, workload: WorkloadState) -> None:
    now = book.state.now
    workload.phase, workload.waiting_since, workload.stop_cause, workload.stop_for = "waiting", now, None, None
    workload.hold_until = now + _pause(workload.setbacks)
    workload.departures = ()
    book.wait(workload)


def _again(workload: WorkloadState, attempt: Attempt, cause: Cause | None) -> bool:
    """Whether a failed attempt is followed by another; counts the failure where it belongs."""
    if cause == "preempted":
        return True
    if cause == "infrastructure":
        ran = attempt.finished - attempt.running if attempt.finished and attempt.running is not None else 0.0
        saved = workload.checkpoint_at is not None and workload.checkpoint_at >= attempt.began
        workload.setbacks = 1 if saved or ran >= PROGRESS else workload.setbacks + 1
        return workload.setbacks < MOST_SETBACKS
    if cause in ("user-error", "out-of-memory"):
        workload.failures, workload.setbacks = workload.failures + 1, 0
        return workload.failures <= workload.demand.retries
    return False


def _pause(setbacks: int) -> float:
    """Seconds before the next attempt: none after the first setback, then doubling up to a minute."""
    return 0.0 if setbacks <= 1 else min(60.0, 2.0 ** (setbacks - 2))
