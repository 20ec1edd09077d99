"""The world in virtual time: it answers the scheduler's orders as a perfect provider and backend would, and at once.

A job runs for its `duration` on whatever it is granted. A stopped one keeps what it has done (it saves a checkpoint
when told to stop) and pays `restart` seconds at its next start; units take their pool's provisioning time. Events at
one time are handed in in a fixed order: ends, then units, then the wake, then submissions, so that what a job leaves
can be had by one that comes at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from stellwerk.scheduling.commands import Command, ProvisionUnit, RecycleUnit, ReleaseUnit, StartAttempt, StopAttempt
from stellwerk.scheduling.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointReported,
    Event,
    FleetChanged,
    Submitted,
    UnitAppeared,
    UnitGone,
    Woke,
)
from stellwerk.scheduling.frozen import twin
from stellwerk.scheduling.model import Demand, Fleet
from stellwerk.scheduling.scheduler import Scheduler

_END, _UNIT = 0, 1
_Ended = twin(AttemptEnded)
INF = float("inf")
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
        report_starts: bool = False,
        scheduler: Scheduler | None = None,
    ) -> None:
        """`report_starts` tells the scheduler when an attempt's code begins; needed where limits count from it."""
        self.scheduler = scheduler or Scheduler(explained=0, forget=True)
        self.jobs = {job.demand.key: job for job in jobs}
        self.submissions = [Submitted(job.at, job.demand) for job in jobs]
        self.now = jobs[0].at if jobs else 0.0
        self.preemptions = 0
        self.events = 0
        self.observer: Observer | None = None
        """Told of every event of `run` with the orders that followed, before they are carried out."""
        self._restart, self._report_starts = restart, report_starts
        self._heap: list[tuple[float, int, int, str, int]] = []
        self._sequence = 0
        self._wake = INF
        self._pending: list[Event] = []
        self._tell(FleetChanged(self.now, fleet))

    def run(self, until: float = INF) -> None:
        """Go on until nothing happens any more, or until the time `until`."""
        submissions, heap = self.submissions, self._heap
        position, count = 0, len(submissions)
        next_submit = submissions[0].at if count else INF
        handle = self.scheduler.handle if self.observer is None else self._observed(self.observer)
        obey, pending, book = self._obey, self._pending, self.scheduler.book
        while True:
            next_end = heap[0][0] if heap else INF
            if next_end <= next_submit and next_end <= self._wake:
                if next_end > until or next_end == INF:
                    return
                self.now, kind, _, key, number = heappop(heap)
                if kind == _END:
                    event = self._ended(key, number)
                    if event is None:
                        continue
                else:
                    event = self._unit(key, number)
            elif self._wake <= next_submit:
                if self._wake > until:
                    return
                self.now, self._wake = self._wake, INF
                event = Woke(self.now)
            else:
                if next_submit > until:
                    return
                event = submissions[position]
                self.now = next_submit
                position += 1
                next_submit = submissions[position].at if position < count else INF
            commands = handle(event)
            if commands:
                obey(commands)
                if pending:
                    self._answer()
            if not heap and position == count and not book.waiting:
                return

    def _observed(self, observer: Observer) -> Callable[[Event], list[Command]]:
        handle = self.scheduler.handle

        def observed(event: Event) -> list[Command]:
            commands = handle(event)
            observer(event, commands)
            return commands

        return observed

    def _tell(self, event: Event) -> None:
        self.events += 1
        handle = self.scheduler.handle if self.observer is None else self._observed(self.observer)
        self._obey(handle(event))
        self._answer()

    def _answer(self) -> None:
        pending = self._pending
        handle = self.scheduler.handle if self.observer is None else self._observed(self.observer)
        while pending:
            batch = pending[:]
            pending.clear()
            for event in batch:
                self.events += 1
                self._obey(handle(event))

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
            else:
                self._order(command)

    def _order(self, command: Command) -> None:
        at = getattr(command, "at", None)
        if at is not None:
            self._wake = at

    def _start(self, command: StartAttempt) -> None:
        job, now = self.jobs[command.workload], self.now
        if job.start is None:
            job.start, job.left, job.cost = now, job.duration, 0.0
        else:
            job.cost = self._restart(sum(grant.chips for grant in command.grants))
        job.began, job.attempts = now, command.attempt
        self._sequence += 1
        heappush(self._heap, (now + job.cost + job.left, _END, self._sequence, command.workload, command.attempt))
        if self._report_starts:
            self._pending.append(AttemptStarted(now, command.workload, command.attempt))

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
        job.end = self.now
        job.busy += self.now - job.began
        event = _Ended(self.now, key, number, "succeeded")
        event.__class__ = AttemptEnded
        return event

    def _provision(self, command: ProvisionUnit | RecycleUnit) -> None:
        wait = self.scheduler.state.pools[command.pool].provision
        if not wait:
            self._pending.append(UnitAppeared(self.now, command.pool, command.unit, command.incarnation))
            return
        self._sequence += 1
        name = f"{command.pool}\0{command.unit}"
        heappush(self._heap, (self.now + wait, _UNIT, self._sequence, name, command.incarnation))

    def _unit(self, name: str, incarnation: int) -> Event:
        pool, unit = name.split("\0")
        return UnitAppeared(self.now, pool, unit, incarnation)
