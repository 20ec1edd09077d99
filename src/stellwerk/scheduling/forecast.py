"""When waiting workloads will start and finish, as p50 and p90.

The same core is run forward from a copy of the live state, `samples` times: what runs ends and what waits runs after
durations that are drawn, and every decision on the way is the scheduler's own. A duration is drawn as the user's
estimate
times a ratio that such estimates turned out to have (or, without an estimate, as a duration that such work had), from
the most particular group of ended workloads that is large enough: same user and name, user and kind, user, kind,
all. Of what already runs only ratios that it has not outlived are drawn. The draws are seeded: the same state and
history give the same forecast.

A forecast is not a promise. Limits: nothing new is submitted on the way, units do not fail, and a workload that
has not
started within `HORIZON`, or whose duration nothing is known about, has no time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.model import Demand
from stellwerk.scheduling.policy.rules import estimate
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import WorkloadState

HORIZON = 90 * 86_400.0
ENOUGH = 8
"""Ended workloads that a group must have to be drawn from."""

MOST_KEPT = 256
"""Ended workloads that a group remembers, the latest."""

PRIOR = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
"""Duration over estimate, as long as nothing is known: users estimate more than they need."""

INF = float("inf")
Group = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Times (s) of the start and the end: half and nine tenths of the drawn futures lie before; None when unknown."""

    start_p50: float | None
    start_p90: float | None
    finish_p50: float | None
    finish_p90: float | None


class History:
    """What ended workloads took, by groups from the particular to the general."""

    def __init__(self) -> None:
        self._ratios: defaultdict[Group, list[float]] = defaultdict(list[float])
        self._durations: defaultdict[Group, list[float]] = defaultdict(list[float])

    def learn(self, demand: Demand, option: int, duration: float) -> None:
        """Note that a workload succeeded after running for `duration` seconds in all."""
        said = estimate(demand, option)
        for group in _groups(demand):
            _keep(self._durations[group], duration)
            if said < INF:
                _keep(self._ratios[group], duration / max(1.0, said))

    def draw(self, demand: Demand, option: int, ran: float, rng: random.Random) -> float | None:
        """A whole duration (s) of at least `ran`; None when nothing is known."""
        said = estimate(demand, option)
        if said < INF:
            ratios = self._of(self._ratios, demand) or PRIOR
            longer = [ratio for ratio in ratios if ratio * said > ran]
            return said * rng.choice(longer) if longer else ran + max(60.0, ran * 0.5 * rng.random())
        longer = [each for each in self._of(self._durations, demand) if each > ran]
        return rng.choice(longer) if longer else None

    def _of(self, known: dict[Group, list[float]], demand: Demand) -> list[float]:
        groups = (known[group] for group in _groups(demand) if group in known)
        return next((found for found in groups if len(found) >= ENOUGH), list[float]())


def forecast(
    scheduler: Scheduler,
    history: History,
    *,
    submit: Iterable[Demand] = (),
    samples: int = 20,
    seed: int = 0,
    horizon: float = HORIZON,
) -> dict[str, Outlook]:
    """The outlook of every waiting workload, and of those in `submit` as if they were submitted now; by key."""
    extra = list(submit)
    starts: defaultdict[str, list[float]] = defaultdict(list[float])
    ends: defaultdict[str, list[float]] = defaultdict(list[float])
    asked = [*scheduler.book.waiting, *(demand.key for demand in extra)]
    for sample in range(samples):
        future = _Future(scheduler.copy(), history, random.Random(f"{seed}/{sample}"), horizon)
        future.run(extra, set(asked))
        for key in asked:
            starts[key].append(future.starts.get(key, INF))
            ends[key].append(future.ends.get(key, INF))
    return {key: _outlook(starts[key], ends[key]) for key in asked}


