"""What makes one policy differ from another, as data: the order inside a queue, and whether shorter work may pass.

The same cycle runs every policy; a policy's own module says what it means and holds what only it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

from stellwerk.scheduling.model import Demand, Fleet, PolicyName
from stellwerk.scheduling.policy.lines import AgeLine, HeapLine, Line, PassLine
from stellwerk.scheduling.state import WorkloadState

INF: Final = float("inf")

PROMISES = 4
"""How many of those who wait in a lane are told when they start (see `policy.promises`); the first's is kept."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`order`: what comes first within a priority; `backfill`: whether later work may pass a blocked one; `fair`:
    whether queues are ordered by the share that they use; `places`: how many places in the line one chip is worth among
    those who may pass, as larger work finds its room more rarely; `displaces`: whether the first stops those who run
    and come after it.
    """

    order: Literal["age", "runtime", "area"]
    backfill: bool
    fair: bool
    places: int = 0
    displaces: bool = False

    def line(self) -> Line:
        """A line for one class."""
        if self.backfill:
            return PassLine()
        return AgeLine() if self.order == "age" else HeapLine()

    def key(self, workload: WorkloadState, now: float) -> float:
        """What orders a class's line before age does."""
        if self.order == "age":
            return 0.0
        return remaining(workload) if self.order == "runtime" else area_key(workload, remaining(workload), now)


RULES: dict[PolicyName, Rules] = {
    "fifo": Rules("age", backfill=False, fair=False),
    "sjf": Rules("runtime", backfill=False, fair=False),
    "backfill": Rules("age", backfill=True, fair=False),
    "default": Rules("age", backfill=True, fair=True, places=28),
}


_SJF_PREEMPTIVE = Rules("area", backfill=False, fair=False, displaces=True)

AGEING = 0.02
"""What a second of age is worth against a second of remaining time on one chip, in `sjf` with preemption."""

STRETCH, LEAST, UNKNOWN = 13.0, 3600.0, 30 * 86_400.0
"""In `sjf` with preemption a workload is old after so many times its estimate, at least `LEAST` seconds, and after
`UNKNOWN` seconds without one."""

OLD = 1e12
"""What being old is worth: more than any remaining work."""


def rules_for(policy: PolicyName, preempt: bool) -> Rules:
    """The rules of a policy; `sjf` has others where it may preempt."""
    return _SJF_PREEMPTIVE if policy == "sjf" and preempt else RULES[policy]


def by_share(fleet: Fleet) -> bool:
    """Whether queues are ordered by the share that they use.

    They are by the policy that says so, and wherever queues have orders of different kinds, since ages and runtimes
    cannot be compared; but not where the first stops those who come after it, which needs one order of all.
    """
    rules = rules_for(fleet.policy, fleet.preempt)
    if not fleet.queues or rules.displaces:
        return False
    return rules.fair or any(queue.policy and RULES[queue.policy].order != rules.order for queue in fleet.queues)


def area_key(workload: WorkloadState, seconds: float, now: float) -> float:
    """The order of `sjf` with preemption (see `policy.sjf`), for a workload of which so many seconds remain."""
    age = AGEING * workload.submitted
    return age - OLD if now >= old_at(workload) else seconds * sqrt(workload.demand.options[0].chips) + age


def old_at(workload: WorkloadState) -> float:
    """When a workload is old, and comes before all that were submitted after it (see `policy.sjf`)."""
    return workload.submitted + old_after(workload.demand)


def old_after(demand: Demand) -> float:
    """The age (s) from which on a workload is old."""
    whole = estimate(demand, 0)
    return UNKNOWN if whole == INF else max(LEAST, STRETCH * whole)


def estimate(demand: Demand, option: int) -> float:
    """Seconds that an attempt on this option takes at most, as far as anybody said; `inf` when nobody did."""
    runtime = demand.options[option].runtime
    if runtime is None:
        runtime = demand.runtime
    limit = demand.limits.run
    if runtime is None:
        return INF if limit is None else limit
    return runtime if limit is None else min(runtime, limit)


def remaining(workload: WorkloadState, option: int = 0) -> float:
    """The estimate less what the last checkpoint keeps, at least a second."""
    whole = estimate(workload.demand, option)
    return whole if not workload.worked else max(1.0, whole - workload.worked)
