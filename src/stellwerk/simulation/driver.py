"""The world in virtual time: it answers the scheduler's orders as a perfect provider and backend would, and at once.

A job runs for its `duration` on whatever it is granted. A stopped one keeps what it has done (it saves a checkpoint
when told to stop) and pays `restart` seconds at its next start; units take their pool's provisioning time. Events at
one time are handed in in a fixed order: ends, then units, then the wake, then submissions, so that what a job leaves
can be had by one that comes at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.scheduling.commands import (
    Command,
    ProvisionUnit,
    RecycleUnit,
    ReleaseUnit,
    ResizeAttempt,
    StartAttempt,
    StopAttempt,
)
from stellwerk.scheduling.events import (
    AttemptEnded,
    AttemptResized,
    CheckpointReported,
    Event,
    FleetChanged,
    Submitted,
    UnitAppeared,
    UnitGone,
    Woke,
    success,
)
from stellwerk.scheduling.model import Demand, Fleet
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.simulation.agenda import Agenda

_END: Final = 0
_UNIT: Final = 1
INF: Final = float("inf")
Observer = Callable[[Event, Sequence[Command]], None]


def no_cost(chips: int) -> float:
    """Restarts are free."""
    return 0.0


@dataclass(slots=True)
class Job:
    """A submission and how long it really takes (s); what became of it is written here.

    `start` is the first start, `busy` the seconds that it held chips (restarts included).
    """

    at: float
    demand: Demand
    duration: float
    start: float | None = None
    end: float | None = None
    busy: float = 0.0
    attempts: int = 0
    left: float = field(default=0.0)
    began: float = 0.0
    cost: float = 0.0


class Run:
    """One simulation: a scheduler, the jobs it is told of, and the time."""

    def __init__(
        self,
        fleet: Fleet,
        jobs: Sequence[Job],
        *,
        restart: Callable[[int], float] = no_cost,
        scheduler: Scheduler | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`restart` is what a resumed attempt of so many chips loses (s); `observer` is told of every event with the
        orders that followed, before they are carried out."""
        self.scheduler = scheduler or Scheduler(explained=0, forget=True)
        self.jobs = {job.demand.key: job for job in jobs}
        self.submissions: list[Event] = [Submitted(job.at, job.demand) for job in jobs]
        self._moments = [job.at for job in jobs]  # an event may be of any kind: its time costs a look-up when compiled
        self.now = jobs[0].at if jobs else 0.0
        self.preemptions: int = 0
        self.events = 0
        self.observer = observer
        self._restart = restart
        self._agenda = Agenda()
        self._starts: list[tuple[StartAttempt, float, float]] = []
        self._wake = INF
        self._pending: list[Event] = []
        self._open(fleet)

    def _open(self, fleet: Fleet) -> None:
        """Tell the scheduler of the fleet, before anything else."""
        self._tell(FleetChanged(self.now, fleet))

    def run(self, until: float = INF) -> None:
        """Go on until nothing happens any more, or until the time `until`."""
        submissions, moments, pending = self.submissions, self._moments, self._pending
        agenda, times = self._agenda, self._agenda.times
        scheduler, observer = self.scheduler, self.observer
        waiting = scheduler.book.waiting
        position, most = 0, len(submissions)
        next_submit = moments[0] if most else INF
        bound = self._bound(next_submit, until)
        while True:
            if times and times[0] <= bound:
                self.now = times[0]
                kind, key, number = agenda.pop()
                event = self._unit(key, number) if kind else self._ended(key, number)
                if event is None:
                    continue
            elif next_submit < self._wake:
                if next_submit > until:
                    return
                event = submissions[position]
                self.now = next_submit
                position += 1
                next_submit = moments[position] if position < most else INF
                bound = self._bound(next_submit, until)
            else:
                if self._wake > until or self._wake == INF:
                    return
                self.now, self._wake = self._wake, INF
                event = Woke(self.now)
                bound = self._bound(next_submit, until)
            commands = scheduler.handle(event)
            if observer is not None:
                observer(event, commands)
            for command in commands:
                if isinstance(command, StartAttempt):
                    self._start(command)
                else:
                    self._obey((command,))
                    bound = self._bound(next_submit, until)
            if pending:
                self._answer()
                bound = self._bound(next_submit, until)
            if not times and position == most and not waiting:
                return

    def _bound(self, next_submit: float, until: float) -> float:
        """Until when nothing but the agenda happens."""
        bound = next_submit if next_submit < until else until
        return self._wake if self._wake < bound else bound

    def _tell(self, event: Event) -> None:
        self._handle(event)
        self._answer()

    def _handle(self, event: Event) -> None:
        self.events += 1
        commands = self.scheduler.handle(event)
        if self.observer is not None:
            self.observer(event, commands)
        self._obey(commands)

    def _answer(self) -> None:
        pending = self._pending
        while pending:
            batch = pending[:]
            pending.clear()
            for event in batch:
                self._handle(event)

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, StartAttempt):
                self._start(command)
            elif isinstance(command, StopAttempt):
                self._stop(command)
            elif isinstance(command, ProvisionUnit | RecycleUnit):
                self._provision(command)
            elif isinstance(command, ReleaseUnit):
                self._pending.append(UnitGone(self.now, command.unit, command.incarnation))
            elif isinstance(command, ResizeAttempt):
                self._pending.append(AttemptResized(self.now, command.workload, command.attempt, command.resize))
            else:
                self._order(command)

    def _order(self, command: Command) -> None:
        at = getattr(command, "at", None)
        if at is not None:
            self._wake = at

    def _start(self, command: StartAttempt) -> None:
        key, number, now = command.workload, command.attempt, self.now
        job = self.jobs[key]
        if job.start is None:
            job.start, job.left = now, job.duration
        else:
            job.cost = self._restart(sum(grant.chips for grant in command.grants))
        job.began, job.attempts, cost = now, number, job.cost
        self._agenda.put(now + cost + job.left, _END, key, number)
        self._starts.append((command, now, cost))

    def _stop(self, command: StopAttempt) -> None:
        job, now = self.jobs[command.workload], self.now
        if command.attempt != job.attempts:
            return
        ran = now - job.began
        job.busy += ran
        job.left -= max(0.0, ran - job.cost)
        job.attempts = -command.attempt
        self.preemptions += 1
        self._pending.append(CheckpointReported(now, command.workload, command.attempt, "memory://"))
        self._pending.append(AttemptEnded(now, command.workload, command.attempt, "stopped", command.cause))

    def _ended(self, key: str, number: int) -> Event | None:
        job = self.jobs[key]
        if job.attempts != number:
            return None
        now = self.now
        job.end = now
        job.busy += now - job.began
        return success(now, key, number)

    def _provision(self, command: ProvisionUnit | RecycleUnit) -> None:
        wait = self.scheduler.state.pools[command.pool].provision
        if not wait:
            self._pending.append(UnitAppeared(self.now, command.pool, command.unit, command.incarnation))
            return
        name = f"{command.pool}\0{command.unit}"
        self._agenda.put(self.now + wait, _UNIT, name, command.incarnation)

    def _unit(self, name: str, incarnation: int) -> Event:
        pool, unit = name.split("\0")
        return UnitAppeared(self.now, pool, unit, incarnation)
