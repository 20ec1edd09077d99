"""When waiting workloads will start and finish, as p50 and p90.

The same core is run forward from a copy of the live state, `samples` times: what runs ends and what waits runs after
durations that are drawn, others submit as they did of late, and every decision on the way is the scheduler's own.
A run ends when all that were asked for have started. Durations come from `History`, later submissions from
`Arrivals`.

The draws are stratified: of a workload's possible durations each of n samples takes another n-th, shortest to
longest, so that a few samples say what many independent ones would (McKay et al., 1979). They are seeded: the same
state and history give the same forecast.

A forecast is not a promise. Limits: units do not fail, an attempt that is stopped to make room has saved its state,
and a workload that has not started within the horizon or the number of events allowed, or whose duration nothing
is known about, has no time. A quantile is told only where enough of the drawn futures reach it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.arrivals import MARK
from stellwerk.scheduling.history import History
from stellwerk.scheduling.model import NO_LIMITS, Cause, Demand
from stellwerk.scheduling.policy.rules import RULES
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import Attempt, State, WorkloadState, copied

HORIZON = 90 * 86_400.0
SAMPLES = 20
LEAST = 5
"""Futures that are drawn at least when the number of events is limited; then each ends after its part of them."""

MANY = 8
"""Waiting classes from which on events are counted as dearer: work that may pass is looked for in all of them."""

COPIES = 8
"""Workloads whose copies cost as much as one event."""

INF = float("inf")
ENDLESS = ("serve", "cluster")
"""Kinds that end when somebody ends them."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Times (s) of the start and the end: half and nine tenths of the drawn futures lie before; None when unknown."""

    start_p50: float | None
    start_p90: float | None
    finish_p50: float | None
    finish_p90: float | None


UNKNOWN = Outlook(None, None, None, None)


@dataclass(frozen=True, slots=True)
class Futures:
    """How to look ahead: how many futures, how far (s), how many events in all (None: as many as it takes).

    After `enough` events no further future is begun, if there are two. Of each class only the first are looked at when
    more than `waiting` wait (see `front`). With `others` more work is submitted on the way, as it was of late.
    """

    samples: int = SAMPLES
    horizon: float = HORIZON
    events: int | None = None
    enough: int | None = None
    waiting: int | None = None
    others: bool = True
    seed: int = 0


def forecast(
    scheduler: Scheduler,
    history: History,
    *,
    submit: Iterable[Demand] = (),
    only: Collection[str] | None = None,
    samples: int = SAMPLES,
    futures: Futures | None = None,
) -> dict[str, Outlook]:
    """The outlook of every workload that waits or runs, and of those in `submit` as if submitted now; by key.

    With `only` it is of these alone, which is quicker: a future ends when they have started.
    """
    look = futures or Futures(samples)
    extra = list(submit)
    drawn = draws(scheduler, history, extra, only, look)
    found = {key: _outlook(starts, ends) for key, (starts, ends) in drawn.items()}
    return found if only is not None else {**_running(scheduler, history, look.samples), **found}


Front = dict[str, int]
"""Waiting workloads of classes of which not all are looked at, with their class."""

Drawn = dict[str, tuple[list[float], list[float]]]


