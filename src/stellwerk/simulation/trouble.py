"""The simulated world where units come and go, hosts fail, spot units are taken away and providers have none left.

How a failure becomes events (the draws are those of `stellwerk.simulation.failing`):

* a host is lost: `HostChanged`; the scheduler stops the gang at once, which keeps what its last complete
  checkpoint holds. The unit that is rebuilt is whole when its pool's provisioning time is over *and* all its hosts
  are
  back;
* a spot unit is noticed: `DrainNoticed`, and `UnitGone` at the deadline. A gang that is told saves its state if
the notice
  is long enough for it;
* a stock-out: every order of a unit is refused while it lasts.

What happens to a unit that is not there is ignored. Attempts save as `stellwerk.simulation.costs` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from stellwerk.scheduling.commands import Command, ProvisionUnit, RecycleUnit, ReleaseUnit, StartAttempt, StopAttempt
from stellwerk.scheduling.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointReported,
    DrainNoticed,
    Event,
    HostChanged,
    ProvisionRefused,
    UnitAppeared,
    UnitGone,
    Woke,
)
from stellwerk.scheduling.model import Fleet
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.simulation.costs import Costs
from stellwerk.simulation.driver import INF, Job, Observer
from stellwerk.simulation.failing import Failure, failure_events
from stellwerk.simulation.failures import Failures
from stellwerk.simulation.world import UnitSpan, World

END, UNIT, _GONE, _SAVED, BEGUN, _STOPPED = range(6)
_PATIENCE = 50.0


class TroubledWorld(World):
    """A run in which units come and go, and break as `failures` says; everything drawn follows from `seed`."""

    def __init__(
        self,
        fleet: Fleet,
        jobs: Sequence[Job],
        costs: Costs,
        failures: Failures | None = None,
        seed: int = 0,
        explained: int = 0,
        scheduler: Scheduler | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.costs = costs
        self.failed: dict[str, int] = {}
        self._failures = failure_events(failures, fleet.pools, seed) if failures is not None else iter(())
        self._history: dict[str, list[tuple[float, str]]] = {}
        self._pools: dict[str, str] = {}
        self._down: dict[str, set[int]] = {}
        self._rebuilding: dict[str, tuple[str, int, float]] = {}
        self._out_of_stock: set[str] = set()
        self._running = 0
        super().__init__(fleet, jobs, costs.restart.of, explained, scheduler, observer)

    def units(self) -> Iterator[UnitSpan]:
        """What all units were, from when to when."""
        for unit, phases in self._history.items():
            for (began, phase), (ended, _) in pairwise([*phases, (self.now, "")]):
                if phase and ended > began:
                    yield UnitSpan(unit, self._pools[unit], phase, began, ended)

    def run(self, until: float = INF) -> None:
        """Go on until all is done, nothing can happen any more, or nothing is got done any more."""
        horizon = min(until, self._horizon())
        position, submissions, times = 0, self.submissions, self._agenda.times
        failure = next(self._failures, None)
        while not self._over(position):
            at_submit = submissions[position].at if position < len(submissions) else INF
            at_agenda = times[0] if times else INF
            at_failure = failure.at if failure is not None else INF
            now = min(at_submit, at_agenda, self._wake, at_failure)
            if now == INF or now > horizon:
                return
            self.now = max(self.now, now)
            if at_agenda == now:
                self._due()
            elif at_failure == now and failure is not None:
                self._fail(failure)
                failure = next(self._failures, None)
            elif self._wake == now:
                self._wake = INF
                self._tell(Woke(now))
            else:
                self._tell(submissions[position])
                position += 1

    def _over(self, position: int) -> bool:
        """Whether only failures are left."""
        if position < len(self.submissions) or self._running:
            return False
        return not self.scheduler.book.waiting or not (self._agenda.times or self._rebuilding or self._wake < INF)

    def _horizon(self) -> float:
        """When a job that is cut off again and again is given up."""
        last = self.submissions[-1].at if self.submissions else 0.0
        work = sum(job.duration * job.demand.options[0].chips for job in self.jobs.values())
        chips = sum(pool.chips * pool.maximum for pool in self.fleet.pools)
        longest = max((job.duration for job in self.jobs.values()), default=0.0)
        return last + _PATIENCE * (longest + work / max(1, chips) + 86400.0)

    def _due(self) -> None:
        kind, key, number = self._agenda.pop()
        event = self._event(kind, key, number)
        if event is not None:
            self._tell(event)

    def _event(self, kind: int, key: str, number: int) -> Event | None:
        match kind:
            case 0:
                event = self._ended(key, number)
                self._running -= event is not None
                return event
            case 1:
                return self._whole(key, number)
            case 2:
                return self._taken(key, number)
            case 3:
                return self._saved(key, number)
            case 4:
                return AttemptStarted(self.now, key, number) if self.jobs[key].attempts == number else None
            case _:
                self._running -= 1
                return AttemptEnded(self.now, key, number, "stopped", "infrastructure")

    # Units

    def _obey(self, commands: Iterable[Command]) -> None:
        commands = list(commands)
        for command in commands:
            if type(command) is ReleaseUnit:
                self._note(command.unit, "")
                self._down.pop(command.unit, None)
        super()._obey(commands)

    def _provision(self, command: ProvisionUnit | RecycleUnit) -> None:
        pool, unit, incarnation = command.pool, command.unit, command.incarnation
        self._pools[unit] = pool
        rebuilt = type(command) is RecycleUnit
        if pool in self._out_of_stock and not rebuilt:
            self.failed["refused"] = self.failed.get("refused", 0) + 1
            self._pending.append(ProvisionRefused(self.now, pool, unit, incarnation, "stock-out"))
            return
        wait = 0.0 if self.opening else self.scheduler.state.pools[pool].provision
        self._note(unit, "broken" if rebuilt else "provisioning")
        if rebuilt:
            self._rebuilding[unit] = (pool, incarnation, self.now + wait)
        if not wait and not self._down.get(unit):
            self._pending.append(self._appeared(pool, unit, incarnation))
        else:
            self._agenda.put(self.now + wait, UNIT, f"{pool}\0{unit}", incarnation)

    def _whole(self, name: str, incarnation: int) -> Event | None:
        pool, unit = name.split("\0")
        known = self.scheduler.state.units.get(unit)
        late = known is None or known.incarnation != incarnation or known.phase not in ("provisioning", "recycling")
        return None if late or self._down.get(unit) else self._appeared(pool, unit, incarnation)

    def _appeared(self, pool: str, unit: str, incarnation: int) -> Event:
        self._rebuilding.pop(unit, None)
        self._note(unit, "up")
        return UnitAppeared(self.now, pool, unit, incarnation)

    def _note(self, unit: str, phase: str) -> None:
        self._history.setdefault(unit, []).append((self.now, phase))

    # Failures

    def _fail(self, failure: Failure) -> None:
        if failure.kind == "stock-out":
            self._out_of_stock.add(failure.pool)
        elif failure.kind == "in-stock":
            self._out_of_stock.discard(failure.pool)
        else:
            name = f"{failure.pool}-{failure.unit}"
            unit = self.scheduler.state.units.get(name)
            if unit is None or unit.phase in ("provisioning", "releasing"):
                return
            if failure.kind == "preempted":
                self._notice(name, unit.incarnation, failure.deadline or self.now)
            elif failure.host is not None:
                self._host(name, unit.incarnation, failure.host, failure.kind == "host-up")

    def _host(self, name: str, incarnation: int, host: int, up: bool) -> None:
        down = self._down.setdefault(name, set())
        if up:
            down.discard(host)
        else:
            down.add(host)
            self.failed["hosts"] = self.failed.get("hosts", 0) + 1
            if self._history[name][-1][1] == "up":
                self._note(name, "broken")
        self._tell(HostChanged(self.now, name, incarnation, host, up))
        rebuilding = self._rebuilding.get(name)
        if up and not down and rebuilding is not None and rebuilding[2] <= self.now:
            self._tell(self._appeared(rebuilding[0], name, rebuilding[1]))

    def _notice(self, name: str, incarnation: int, deadline: float) -> None:
        self.failed["spot"] = self.failed.get("spot", 0) + 1
        self._agenda.put(deadline, _GONE, name, incarnation)
        self._tell(DrainNoticed(self.now, name, incarnation, deadline))

    def _taken(self, name: str, incarnation: int) -> Event | None:
        unit = self.scheduler.state.units.get(name)
        if unit is None or unit.incarnation != incarnation:
            return None
        self._note(name, "")
        self._down.pop(name, None)
        self._rebuilding.pop(name, None)
        return UnitGone(self.now, name, incarnation, "taken away")

    # Attempts

    def _start(self, command: StartAttempt) -> None:
        job, now, key, number = self.jobs[command.workload], self.now, command.workload, command.attempt
        chips = sum(grant.chips for grant in command.grants)
        resumed = job.start is not None
        if job.start is None:
            job.start, job.left = now, job.duration
        job.cost = self._overhead(job, chips, resumed)
        job.began, job.attempts = now, number
        self._running += 1
        self._starts.append((command, now, job.cost))
        self._agenda.put(now + job.cost + self.costs.checkpoints.span(job.left), END, key, number)
        if job.cost:
            self._agenda.put(now + job.cost, BEGUN, key, number)
        else:
            self._pending.append(AttemptStarted(now, key, number))
        self._push_saving(job, key, number)

    def _overhead(self, job: Job, chips: int, resumed: bool) -> float:
        """Seconds before an attempt works."""
        return self.costs.overhead(chips, resumed)

    def _push_saving(self, job: Job, key: str, number: int) -> None:
        """The next complete checkpoint, if there is one before the end."""
        saving = self.costs.checkpoints
        if saving.every is None:
            return
        stretch = saving.every + saving.cost
        count = round((self.now - job.began - job.cost) / stretch) if self.now > job.began else 0
        if (count + 1) * saving.every < job.left:
            self._agenda.put(job.began + job.cost + (count + 1) * stretch, _SAVED, key, number)

    def _saved(self, key: str, number: int) -> Event | None:
        job = self.jobs[key]
        if job.attempts != number:
            return None
        self._push_saving(job, key, number)
        return CheckpointReported(self.now, key, number, "memory://")

    def _stop(self, command: StopAttempt) -> None:
        job, now, key, number = self.jobs[command.workload], self.now, command.workload, command.attempt
        if job.attempts != number:
            return
        saving = self.costs.checkpoints
        warned = command.grace > 0 and command.grace >= saving.cost
        end = now + saving.cost if warned else now
        working = now - job.began - job.cost
        kept = saving.done(working) if warned else saving.saved(working)
        job.busy += end - job.began
        job.left -= min(job.left, kept)
        job.attempts = -number
        self._stops[key, number] = end
        self.preemptions += command.cause == "preempted"
        if kept and warned:
            self._pending.append(CheckpointReported(now, key, number, "memory://"))
        if end > now:
            self._agenda.put(end, _STOPPED, key, number)
        else:
            self._running -= 1
            self._pending.append(AttemptEnded(now, key, number, "stopped", command.cause))
