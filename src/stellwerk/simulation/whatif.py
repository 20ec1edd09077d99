"""A site's log replayed with a change, beside what is.

Both sides are the same replay of the same events, but for the change:

* until `since` the log is folded as it is. With `since` at its start nothing is: the whole log is replayed as if the
  change had always been. With `since` now the change comes now, to the very state that there is;
* from then on the world is simulated (`stellwerk.simulation.continued`): people submit, stop what waits and declare
  fleets when they did, and a workload that is over runs as long as it ran, all attempts together;
* what is not over yet goes on into the future, for as long as is drawn: from the user's estimate and from what such
  work took in this log, as forecasts do (`stellwerk.scheduling.history.History`). Both sides draw the same durations.
  There are `samples` futures; where nothing needs to be drawn one is enough.

A start takes as long as the workload's starts took, or as all took on average. A replay is not the past: nothing breaks
in it (what broke is in the running times), and orders of units are not refused. So what is stands as the same replay
too, and a change of nothing differs by nothing.

Figures are over the workloads of the log that had not started by `since`, in all futures together; what is submitted by
the change is told apart. `utilization` is the share of all chips that is held from `since` until, as it is, the last
workload starts. `cost` is that of all units from `since` until both sides are done.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from stellwerk.scheduling.events import Event, FleetChanged, StopRequested, Submitted
from stellwerk.scheduling.history import History
from stellwerk.scheduling.model import Demand, Fleet
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import WorkloadState
from stellwerk.simulation.changed import Change
from stellwerk.simulation.collector import collected_later
from stellwerk.simulation.continued import ContinuedWorld, KnownJob
from stellwerk.simulation.outcome import distribution
from stellwerk.simulation.traces.log import Recorded, folded, last_option, running_time
from stellwerk.simulation.world import Span

SAMPLES = 20
_MOST_REPLAYED = 30_000
_FEWEST = 3
INF = float("inf")
_ENDLESS = ("serve", "cluster")
Watch = Callable[[int, int], None]
"""Told how many replays are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Times are those of the log (s); `since` None is its start, `now` is when it ends.

    `samples` None: 20, less for long logs. `assumed` is how long (s) that takes of which nothing is known; None: it has
    no end. `named` are workloads to be told of besides those that are not over.
    """

    change: Change
    now: float
    since: float | None = None
    samples: int | None = None
    seed: int = 0
    assumed: float | None = None
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Start and end (s): half and nine tenths of the futures lie before; None where that many do not come to it."""

    start: tuple[float | None, float | None] = (None, None)
    finish: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Line:
    """A workload on both sides; `as_it_is` is None for one that only the change submits."""

    name: str
    state: str
    submitted: float
    as_it_is: Times | None
    changed: Times