def draws(
    scheduler: Scheduler, history: History, submit: list[Demand], only: Collection[str] | None, look: Futures
) -> Drawn:
    """Starts and ends of those that are asked for, one for each future; `inf` where it does not come to that."""
    known = [*scheduler.book.waiting, *(demand.key for demand in submit)]
    asked = known if only is None else [key for key in known if key in only]
    drawn: Drawn = {key: ([], []) for key in asked}
    places, handled = _Places(look.seed), 0
    state, front = front_of(scheduler, look.waiting)
    copying = len(state.workloads) // COPIES
    events = None if look.events is None else look.events // (1 + (_classes(scheduler) // MANY) ** 2)
    most = None if events is None else max(1, events // LEAST)
    for sample in range(look.samples if asked else 0):
        if sample >= LEAST and events is not None and handled >= events:
            break
        if sample >= 2 and handled >= (look.enough or INF):
            break
        alone = Scheduler(state=copied(state, ended=False), explained=0, forget=True)
        future = _Future(alone, history, places.of(sample), look, front)
        future.run(submit, asked, most)
        handled += future.handled + copying
        for key, (starts, ends) in drawn.items():
            starts.append(future.starts.get(key, INF))
            ends.append(future.ends.get(key, INF))
    return drawn


def _classes(scheduler: Scheduler) -> int:
    """How many classes wait."""
    return len({id(scheduler.book.class_of(workload.demand)) for workload in scheduler.book.waiting.values()})


def front_of(scheduler: Scheduler, most: int | None) -> tuple[State, Front]:
    """The state with at most about `most` waiting workloads: of each class as many as of all others, the oldest.

    The second value has those of the classes that were cut: a future ends where the last of one of them has started.
    """
    state, waiting = scheduler.state, scheduler.book.waiting
    if most is None or len(waiting) <= most:
        return state, {}
    classes: dict[int, list[WorkloadState]] = {}
    for workload in waiting.values():
        classes.setdefault(id(scheduler.book.class_of(workload.demand)), []).append(workload)
    each = max(2, most // len(classes))
    needed = {unit.meant for unit in state.units.values()} | {other.stop_for for other in state.workloads.values()}
    dropped, front = set[str](), Front()
    for number, members in enumerate(classes.values()):
        if len(members) > each:
            members.sort(key=lambda workload: workload.order)
            front.update((workload.key, number) for workload in members[:each])
            dropped.update(workload.key for workload in members[each:] if workload.key not in needed)
    made = replace(state)
    made.workloads = {key: workload for key, workload in state.workloads.items() if key not in dropped}
    return made, front


class _Places:
    """Where in [0, 1) each thing's draw lies: over the first 2, 4, 8 ... samples once in every half, quarter ...

    The distances are the van der Corput sequence, so it need not be known how many samples there will be.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self._first: dict[str, float] = {}

    def of(self, sample: int) -> _Sample:
        """The places of one sample."""
        return _Sample(self, _reversed(sample))

    def place(self, name: str, distance: float) -> float:
        """The place of `name`, so far from its first."""
        first = self._first.get(name)
        if first is None:
            first = self._first[name] = self._random()
        place = first + distance
        return place if place < 1.0 else place - 1.0


def _reversed(number: int) -> float:
    """The binary digits of a whole number behind the point, in reverse: 0, 1/2, 1/4, 3/4, 1/8 ..."""
    value, digit = 0.0, 0.5
    while number:
        value, number, digit = value + digit * (number & 1), number >> 1, digit / 2
    return value


class _Sample:
    """The places of one sample, by name."""

    __slots__ = ("_distance", "_places")

    def __init__(self, places: _Places, distance: float) -> None:
        self._places, self._distance = places, distance

    def __call__(self, name: str) -> float:
        return self._places.place(name, self._distance)


class _Future:
    """One way that things may go on."""

    def __init__(self, scheduler: Scheduler, history: History, place: _Sample, look: Futures, front: Front) -> None:
        self.scheduler, self._history, self._place = scheduler, history, place
        self._front, self._left = front, Counter(front.values())
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.handled = 0
        self._missing: dict[str, None] = {}
        self._others = look.others
        self._until = scheduler.state.now + look.horizon
        self._heap: list[tuple[float, int, ev.Event]] = []
        self._count = 0
        self._wake: float | None = scheduler.state.wake_at
        self._coming: Iterator[tuple[float, Demand]] = iter(())

    def run(self, submit: list[Demand], asked: Collection[str], most: int | None) -> None:
        """Go on until all that were asked for have started, or the horizon or `most` events are reached."""
        self._missing = dict.fromkeys(asked)
        self._begin()
        for demand in submit:
            self._handle(ev.Submitted(self.scheduler.state.now, demand))
        if self._others and self._may_be_passed(submit):
            self._coming = self._history.arrivals.to_come(self.scheduler.state.now, self._place(MARK))
            self._next_submission()
        missing = self._missing
        while missing and (most is None or self.handled < most):
            event = self._next()
            if event is None or event.at > self._until:
                return
            if type(event) is ev.Submitted:
                self._next_submission()
            self._handle(event)

    def _begin(self) -> None:
        state = self.scheduler.state
        live = [workload for workload in state.workloads.values() if workload.live is not None]
        for workload in sorted(live, key=lambda workload: workload.order):
            self._foresee(workload, workload.attempts[-1])
        for unit in state.units.values():
            if unit.phase in ("provisioning", "recycling") and unit.pool in state.pools:
                at = max(state.now, unit.since + state.pools[unit.pool].provision)
                self._later(at, ev.UnitAppeared(at, unit.pool, unit.name, unit.incarnation))
            elif unit.phase == "releasing":
                self._later(state.now, ev.UnitGone(state.now, unit.name, unit.incarnation))

    def _foresee(self, workload: WorkloadState, attempt: Attempt) -> None:
        now = self.scheduler.state.now
        if attempt.settled != attempt.resizes:
            self._later(now, ev.AttemptResized(now, workload.key, attempt.number, attempt.resizes))
        if workload.phase == "stopping":
            self._stop(workload.key, attempt.number, workload.stop_cause or "infrastructure")
            return
        ran = _ran(workload, attempt, now)
        whole = self._whole(workload.demand, attempt.option, ran)
        if whole is not None:
            at = now + max(0.0, whole - ran)
            self._later(at, ev.AttemptEnded(at, workload.key, attempt.number, "succeeded"))

    def _may_be_passed(self, submit: list[Demand]) -> bool:
        """Whether what is submitted later may make a difference to those who are asked for."""
        state = self.scheduler.state
        policies = {state.fleet.policy, *(queue.policy for queue in state.queues.values() if queue.policy)}
        if policies != {"fifo"}:
            return True
        priorities = {workload.demand.priority for workload in self.scheduler.book.waiting.values()}
        return len(priorities | {demand.priority for demand in submit}) > 1 or RULES["fifo"].backfill

    def _next_submission(self) -> None:
        """Put the next submission of others in its place; work of which nothing is known stays out."""
        for at, demand in self._coming:
            if self._whole(demand, 0, 0.0) is not None:
                self._later(at, ev.Submitted(at, demand))
                return

    def _whole(self, demand: Demand, option: int, ran: float) -> float | None:
        if demand.kind in ENDLESS:
            return None
        return self._history.draw(demand, option, ran, self._place(demand.key))

    def _later(self, at: float, event: ev.Event) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, event))

    def _next(self) -> ev.Event | None:
        if self._wake is not None and (not self._heap or self._wake < self._heap[0][0]):
            at, self._wake = self._wake, None
            return ev.Woke(at)
        return heappop(self._heap)[2] if self._heap else None

    def _handle(self, event: ev.Event) -> None:
        self.handled += 1
        for command in self.scheduler.handle(event):
            self._obey(command)

    def _obey(self, command: cmd.Command) -> None:
        now, pools = self.scheduler.state.now, self.scheduler.state.pools
        match command:
            case cmd.StartAttempt():
                self._start(command)
            case cmd.StopAttempt(key, number, cause):
                self._stop(key, number, cause)
            case cmd.ResizeAttempt(key, number, resize):
                self._later(now, ev.AttemptResized(now, key, number, resize))
            case cmd.ProvisionUnit(pool, unit, incarnation) | cmd.RecycleUnit(pool, unit, incarnation):
                at = now + (pools[pool].provision if pool in pools else 0.0)
                self._later(at, ev.UnitAppeared(at, pool, unit, incarnation))
            case cmd.ReleaseUnit(unit, incarnation):
                self._later(now, ev.UnitGone(now, unit, incarnation))
            case cmd.WakeAt(at):
                self._wake = at

    def _stop(self, key: str, number: int, cause: Cause) -> None:
        now = self.scheduler.state.now
        if cause == "preempted":
            self._later(now, ev.CheckpointReported(now, key, number, "forecast://"))
        self._later(now, ev.AttemptEnded(now, key, number, "stopped", cause))

    def _start(self, command: cmd.StartAttempt) -> None:
        state, key = self.scheduler.state, command.workload
        workload, now = state.workloads[key], state.now
        demand = workload.demand
        self.starts.setdefault(key, now)
        self._missing.pop(key, None)
        if key in self._front:
            self._left[self._front[key]] -= 1
            if not self._left[self._front[key]]:
                self._missing.clear()  # what would start next was not looked at
        if demand.limits is not NO_LIMITS or demand.options[command.option].maximum is not None:
            self._later(now, ev.AttemptStarted(now, key, command.attempt))
        whole = self._whole(demand, command.option, workload.worked)
        if whole is not None:
            self.ends[key] = at = now + max(0.0, whole - workload.worked)
            self._later(at, ev.AttemptEnded(at, key, command.attempt, "succeeded"))


def _ran(workload: WorkloadState, attempt: Attempt, now: float) -> float:
    """Seconds of work that a live attempt has behind it."""
    since = attempt.running if attempt.running is not None else attempt.began
    saved = workload.checkpoint_at
    return workload.worked + max(0.0, now - (since if saved is None else max(since, saved)))


def _running(scheduler: Scheduler, history: History, samples: int) -> dict[str, Outlook]:
    """Outlooks of what runs: when it began, and when such work ends."""
    now, found = scheduler.state.now, dict[str, Outlook]()
    for workload in scheduler.state.workloads.values():
        attempt = workload.live
        if attempt is None or workload.phase == "stopping":
            continue
        ran = _ran(workload, attempt, now)
        endless = workload.demand.kind in ENDLESS
        places = () if endless else tuple((sample + 0.5) / samples for sample in range(samples))
        wholes = [history.draw(workload.demand, attempt.option, ran, place) for place in places]
        ends = [INF if whole is None else now + max(0.0, whole - ran) for whole in wholes]
        began = attempt.running if attempt.running is not None else attempt.began
        found[workload.key] = Outlook(began, began, quantile(ends, 0.5), quantile(ends, 0.9))
    return found


def _outlook(starts: list[float], ends: list[float]) -> Outlook:
    return Outlook(quantile(starts, 0.5), quantile(starts, 0.9), quantile(ends, 0.5), quantile(ends, 0.9))


def quantile(values: Iterable[float], share: float) -> float | None:
    """The value with `share` of all below it, linear between neighbours; None where that is not known."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low if place == low else high] == INF:
        return None
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low) if high > low else ordered[low]


__all__ = ["HORIZON", "SAMPLES", "UNKNOWN", "Futures", "History", "Outlook", "draws", "forecast", "quantile"]
