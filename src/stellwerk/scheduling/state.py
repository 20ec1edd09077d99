"""What the core knows: workloads, attempts and units.

The state is a fold over the log of events and changes nowhere but in `Scheduler.handle`. Everything here is plain
data that can be compared, copied and written down. The two records that are made for every workload have a function
that makes them instead of a constructor, which costs less where the core is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from stellwerk.scheduling.model import Cause, Demand, Fleet, Grant, Outcome, Pool, Queue, Reason

WorkloadPhase = Literal["waiting", "starting", "running", "stopping", "ended"]
UnitPhase = Literal["provisioning", "up", "broken", "recycling", "releasing"]


@dataclass(init=False, slots=True)
class Attempt:
    """One try: what it holds and how it went. `began` is when it was granted, `running` when its code began.

    `stopping` is when it was first told to stop, `stop_by` the time until which its code may still save something.
    `expected` is when it would end by its estimate, None without one; `resizes` counts the orders to resize it,
    `settled` is the last that was carried out, and `leaving` holds what it was told to leave and has not left yet.
    `spent` is what it had cost (US dollars) at `settled_at`, when what it holds changed last; None while it never did.
    """

    number: int
    option: int
    grants: tuple[Grant, ...]
    began: float
    running: float | None = None
    stopping: float | None = None
    stop_by: float | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""
    exit_code: int | None = None
    expected: float | None = None
    resizes: int = 0
    settled: int = 0
    leaving: tuple[Grant, ...] = ()
    spent: float = 0.0
    settled_at: float | None = None

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the units held, each once, in grant order."""
        return tuple(dict.fromkeys(grant.unit for grant in self.grants))


@dataclass(slots=True)
class Departure:
    """A waiting workload left an option at `at`, because of `code`: `limit` (its patience), or the refusal's code."""

    at: float
    option: int
    code: str


@dataclass(init=False, slots=True)
class WorkloadState:
    """A workload and all its attempts; the last attempt is the live one while `phase` is not waiting or ended.

    `waiting_since` restarts with every return to the queue, `hold_until` keeps it there after a failure, `stop_cause`
    is why the core (or a person) is stopping the live attempt, `stop_for` the key of the workload that a preempted one
    makes room for, `reclaims` whether borrowers were stopped for a waiting one, `made_room` when anybody was last.
    `failures` counts the user's own, `setbacks` those of the infrastructure since the last progress. `worked` is the
    running time (s) that the last checkpoint keeps. `promise` is the latest start that was promised while it waits;
    `departures` are the options it left. `load` is what a serving workload told last.
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
    worked: float = 0.0
    checkpoint: str | None = None
    checkpoint_at: float | None = None
    checkpoint_step: int | None = None
    stop_cause: Cause | None = None
    stop_for: str | None = None
    reclaims: bool = False
    made_room: float | None = None
    promise: float | None = None
    load: float | None = None
    load_low_since: float | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    message: str = ""
    reasons: tuple[tuple[Reason, ...], ...] = ()
    departures: tuple[Departure, ...] = ()

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
    """A unit: its incarnation, health, and who holds how many of its chips (by workload key).

    `meant` is the key of the waiting workload for which it was made, until anyone is granted it.
    """

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
    meant: str | None = None

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
class Share:
    """What a queue uses: its `dominant` share (0..1) since `at`, and the decayed average until then."""

    dominant: float = 0.0
    average: float = 0.0
    at: float = 0.0


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
    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    submissions: int = 0
    wake_at: float | None = None


def attempt_of(number: int, option: int, grants: tuple[Grant, ...], began: float) -> Attempt:
    """An attempt that was granted just now."""
    made = Attempt()
    made.number, made.option, made.grants, made.began = number, option, grants, began
    made.running = made.stopping = made.stop_by = made.finished = None
    made.outcome = made.cause = made.exit_code = made.expected = made.settled_at = None
    made.message = ""
    made.resizes = made.settled = 0
    made.leaving = ()
    made.spent = 0.0
    return made


def workload_of(demand: Demand, submitted: float, order: int, waiting_since: float) -> WorkloadState:
    """A workload that waits and was never tried."""
    made = WorkloadState()
    made.demand, made.submitted, made.order, made.waiting_since = demand, submitted, order, waiting_since
    made.phase = "waiting"
    made.attempts = []
    made.hold_until = made.worked = 0.0
    made.failures = made.setbacks = 0
    made.checkpoint = made.checkpoint_at = made.checkpoint_step = made.stop_cause = made.stop_for = None
    made.made_room = made.promise = made.load = made.load_low_since = None
    made.finished = made.outcome = made.cause = None
    made.reclaims = False
    made.message = ""
    made.reasons = ()
    made.departures = ()
    return made


def copied(state: State, *, ended: bool = True) -> State:
    """A state of its own with the same content; without the workloads that have ended, if they are not wanted."""
    made = replace(state)
    made.workloads = {
        key: _copied(workload) for key, workload in state.workloads.items() if ended or workload.phase != "ended"
    }
    made.units = {
        name: replace(unit, held=dict(unit.held), hosts_down=set(unit.hosts_down)) for name, unit in state.units.items()
    }
    made.pools, made.queues = dict(state.pools), dict(state.queues)
    made.incarnations, made.cool_downs = dict(state.incarnations), dict(state.cool_downs)
    made.shares = {name: replace(share) for name, share in state.shares.items()}
    return made


def _copied(one: WorkloadState) -> WorkloadState:
    made = workload_of(one.demand, one.submitted, one.order, one.waiting_since)
    made.phase, made.attempts = one.phase, [_copied_attempt(attempt) for attempt in one.attempts]
    made.hold_until, made.worked, made.failures, made.setbacks = one.hold_until, one.worked, one.failures, one.setbacks
    made.checkpoint, made.checkpoint_at, made.checkpoint_step = one.checkpoint, one.checkpoint_at, one.checkpoint_step
    made.stop_cause, made.stop_for, made.reclaims = one.stop_cause, one.stop_for, one.reclaims
    made.made_room, made.promise = one.made_room, one.promise
    made.load, made.load_low_since = one.load, one.load_low_since
    made.finished, made.outcome, made.cause, made.message = one.finished, one.outcome, one.cause, one.message
    made.reasons, made.departures = one.reasons, one.departures
    return made


def _copied_attempt(one: Attempt) -> Attempt:
    made = attempt_of(one.number, one.option, one.grants, one.began)
    made.running, made.stopping, made.stop_by = one.running, one.stopping, one.stop_by
    made.finished, made.outcome, made.cause, made.message = one.finished, one.outcome, one.cause, one.message
    made.exit_code, made.expected = one.exit_code, one.expected
    made.resizes, made.settled, made.leaving = one.resizes, one.settled, one.leaving
    made.spent, made.settled_at = one.spent, one.settled_at
    return made
