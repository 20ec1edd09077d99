"""Limits of a workload: how long it may wait, start and run, and what it may cost.

`wait` counts from each return to the queue, `start` from the grant, `run` over the running time of the live
attempt, `cost` over all attempts at the pools' prices (for emulated hardware, what it would cost).
"""

from __future__ import annotations

from collections.abc import Iterator

from stellwerk.scheduling import explain
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.lifecycle import end, stop
from stellwerk.scheduling.model import NO_LIMITS, Cause
from stellwerk.scheduling.spending import price_per_hour, spent
from stellwerk.scheduling.state import State, WorkloadState

GRACE = 10.0
"""Seconds that code past a limit has to save its state."""


def enforce(book: Book, workload: WorkloadState) -> None:
    """End a workload that is past a limit at the state's time."""
    if workload.demand.limits is NO_LIMITS or workload.phase not in ("waiting", "starting", "running"):
        return
    now = book.state.now
    cause: Cause | None = next((cause for cause, time in times(book.state, workload) if time <= now), None)
    if cause == "wait-limit":
        end(book, workload, "failed", cause, _waited(book, workload))
    elif cause is not None:
        stop(book, workload, cause, GRACE if cause != "start-limit" else 0.0)


def _waited(book: Book, workload: WorkloadState) -> str:
    """What somebody waited for in vain: the reasons of the last moment, one for each option."""
    why = [option[0].message for option in explain.why(book, workload) if option]
    limit = workload.demand.limits.wait or 0.0
    return f"waited {limit:.0f} s without starting" + (f": {'; '.join(dict.fromkeys(why))}" if why else "")


def times(state: State, workload: WorkloadState) -> Iterator[tuple[Cause, float]]:
    """When each limit that counts now is reached."""
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
        since = attempt.began if attempt.settled_at is None else attempt.settled_at
        before = attempt.spent + sum(spent(state, earlier) for earlier in workload.attempts[:-1])
        yield "cost-limit", since + max(0.0, limits.cost - before) * 3600.0 / rate
