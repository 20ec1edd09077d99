"""The simulated world with a memory: what held which chips from when to when.

`World` is for fleets whose units are all there from the start and never break; `stellwerk.simulation.trouble` is for
all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stellwerk.scheduling.commands import ProvisionUnit, RecycleUnit, StopAttempt
from stellwerk.scheduling.events import UnitAppeared
from stellwerk.scheduling.model import Fleet, Grant, Pool
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.simulation.driver import Job, Observer, Run


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt: it held `grants` from `began` to `ended` (s), and spent the first `overhead` seconds on its
    restart."""

    job: Job
    number: int
    began: float
    ended: float
    overhead: float
    grants: tuple[Grant, ...]

    @property
    def chips(self) -> int:
        """Chips held."""
        return sum(grant.chips for grant in self.grants)


class UnitSpan(NamedTuple):
    """A unit was in one phase, `up`, `broken` or `provisioning`, from `began` to `ended` (s)."""

    unit: str
    pool: str
    phase: str
    began: float
    ended: float


class World(Run):
    """A run of a fleet that is always whole; `spans` and `units` tell its history."""

    def __init__(
        self,
        fleet: Fleet,
        jobs: Sequence[Job],
        restart: Callable[[int], float],
        explained: int = 0,
        scheduler: Scheduler | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`restart` is what a resumed attempt of so many chips loses (s); `explained` as for `Scheduler`."""
        scheduler = scheduler or Scheduler(explained=explained, forget=True)
        self.fleet = fleet
        self.opening = True
        self._stops: dict[tuple[str, int], float] = {}
        super().__init__(fleet, jobs, restart=restart, scheduler=scheduler, observer=observer)
        self.opening = False

    def spans(self) -> Iterator[Span]:
        """All attempts in the order of their starts; those that still run end now."""
        for command, began, overhead in self._starts:
            job = self.jobs[command.workload]
            ended = self._stops.get((command.workload, command.attempt))
            if ended is None:
                ended = job.end if job.end is not None else self.now
            yield Span(job, command.attempt, began, ended, min(overhead, ended - began), command.grants)

    def units(self) -> Iterator[UnitSpan]:
        """What all units were, from when to when."""
        for pool in self.fleet.pools:
            for index in range(pool.minimum):
                yield UnitSpan(f"{pool.name}-{index}", pool.name, "up", 0.0, self.now)

    def _stop(self, command: StopAttempt) -> None:
        self._stops[command.workload, command.attempt] = self.now
        super()._stop(command)

    def _provision(self, command: ProvisionUnit | RecycleUnit) -> None:
        if self.opening:  # what a pool always has is there from the start
            self._pending.append(UnitAppeared(self.now, command.pool, command.unit, command.incarnation))
        else:
            super()._provision(command)


def steady(pools: Sequence[Pool]) -> bool:
    """Whether these pools neither grow nor shrink, and their units stay."""
    return all(pool.minimum == pool.maximum and pool.lifetime is None for pool in pools)
