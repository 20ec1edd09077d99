"""The simulated world that goes on from a moment of a real one.

It takes over a scheduler that has learnt a log so far, and the workloads as they stood then: those that ran go on for
what was left to them, units that were being made or rebuilt become ready when their pool's provisioning time is over,
orders that had not been answered are. From then on it is told what people did (submissions, stops, changes of the
fleet), and answers the scheduler as `stellwerk.simulation.trouble` does.

A duration belongs to the option that it was seen or drawn on. A workload that is granted another option takes as much
longer or shorter as the estimates of the two say, and as long where they say nothing.

Limits: nothing breaks and no order is refused. Once nothing but time is left to happen, the world goes on for `QUIET`
more, in which limits and fallbacks come due, and ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stellwerk.scheduling.commands import StartAttempt, StopAttempt
from stellwerk.scheduling.events import (
    AttemptEnded,
    Event,
    FleetChanged,
    UnitGone,
    Woke,
)
from stellwerk.scheduling.model import Fleet, Pool
from stellwerk.scheduling.policy.rules import estimate
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import UnitState, WorkloadState
from stellwerk.simulation.costs import Costs
from stellwerk.simulation.driver import INF, Job
from stellwerk.simulation.trouble import BEGUN, END, UNIT, TroubledWorld

QUIET = 7 * 86_400.0
"""Seconds that a world goes on in which only time passes."""

HORIZON = 10 * 365 * 86_400.0
"""Seconds after the last submission at which a world ends whatever happens in it."""

_SHOWN = {"up": "up", "broken": "broken", "recycling": "broken", "provisioning": "provisioning", "releasing": ""}
_TRIED_AGAIN = ("preempted", "infrastructure")


@dataclass(slots=True)
class KnownJob(Job):
    """A job whose `duration` (and what is `left` of it) is that on option number `option`.

    Each attempt takes `starting` seconds from its grant until its code begins.
    """

    option: int = 0
    starting: float = 0.0


class ContinuedWorld(TroubledWorld):
    """A run that begins at the time `at` (s) in the state of `scheduler`, which it makes its own.

    `jobs` are all workloads that live then or are submitted later, `told` what people do after it, in order of time.
    """

    def __init__(
        self, scheduler: Scheduler, at: float, fleet: Fleet, jobs: Sequence[KnownJob], told: Iterable[Event]
    ) -> None:
        self._began = at
        self._told = list(told)
        self.pools: dict[str, Pool] = {}
        super().__init__(fleet, jobs, Costs(), scheduler=scheduler)

    @property
    def started_at(self) -> float:
        """When the world began (s)."""
        return self._began

    def run(self, until: float = INF) -> None:
        """Go on until all is done, or only time passes."""
        position, told, alive, times = 0, self.submissions, self.now, self._agenda.times
        end = min(until, (told[-1].at if told else self.now) + HORIZON)
        while not self._over(position):
            at_told = told[position].at if position < len(told) else INF
            at_agenda = times[0] if times else INF
            now = min(at_told, at_agenda, self._wake)
            if now == INF or now > end or (at_told == at_agenda == INF and now > alive + QUIET):
                return
            self.now = max(self.now, now)
            if at_agenda == now:
                self._due()
            elif self._wake == now:
                self._wake = INF
                self._tell(Woke(self.now))
            else:
                self._tell(told[position])
                position += 1
            alive = self.now if min(at_told, at_agenda) == now else alive

    def _open(self, fleet: Fleet) -> None:
        """Take the state up, then tell of the fleet as it is to be from now on."""
        state = self.scheduler.state
        self.now, self.submissions = self._began, self._told
        self.opening = not state.pools
        if state.wake_at is not None:
            self._wake = max(self.now, state.wake_at)
        for unit in state.units.values():
            self._take_unit(unit)
        for workload in sorted(state.workloads.values(), key=lambda workload: workload.order):
            self._take_workload(workload)
        super()._open(fleet)

    def _take_unit(self, unit: UnitState) -> None:
        self._pools[unit.name] = unit.pool
        self._note(unit.name, _SHOWN[unit.phase])
        pool = self.scheduler.state.pools.get(unit.pool)
        self.pools |= {} if pool is None else {pool.name: pool}
        if unit.phase in ("provisioning", "recycling"):
            ready = max(self.now, unit.since + (pool.provision if pool is not None else 0.0))
            self._agenda.put(ready, UNIT, f"{unit.pool}\0{unit.name}", unit.incarnation)
        elif unit.phase == "releasing":
            self._pending.append(UnitGone(self.now, unit.name, unit.incarnation))

    def _take_workload(self, workload: WorkloadState) -> None:
        attempt = workload.live
        if attempt is None:
            return
        key, number, job = workload.key, attempt.number, self.jobs[workload.key]
        if workload.phase == "stopping":
            if workload.stop_cause not in _TRIED_AGAIN:
                job.end = self.now
            self._pending.append(AttemptEnded(self.now, key, number, "stopped", workload.stop_cause))
            return
        if workload.phase == "starting" and isinstance(job, KnownJob):
            job.cost = max(0.0, attempt.began + job.starting - self.now)
            self._agenda.put(self.now + job.cost, BEGUN, key, number)
        self._running += 1
        self._starts.append((StartAttempt(key, number, attempt.option, attempt.grants), self.now, job.cost))
        self._agenda.put(self.now + job.cost + job.left, END, key, number)

    def _tell(self, event: Event) -> None:
        if isinstance(event, FleetChanged):
            self.pools |= {pool.name: pool for pool in event.fleet.pools}
        super()._tell(event)

    def _start(self, command: StartAttempt) -> None:
        job = self.jobs[command.workload]
        if isinstance(job, KnownJob) and job.option != command.option:
            factor = _factor(job, command.option)
            job.duration, job.left, job.option = job.duration * factor, job.left * factor, command.option
        super()._start(command)

    def _overhead(self, job: Job, chips: int, resumed: bool) -> float:
        return super()._overhead(job, chips, resumed) + (job.starting if isinstance(job, KnownJob) else 0.0)

    def _stop(self, command: StopAttempt) -> None:
        job = self.jobs[command.workload]
        stopped = job.attempts == command.attempt
        super()._stop(command)
        if stopped and command.cause not in _TRIED_AGAIN:
            job.end = self._stops[command.workload, command.attempt]


def _factor(job: KnownJob, option: int) -> float:
    """How much longer a job takes on another option."""
    here, there = estimate(job.demand, job.option), estimate(job.demand, option)
    return there / here if 0 < here < INF and there < INF else 1.0