@dataclass(frozen=True, slots=True)
class Figures:
    """One side: `started` and `ended` count workloads, as means over the futures where they differ."""

    chips: int
    utilization: float | None
    wait_s: dict[str, float | None]
    completion_s: dict[str, float | None]
    started: float
    ended: float
    preemptions: float
    cost: float | None

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides. `replayed` workloads were simulated, `open` of them drawn, `unknown` taken to have no end."""

    since: float
    now: float
    samples: int
    replayed: int
    open: int
    unknown: int
    as_it_is: Figures
    changed: Figures
    lines: tuple[Line, ...]


def what_if(
    recorded: Recorded, question: Question, watch: Watch | None = None, full: Scheduler | None = None
) -> Comparison:
    """Replay a log with a change and without. `watch` is told of every replay that is done.

    `full` is the scheduler that has learnt the whole log, where it is known already; it is not changed.
    """
    asked = _Asked(recorded.events, question, full or folded(recorded.events))
    sides = (_Side(Change()), _Side(question.change))
    for sample in range(asked.samples):
        durations = asked.durations(sample)
        worlds = [asked.world(side.change, durations) for side in sides]
        for number, world in enumerate(worlds):
            with collected_later():
                world.run()
            if watch is not None:
                watch(2 * sample + number + 1, 2 * asked.samples)
        _note(asked, sides, worlds)
    as_it_is, changed = (side.figures() for side in sides)
    return Comparison(
        since=asked.since,
        now=question.now,
        samples=asked.samples,
        replayed=len(asked.replayed),
        open=len(asked.open),
        unknown=asked.unknown,
        as_it_is=as_it_is,
        changed=changed,
        lines=tuple(asked.lines(*sides)),
    )


class _Asked:
    """A question made ready: the state at which the replay begins, and what is known of every workload."""

    def __init__(self, events: Sequence[Event], question: Question, full: Scheduler) -> None:
        self.question = question
        first = events[0].at if events else question.now
        self.since = first if question.since is None else min(max(question.since, first), question.now)
        past = 0 if self.since <= first else sum(event.at <= self.since for event in events)
        self.events = events[past:]
        self.full = full
        self.begin = self.full if past == len(events) else folded(events[:past])
        self.history = _learnt(self.full.state.workloads.values())
        starts = [start for each in self.full.state.workloads.values() for start in _starts(each)]
        self.starting = math.fsum(starts) / len(starts) if starts else 0.0

    @cached_property
    def replayed(self) -> list[WorkloadState]:
        """Workloads that were not over when the replay begins, as they are at the end of the log."""
        begun = self.begin.state.workloads
        all_of_them = self.full.state.workloads.values()
        return [each for each in all_of_them if each.key not in begun or begun[each.key].phase != "ended"]

    @cached_property
    def open(self) -> list[WorkloadState]:
        """Workloads whose running time nobody knows yet: they are not over, or never ran."""
        return [each for each in self.replayed if not _is_known(each)]

    @cached_property
    def samples(self) -> int:
        """How many futures there are."""
        if not self.open and not self.question.change.submit:
            return 1
        if self.question.samples is not None:
            return self.question.samples
        return max(_FEWEST, min(SAMPLES, _MOST_REPLAYED // max(1, len(self.replayed))))

    @cached_property
    def unknown(self) -> int:
        """How many are taken to have no end, as nothing is known of their running time."""
        demands = [each.demand for each in self.open] + list(self.question.change.submit)
        durations = self.durations(0)
        return sum(durations[each.key] == INF and each.kind not in _ENDLESS for each in demands)

    def durations(self, sample: int) -> dict[str, float]:
        """How long everything whose running time is not known takes in one future (s), by key."""
        now = self.question.now
        drawn = {each.key: self._drawn(each.demand, last_option(each), _kept(each, now), sample) for each in self.open}
        new = {demand.key: self._drawn(demand, 0, 0.0, sample) for demand in self.question.change.submit}
        return drawn | new

    def _drawn(self, demand: Demand, option: int, ran: float, sample: int) -> float:
        if demand.kind in _ENDLESS:
            return INF
        rng = random.Random(f"{self.question.seed}/{sample}/{demand.key}")
        drawn = self.history.draw(demand, option, ran, rng.random())
        if drawn is not None:
            return drawn
        return INF if self.question.assumed is None else max(self.question.assumed, ran + 1.0)

    def world(self, change: Change, durations: dict[str, float]) -> ContinuedWorld:
        """The world of one side and one future, before it runs."""
        jobs = [self._job(each, durations) for each in self.replayed]
        jobs += [
            KnownJob(self.question.now, demand, durations[demand.key], starting=self.starting)
            for demand in change.submit
        ]
        fleet, told = self._told(change)
        fresh = not self.begin.state.pools
        scheduler = Scheduler(explained=0, forget=True) if fresh else self.begin.copy()
        return ContinuedWorld(scheduler, self.since, fleet, jobs, told)

    def _told(self, change: Change) -> tuple[Fleet, list[Event]]:
        """The fleet at the beginning, and what people do after it."""
        never_ran = {each.key for each in self.open}
        fleet, told = self.begin.state.fleet, list[Event]()
        if not fleet.pools:
            fleet = next((event.fleet for event in self.events if isinstance(event, FleetChanged)), fleet)
        latest, opened = fleet, bool(self.begin.state.pools)
        for event in self.events:
            if isinstance(event, FleetChanged):
                if opened:
                    told.append(replace(event, fleet=change.apply(event.fleet)))
                latest, opened = event.fleet, True
            elif isinstance(event, Submitted):
                told.append(self._as_known(event))
            elif isinstance(event, StopRequested) and event.workload in never_ran:
                told.append(event)
        if change.submit:
            now, grown = self.question.now, change.grow(change.apply(latest))
            told += [FleetChanged(now, grown)] if change.grown else []
            told += [Submitted(now, demand) for demand in change.submit]
        return change.apply(fleet), told

    def _as_known(self, event: Submitted) -> Submitted:
        """A submission; limits of what is over are in its running time already."""
        demand = event.demand
        found = self.full.state.workloads.get(demand.key)
        if found is None or not _is_known(found):
            return event
        limits = replace(demand.limits, start=None, run=None, cost=None)
        return event if limits == demand.limits else replace(event, demand=replace(demand, limits=limits))

    def _job(self, workload: WorkloadState, durations: dict[str, float]) -> KnownJob:
        known = workload.key not in durations
        duration = running_time(workload, INF) if known else durations[workload.key]
        starts = _starts(workload) or [self.starting]
        starting = math.fsum(starts) / len(starts)
        job = KnownJob(workload.submitted, workload.demand, duration, option=last_option(workload), starting=starting)
        begun = self.begin.state.workloads.get(workload.key)
        if begun is None or not begun.attempts:
            return job
        done = running_time(begun, self.since) if known else _kept(begun, self.since)
        attempt = begun.attempts[-1]
        job.start, job.began = begun.attempts[0].began, self.since
        job.left = max(0.0, duration - done)
        job.attempts = attempt.number if begun.phase in ("starting", "running") else -attempt.number
        return job

    def lines(self, as_it_is: _Side, changed: _Side) -> list[Line]:
        """The workloads to be told of, those that wait first."""
        named, now = set(self.question.named), self.question.now
        told = [each for each in self.replayed if each.phase != "ended" or each.demand.name in named]
        told.sort(key=lambda each: (each.phase != "waiting", each.order))
        found = [
            Line(each.demand.name, each.phase, each.submitted, as_it_is.times(each.key), changed.times(each.key))
            for each in told
        ]
        new = self.question.change.submit
        return [*found, *(Line(each.name, "submitted", now, None, changed.times(each.key)) for each in new)]


@dataclass
class _Side:
    """What all futures of one side came to."""

    change: Change
    chips: int = 0
    futures: int = 0
    waits: list[float] = field(default_factory=list[float])
    completions: list[float] = field(default_factory=list[float])
    busy: list[float] = field(default_factory=list[float])
    costs: list[float | None] = field(default_factory=list[float | None])
    preemptions: int = 0
    starts: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list[float]))
    ends: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list[float]))

    def add(self, world: ContinuedWorld, keys: Iterable[str]) -> None:
        """Take in a future; figures are over the workloads `keys`."""
        self.futures += 1
        self.preemptions += world.preemptions
        self.chips = _chips(world)
        for key, job in world.jobs.items():
            self.starts[key].append(INF if job.start is None else job.start)
            self.ends[key].append(INF if job.end is None else job.end)
        for job in (world.jobs[key] for key in keys):
            if job.start is not None and job.start >= world.started_at:
                self.waits.append(job.start - job.at)
            if job.end is not None:
                self.completions.append(job.end - job.at)

    def times(self, key: str) -> Times:
        """When a workload starts and ends."""
        return Times(*((_quantile(each[key], 0.5), _quantile(each[key], 0.9)) for each in (self.starts, self.ends)))

    def figures(self) -> Figures:
        """The figures of all futures."""
        costs = [cost for cost in self.costs if cost is not None]
        return Figures(
            chips=self.chips,
            utilization=math.fsum(self.busy) / self.futures,
            wait_s=distribution(self.waits),
            completion_s=distribution(self.completions),
            started=len(self.waits) / self.futures,
            ended=len(self.completions) / self.futures,
            preemptions=self.preemptions / self.futures,
            cost=math.fsum(costs) / self.futures if len(costs) == self.futures else None,
        )


def _note(asked: _Asked, sides: Sequence[_Side], worlds: Sequence[ContinuedWorld]) -> None:
    """Add a future to both sides; the spans of time that figures are over are those of both."""
    began = asked.since
    times = [time for world in worlds for job in world.jobs.values() for time in (job.start, job.end)]
    over = max((time for time in times if time is not None), default=began)
    starts = [job.start for job in worlds[0].jobs.values() if job.start is not None]
    contended = max((start for start in starts if start >= began), default=began)
    keys = [each.key for each in asked.replayed]
    for side, world in zip(sides, worlds, strict=True):
        side.add(world, keys)
        side.busy.append(_busy(list(world.spans()), began, contended, _chips(world)))
        side.costs.append(_cost(world, over))


def _busy(spans: Iterable[Span], began: float, ended: float, chips: int) -> float:
    """The share of `chips` chips that is held; at one moment where that is all there is."""
    if not chips:
        return 0.0
    if ended <= began:
        return sum(span.chips for span in spans if span.began <= began < span.ended) / chips
    held = (span.chips * max(0.0, min(span.ended, ended) - span.began) for span in spans)
    return math.fsum(held) / (chips * (ended - began))


def _cost(world: ContinuedWorld, over: float) -> float | None:
    """US dollars of all units until the time `over`; what the world did not live to see is its pools' minimum."""
    cost = 0.0
    spans = [(unit.pool, min(unit.ended, over) - unit.began) for unit in world.units() if unit.phase != "provisioning"]
    fleet = world.scheduler.state.fleet
    spans += [(pool.name, pool.minimum * max(0.0, over - world.now)) for pool in fleet.pools]
    for name, seconds in spans:
        pool = world.pools[name]
        if seconds > 0 and pool.price is None:
            return None
        cost += max(0.0, seconds) / 3600 * pool.chips * (pool.price or 0.0)
    return cost


