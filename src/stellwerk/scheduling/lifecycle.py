"""The life of a workload: granted, returned to the queue, ended.

Whatever ends an attempt gives back everything it held in the same step, so a waiting workload holds nothing.
"""

from __future__ import annotations

from stellwerk.scheduling.commands import StartAttempt, StopAttempt
from stellwerk.scheduling.events import AttemptEnded
from stellwerk.scheduling.model import Cause, Grant, Outcome
from stellwerk.scheduling.state import Attempt, State, WorkloadState

MOST_SETBACKS = 20
"""Infrastructure failures in a row, without progress, after which a workload is ended rather than tried for ever."""

PROGRESS = 600.0
"""Seconds of running that count as progress for a workload that reports no checkpoints."""


def grant(state: State, workload: WorkloadState, option: int, grants: tuple[Grant, ...]) -> StartAttempt:
    """Give `grants` to a waiting workload and order its next attempt."""
    for one in grants:
        held = state.units[one.unit].held
        held[workload.key] = held.get(workload.key, 0) + one.chips
    attempt = Attempt(len(workload.attempts) + 1, option, grants, state.now)
    workload.attempts.append(attempt)
    workload.phase, workload.reasons, workload.stop_cause = "starting", (), None
    return StartAttempt(workload.key, attempt.number, option, grants)


def stop(state: State, workload: WorkloadState, cause: Cause, grace: float) -> StopAttempt:
    """Order the end of the live attempt; the first cause stays, but for a person's wish, which is final."""
    attempt = workload.attempts[-1]
    if workload.stop_cause is None or cause == "stopped-by-user":
        workload.stop_cause = cause
    if attempt.stopping is None:
        attempt.stopping = state.now
    workload.phase = "stopping"
    return StopAttempt(workload.key, attempt.number, workload.stop_cause, grace)


def attempt_ended(state: State, workload: WorkloadState, event: AttemptEnded) -> None:
    """Give back what the live attempt held, then end the workload or return it to the queue."""
    attempt = workload.attempts[-1]
    _give_back(state, workload, attempt)
    cause = None if event.outcome == "succeeded" else (workload.stop_cause or event.cause or "infrastructure")
    outcome = event.outcome if cause is None else _outcome(cause)
    attempt.finished, attempt.outcome, attempt.cause = state.now, outcome, cause
    attempt.message, attempt.exit_code = event.message, event.exit_code
    if outcome == "failed" and _again(workload, attempt, cause):
        workload.phase, workload.waiting_since, workload.stop_cause = "waiting", state.now, None
        workload.hold_until = state.now + _pause(workload.setbacks)
    else:
        end(workload, state.now, outcome, cause, event.message)


def end(workload: WorkloadState, now: float, outcome: Outcome, cause: Cause | None, message: str = "") -> None:
    """The workload is over."""
    workload.phase, workload.finished, workload.reasons = "ended", now, ()
    workload.outcome, workload.cause, workload.message = outcome, cause, message
    workload.stop_cause = None


def _outcome(cause: Cause) -> Outcome:
    return "stopped" if cause == "stopped-by-user" else "failed"


def _again(workload: WorkloadState, attempt: Attempt, cause: Cause | None) -> bool:
    """Whether a failed attempt is followed by another; counts the failure where it belongs."""
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


def _give_back(state: State, workload: WorkloadState, attempt: Attempt) -> None:
    for name in attempt.units:
        unit = state.units.get(name)
        if unit is not None and unit.held.pop(workload.key, None) is not None and not unit.held:
            unit.idle_since = state.now