class _Future:
    """One way that things may go on."""

    def __init__(self, scheduler: Scheduler, history: History, rng: random.Random, horizon: float) -> None:
        self.scheduler, self._history, self._rng = scheduler, history, rng
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self._until = scheduler.state.now + horizon
        self._heap: list[tuple[float, int, ev.Event]] = []
        self._count = 0
        self._wake: float | None = scheduler.state.wake_at

    def run(self, submit: list[Demand], asked: set[str]) -> None:
        """Go on until all that were asked for have started, or the horizon is reached."""
        state = self.scheduler.state
        for workload in sorted(state.workloads.values(), key=lambda workload: workload.order):
            self._foresee(workload)
        for unit in state.units.values():
            if unit.phase in ("provisioning", "recycling") and unit.pool in state.pools:
                at = max(state.now, unit.since + state.pools[unit.pool].provision)
                self._later(at, ev.UnitAppeared(at, unit.pool, unit.name, unit.incarnation))
            elif unit.phase == "releasing":
                self._later(state.now, ev.UnitGone(state.now, unit.name, unit.incarnation))
        for demand in submit:
            self._handle(ev.Submitted(state.now, demand))
        while not asked <= self.starts.keys():
            event = self._next()
            if event is None or event.at > self._until:
                return
            self._handle(event)

    def _foresee(self, workload: WorkloadState) -> None:
        attempt = workload.live
        if attempt is None:
            return
        now = self.scheduler.state.now
        if attempt.settled != attempt.resizes:
            self._later(now, ev.AttemptResized(now, workload.key, attempt.number, attempt.resizes))
        ran = workload.worked + now - (attempt.running if attempt.running is not None else attempt.began)
        if workload.phase == "stopping":
            self._later(now, ev.AttemptEnded(now, workload.key, attempt.number, "stopped", workload.stop_cause))
            return
        whole = self._history.draw(workload.demand, attempt.option, ran, self._rng)
        if whole is not None and workload.demand.kind not in ("serve", "cluster"):
            at = now + max(0.0, whole - ran)
            self._later(at, ev.AttemptEnded(at, workload.key, attempt.number, "succeeded"))

    def _later(self, at: float, event: ev.Event) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, event))

    def _next(self) -> ev.Event | None:
        if self._wake is not None and (not self._heap or self._wake < self._heap[0][0]):
            at, self._wake = self._wake, None
            return ev.Woke(at)
        return heappop(self._heap)[2] if self._heap else None

    def _handle(self, event: ev.Event) -> None:
        for command in self.scheduler.handle(event):
            self._obey(command)

    def _obey(self, command: cmd.Command) -> None:
        now, pools = self.scheduler.state.now, self.scheduler.state.pools
        match command:
            case cmd.StartAttempt():
                self._start(command)
            case cmd.StopAttempt(key, number, cause):
                self._later(now, ev.AttemptEnded(now, key, number, "stopped", cause))
            case cmd.ResizeAttempt(key, number, resize):
                self._later(now, ev.AttemptResized(now, key, number, resize))
            case cmd.ProvisionUnit(pool, unit, incarnation) | cmd.RecycleUnit(pool, unit, incarnation):
                at = now + (pools[pool].provision if pool in pools else 0.0)
                self._later(at, ev.UnitAppeared(at, pool, unit, incarnation))
            case cmd.ReleaseUnit(unit, incarnation):
                self._later(now, ev.UnitGone(now, unit, incarnation))
            case cmd.WakeAt(at):
                self._wake = at

    def _start(self, command: cmd.StartAttempt) -> None:
        state = self.scheduler.state
        workload = state.workloads[command.workload]
        self.starts.setdefault(command.workload, state.now)
        self._later(state.now, ev.AttemptStarted(state.now, command.workload, command.attempt))
        whole = self._history.draw(workload.demand, command.option, workload.worked, self._rng)
        if whole is None or workload.demand.kind in ("serve", "cluster"):
            return
        at = state.now + max(0.0, whole - workload.worked)
        self.ends[command.workload] = at
        self._later(at, ev.AttemptEnded(at, command.workload, command.attempt, "succeeded"))


def _outlook(starts: list[float], ends: list[float]) -> Outlook:
    return Outlook(_quantile(starts, 0.5), _quantile(starts, 0.9), _quantile(ends, 0.5), _quantile(ends, 0.9))


def _quantile(values: list[float], share: float) -> float | None:
    """The least value with at least `share` of all at or below it; None when that is not known."""
    ordered = sorted(values)
    found = ordered[min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1)]
    return None if found == INF else found


def _groups(demand: Demand) -> tuple[Group, ...]:
    return (
        ("user-name", demand.user, demand.name),
        ("user-kind", demand.user, demand.kind),
        ("user", demand.user),
        ("kind", demand.kind),
        ("all",),
    )


def _keep(values: list[float], value: float) -> None:
    values.append(value)
    if len(values) > MOST_KEPT:
        del values[0]