def _chips(world: ContinuedWorld) -> int:
    return sum(pool.chips * pool.maximum for pool in world.scheduler.state.fleet.pools)


def _is_known(workload: WorkloadState) -> bool:
    """Whether the running time is known: it is over, and it ran."""
    return workload.phase == "ended" and any(attempt.running is not None for attempt in workload.attempts)


def _starts(workload: WorkloadState) -> list[float]:
    """Seconds from grant until the code began, of all attempts whose code did."""
    return [each.running - each.began for each in workload.attempts if each.running is not None]


def _kept(workload: WorkloadState, now: float) -> float:
    """Seconds of work that a workload has behind it: what its checkpoint keeps, and what it did since."""
    attempt = workload.live
    if attempt is None or attempt.running is None:
        return workload.worked
    since = attempt.running
    if workload.checkpoint_at is not None:
        since = max(since, workload.checkpoint_at)
    return workload.worked + max(0.0, min(now, attempt.stopping or now) - since)


def _learnt(workloads: Iterable[WorkloadState]) -> History:
    """What succeeded took."""
    history = History()
    ended = [each for each in workloads if each.outcome == "succeeded" and each.finished is not None]
    for each in sorted(ended, key=lambda each: (each.finished or 0.0, each.order)):
        history.learn(each.demand, last_option(each), running_time(each, INF))
    return history


def _quantile(values: Sequence[float], share: float) -> float | None:
    """The least value with at least `share` of all at or below it; None when that is never."""
    ordered = sorted(values)
    found = ordered[math.ceil(share * len(ordered)) - 1] if ordered else INF
    return None if found == INF else found
