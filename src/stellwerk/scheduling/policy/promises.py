"""Promised starts of the first `PROMISES` who wait in a lane.

Why: whoever waits wants to know until when, and a time is worth something only if it is said what it rests on.

Formulation: the lane, and all lanes that those who wait in it also want, are run forward with the estimates: what runs
gives back at its expected end (past that, as `placement.ends` says), units on their way arrive, and those who wait
start strictly in order, each when one of its open options can be placed as it must stand; whoever is blocked holds up
all who come after it in its lanes. Nobody passes. The time at which a workload starts in this run is what it is told.

What is promised exactly, as long as nothing runs longer than its estimate, nothing breaks, and nobody arrives who comes
before it by priority, share or age:

* The first of a lane is never started later than it was told (`kept`). Backfill starts only what ends by that time or
  stands on other units (see `policy.backfill`); an end before its time only brings it forward.
* Where nobody passes (`fifo`, `sjf`) and all of them ask for whole units, this holds for all. For n_1, n_2, ... units
  in turn the run is a recursion on the sorted times at which units become free: take the n_i earliest, start at the
  latest of them, put back n_i times the end (Kiefer and Wolfowitz, 1955). It is monotone: an earlier end makes no start
  later. For cells an earlier end can place somebody differently, and the next less well, so no more than the first's
  is called kept.
* With backfill the later ones are told when they start if nobody passes them. Those who pass and end by the first's
  start delay none of them, as they are gone before; a longer one that stands on units that the first does not need may
  delay the second. Protecting all of them (conservative backfill) would leave those units idle: utilization is worth
  more here, and the cost of a decision would grow with the pool. So this is an outlook for them, and called that.

It is computed when somebody asks, and changes no decision. Limits: nothing where the first stops those who come after
it (it does not wait), for workloads that wait for quota, or where an end on the way is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush, nsmallest
from itertools import count, islice

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import Lane, WaitClass
from stellwerk.scheduling.model import Grant
from stellwerk.scheduling.placement.counts import SHORTEST
from stellwerk.scheduling.placement.index import INF, Need, PoolIndex, make
from stellwerk.scheduling.placement.together import place
from stellwerk.scheduling.policy import fallback
from stellwerk.scheduling.policy.rules import PROMISES, remaining
from stellwerk.scheduling.state import UnitState, WorkloadState

Waiting = tuple[tuple[int, float, float, int], WaitClass, WorkloadState]


@dataclass(frozen=True, slots=True)
class Promise:
    """A workload starts at `at` (s), as the `place`-th of its lane; `kept`: at the latest, else if nobody passes it."""

    at: float
    place: int
    kept: bool


def of(book: Book, workload: WorkloadState) -> Promise | None:
    """What a waiting workload is told; None when it is not among the first of any lane, or no time is known."""
    if workload.phase != "waiting" or workload.key in book.held or book.rules.displaces:
        return None
    found = book.class_of(workload.demand)
    if found.entry is None:
        return None
    told = in_lanes(book, found.shape.lanes)
    return told.get(workload.key)


def note(book: Book) -> None:
    """Write what everybody is told into the state. A promise that was made to the first of a lane stands."""
    told: dict[str, Promise] = {}
    seen: dict[Lane, None] = {}
    for lane in book.lanes.values() if not book.rules.displaces else ():
        if lane not in seen and lane.top() is not None:
            group = _connected(book, (lane,))
            seen.update(dict.fromkeys(group))
            told.update(_run(book, group))
    for workload in book.waiting.values():
        found = told.get(workload.key)
        stands = found is not None and found.place == 1 and workload.promise is not None
        if not stands or (workload.promise or 0.0) <= book.state.now:
            workload.promise = found.at if found is not None and found.at > book.state.now else None


def in_lanes(book: Book, lanes: Iterable[Lane]) -> dict[str, Promise]:
    """What the first of these lanes, and of those that they want too, are told; by key."""
    return _run(book, _connected(book, lanes))


def firsts(book: Book, lane: Lane) -> list[Waiting]:
    """The first `PROMISES` of a lane, in order."""
    pairs = ((found, workload) for found in lane.entered() for workload in islice(found.line, PROMISES))
    places = [(book.place_of(found, workload), found, workload) for found, workload in pairs]
    return nsmallest(PROMISES, places, key=lambda each: each[0])


def _connected(book: Book, lanes: Iterable[Lane]) -> list[Lane]:
    group, ahead = dict[Lane, None](), list(lanes)
    while ahead:
        lane = ahead.pop()
        if lane not in group:
            group[lane] = None
            ahead.extend(other for _, found, _ in firsts(book, lane) for other in found.shape.lanes)
    return sorted(group, key=lambda lane: lane.number)


def _run(book: Book, lanes: list[Lane]) -> dict[str, Promise]:
    ahead, places = dict[str, Waiting](), dict[str, int]()
    for lane in lanes:
        for number, each in enumerate(firsts(book, lane), 1):
            ahead[each[2].key] = each
            places[each[2].key] = max(number, places.get(each[2].key, 0))
    run = _Run(book, lanes)
    starts = run.starts(sorted(ahead.values(), key=lambda each: each[0]))
    found, whole = dict[str, Promise](), not book.tracking
    for key, (_, waits, _) in sorted(ahead.items(), key=lambda each: each[1][0]):
        whole = whole and _whole(waits)
        if key in starts and (places[key] == 1 or not waits.account.quota):
            found[key] = Promise(starts[key], places[key], kept=places[key] == 1 or whole)
    return found


def _whole(found: WaitClass) -> bool:
    simple = found.shape.simple
    return simple is not None and simple[0].pool.layout == "units" and bool(simple[1].whole)


class _Run:
    """Some lanes from now on, by the estimates."""

    def __init__(self, book: Book, lanes: list[Lane]) -> None:
        self.book, self.now = book, book.state.now
        self.places: dict[Lane, PoolIndex] = {}
        self._number = count()
        self._events: list[tuple[float, int, PoolIndex | None, tuple[Grant, ...], str, UnitState | None]] = []
        for lane in lanes:
            self.places[lane] = self._index(lane)

    def _index(self, lane: Lane) -> PoolIndex:
        index = make(lane.pool, track=False, plain=lane.places.plain)
        units = self.book.members[lane.pool.name].values()
        for key in dict.fromkeys(key for unit in units for key in unit.held):
            workload = self.book.state.workloads[key]
            attempt = workload.attempts[-1]
            own = tuple(grant for grant in attempt.grants + attempt.leaving if grant.pool == lane.pool.name)
            index.note(own, key, INF, attempt.began)
            self._later(_until(workload, self.now), index, own, key)
        for unit in units:
            if unit.phase == "up" and not unit.leaving:
                index.put(unit)
            elif unit.phase in ("provisioning", "recycling"):
                at = max(self.now, unit.since + lane.pool.provision)
                self._later(at, index, unit=replace(unit, phase="up", held={}))
        return index

    def _later(
        self,
        at: float,
        index: PoolIndex | None = None,
        grants: tuple[Grant, ...] = (),
        key: str = "",
        unit: UnitState | None = None,
    ) -> None:
        if at < INF:
            heappush(self._events, (at, next(self._number), index, grants, key, unit))

    def starts(self, ahead: list[Waiting]) -> dict[str, float]:
        """When each of those who wait starts, in order; those of whom it is not known are left out."""
        found: dict[str, float] = {}
        for _, waits, workload in ahead:
            for at in fallback.opens_at(workload, waits.never):
                if at > self.now:
                    self._later(at)
        while True:
            for key in self._started(ahead):
                found[key] = self.now
            ahead = [each for each in ahead if each[2].key not in found]
            if not ahead or not self._events:
                return found
            self._next()

    def _next(self) -> None:
        self.now = max(self.now, self._events[0][0])
        while self._events and self._events[0][0] <= self.now:
            _, _, index, grants, key, unit = heappop(self._events)
            if index is not None and unit is not None:
                index.put(unit)
            elif index is not None:
                index.give(grants, key)

    def _started(self, ahead: list[Waiting]) -> Iterator[str]:
        """Start those who can now, in order; whoever cannot holds up who comes after it in its lanes."""
        shut: dict[Lane, None] = {}
        for _, found, workload in ahead:
            lanes = found.shape.lanes
            if any(lane in shut for lane in lanes) or not self._start(found, workload):
                shut.update(dict.fromkeys(lanes))
            else:
                yield workload.key

    def _start(self, found: WaitClass, workload: WorkloadState) -> bool:
        for option in fallback.open_options(found, workload, self.now):
            grants = place(found.shape.plans[option], self._at, self._fit, self.now)
            if grants is not None:
                for lane, index in self.places.items():
                    own = tuple(grant for grant in grants if grant.pool == lane.pool.name)
                    if own:
                        index.take(own, workload.key, INF, self.now)
                        self._later(self.now + remaining(workload, option), index, own, workload.key)
                return True
        return False

    def _at(self, choice: tuple[Lane, Need]) -> PoolIndex:
        return self.places[choice[0]]

    def _fit(self, choice: tuple[Lane, Need]) -> tuple[Grant, ...] | None:
        return self.places[choice[0]].fit(choice[1])


def _until(workload: WorkloadState, now: float) -> float:
    """When what runs is expected to end, later than now."""
    attempt = workload.attempts[-1]
    until = attempt.expected
    if until is None:
        since = max(attempt.began, workload.checkpoint_at or 0.0)
        until = since + remaining(workload, attempt.option)
    span = max(until - attempt.began, SHORTEST)
    while until <= now:
        until = attempt.began + span
        span *= 2.0
    return until
