"""What the core knows: workloads, attempts and units.

The state is a fold over the log of events and changes nowhere but in `Scheduler.handle`. Everything here is plain
data that can be compared, copied and written down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stellwerk.scheduling.model import Cause, Demand, Fleet, Grant, Outcome, Pool, Queue, Reason

WorkloadPhase = Literal["waiting", "starting", "running", "stopping", "ended"]
UnitPhase = Literal["provisioning", "up", "broken", "recycling", "releasing"]


@dataclass(slots=True)
class Attempt:
    """One try: what it holds and how it went. `began` is when it was granted, `running` when its code began."""

    number: int
    option: int
    grants: tuple[Grant, ...]
    began: float
    running: float | None = None
    stopping: float | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""
    exit_code: int | None = None

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the units held, each once, in grant order."""
        return tuple(dict.fromkeys(grant.unit for grant in self.grants))


@dataclass(slots=True)
class WorkloadState:
    """A workload and all its attempts; the last attempt is the live one while `phase` is not waiting or ended.

    `waiting_since` restarts with every return to the queue, `hold_until` keeps it there after a failure,
    `stop_cause` is why the core (or a person) is stopping the live attempt. `failures` counts the user's own,
    `setbacks` those of the infrastructure since the last progress.
    """

    demand: Demand
    submitted: float
    order: int
    phase: WorkloadPhase = "waiting"
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    waiting_since: float = 0.0
    hold_until: float = 0.0
    failures: int = 0
    setbacks: int = 0
    checkpoint: str | None = None
    checkpoint_at: float | None = None
    checkpoint_step: int | None = None
    stop_cause: Cause | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""
    reasons: tuple[tuple[Reason, ...], ...] = ()

    @property
    def key(self) -> str:
        """The demand's key."""
        return self.demand.key

    @property
    def live(self) -> Attempt | None:
        """The attempt that holds units now, if any."""
        return self.attempts[-1] if self.phase in ("starting", "running", "stopping") else None

    @property
    def retries_left(self) -> int:
        """How many more of the user's own failures are tried again."""
        return max(0, self.demand.retries - self.failures)


@dataclass(slots=True)
class UnitState:
    """A unit: its incarnation, health, and who holds how many of its chips (by workload key)."""

    name: str
    pool: str
    incarnation: int
    phase: UnitPhase
    chips: int
    hosts: int
    since: float
    hosts_down: set[int] = field(default_factory=set[int])
    held: dict[str, int] = field(default_factory=dict[str, int])
    idle_since: float = 0.0
    leaving: bool = False
    detail: str = ""

    @property
    def free(self) -> int:
        """Chips that could be granted now."""
        return self.chips - sum(self.held.values()) if self.phase == "up" and not self.leaving else 0

    @property
    def idle(self) -> bool:
        """Whole and wholly free."""
        return self.phase == "up" and not self.held and not self.leaving


@dataclass(slots=True)
class CoolDown:
    """A pool whose provider refused a unit; it is not asked again before `until`."""

    until: float
    code: str
    detail: str


@dataclass(slots=True)
class State:
    """Everything, at the time of the last event."""

    now: float = 0.0
    fleet: Fleet = field(default_factory=Fleet)
    pools: dict[str, Pool] = field(default_factory=dict[str, Pool])
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    workloads: dict[str, WorkloadState] = field(default_factory=dict[str, WorkloadState])
    units: dict[str, UnitState] = field(default_factory=dict[str, UnitState])
    incarnations: dict[str, int] = field(default_factory=dict[str, int])
    cool_downs: dict[str, CoolDown] = field(default_factory=dict[str, CoolDown])
    submissions: int = 0
    wake_at: float | None = None
