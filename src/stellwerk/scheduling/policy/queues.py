"""Who goes first, and what a queue may hold.

The order is priority, then age. A queue's quota caps the chips per accelerator that its live attempts hold; an
accelerator that the quota does not name is not capped. `borrow` raises every cap by that many chips.
"""

from __future__ import annotations

from collections import Counter

from stellwerk.scheduling.model import Option, Queue, Reason
from stellwerk.scheduling.state import State, WorkloadState


def waiting_in_order(state: State) -> list[WorkloadState]:
    """Waiting workloads, the one to be served first in front."""
    waiting = [workload for workload in state.workloads.values() if workload.phase == "waiting"]
    return sorted(waiting, key=lambda workload: (-workload.demand.priority, workload.order))


def usage(state: State, queue: str) -> Counter[str]:
    """Chips per accelerator that the live attempts of `queue` hold."""
    held: Counter[str] = Counter()
    for workload in state.workloads.values():
        attempt = workload.live
        if attempt is not None and workload.demand.queue == queue:
            for part in workload.demand.options[attempt.option].parts:
                held[part.accelerator] += part.count * part.chips
    return held


def queue_of(state: State, name: str) -> Queue | None:
    """The queue of that name; undeclared names exist, unlimited, only in a fleet that declares no queues."""
    return state.queues.get(name) or (Queue(name) if not state.queues else None)


def over_quota(queue: Queue, held: Counter[str], option: Option) -> Reason | None:
    """Why `option` would take `queue` over what it may hold, or None."""
    asked: Counter[str] = Counter()
    for part in option.parts:
        asked[part.accelerator] += part.count * part.chips
    for accelerator, quota in queue.quota or ():
        cap = quota + (queue.borrow or 0)
        if asked[accelerator] and held[accelerator] + asked[accelerator] > cap:
            message = (
                f"queue {queue.name} may hold {cap} chips of {accelerator}, "
                f"holds {held[accelerator]}, and this needs {asked[accelerator]}"
            )
            code = "impossible" if asked[accelerator] > cap else "quota"
            numbers = (
                ("accelerator", accelerator),
                ("quota", cap),
                ("held", held[accelerator]),
                ("needed", asked[accelerator]),
            )
            return Reason(code, message, numbers)
    return None
