"""Limits of a workload: how long it may wait, start and run, and what it may cost.

`wait` counts from each return to the queue, `start` from the grant, `run` over the running time of the live
attempt, `cost` over all attempts at the pools' prices (for emulated hardware, what it would cost).
"""

from __future__ import annotations

from collections.abc import Iterator

from stellwerk.scheduling.commands import StopAttempt
from stellwerk.scheduling.lifecycle import end, stop
from stellwerk.scheduling.model import Cause
from stellwerk.scheduling.state import Attempt, State, WorkloadState

GRACE = 10.0
"""Seconds that code past a limit has to save its state."""


def enforce(state: State) -> Iterator[StopAttempt]:
    """End what is past a limit at the state's time."""
    for workload in state.workloads.values():
        cause = _exceeded(state, workload)
        if cause == "wait-limit":
            end(
                workload,
                state.now,
                "failed",
                cause,
                f"waited {workload.demand.limits.wait:.0f} s without starting",
            )
        elif cause is not None:
            yield stop(state, workload, cause, GRACE if cause != "start-limit" else 0.0)


def times(state: State) -> Iterator[float]:
    """When the limits of all live workloads are reached."""
    for workload in state.workloads.values():
        yield from (time for _, time in _reached_at(state, workload))


def price_per_hour(state: State, attempt: Attempt) -> float:
    """US dollars per hour of what an attempt holds; unknown prices count as nothing."""
    total = 0.0
    for grant in attempt.grants:
        pool = state.pools.get(grant.pool)
        total += grant.chips * (pool.price or 0.0) if pool else 0.0
    return total


def _exceeded(state: State, workload: WorkloadState) -> Cause | None:
    if workload.phase not in ("waiting", "starting", "running"):
        return None
    return next((cause for cause, time in _reached_at(state, workload) if time <= state.now), None)


def _reached_at(state: State, workload: WorkloadState) -> Iterator[tuple[Cause, float]]:
    limits = workload.demand.limits
    if workload.phase == "waiting" and limits.wait is not None:
        yield "wait-limit", workload.waiting_since + limits.wait
    if workload.phase not in ("starting", "running"):
        return
    attempt = workload.attempts[-1]
    if workload.phase == "starting" and limits.start is not None:
        yield "start-limit", attempt.began + limits.start
    if attempt.running is not None and limits.run is not None:
        yield "run-limit", attempt.running + limits.run
    if limits.cost is not None and (rate := price_per_hour(state, attempt)):
        spent = sum(_cost(state, earlier) for earlier in workload.attempts[:-1])
        yield "cost-limit", attempt.began + max(0.0, limits.cost - spent) * 3600.0 / rate


def _cost(state: State, attempt: Attempt) -> float:
    return price_per_hour(state, attempt) * ((attempt.finished or state.now) - attempt.began) / 3600.0
