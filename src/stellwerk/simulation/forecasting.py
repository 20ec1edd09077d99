"""Forecasts in a replay: what people would have been told, beside what came.

At every submit that does not start at once the scheduler's own core is run forward from the state as it is then
(`stellwerk.scheduling.forecast`), with what ended and was submitted before; nothing is known of what comes later. Who
starts at once is told so. The answers to those who wait are looked at again `again` times over the arrival window, at
even distances, and written down where they have changed.

A forecast does not change what happens, so that several processes may replay the same trace and make a share of the
forecasts each. What they say passes through `Calibration` afterwards, in the order of time: a forecast is corrected
with what had become of earlier ones by then.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from stellwerk.scheduling.calibration import Calibration
from stellwerk.scheduling.commands import Command, StartAttempt
from stellwerk.scheduling.events import AttemptEnded, Event, Submitted
from stellwerk.scheduling.forecast import INF, Futures, draws, quantile
from stellwerk.scheduling.history import History
from stellwerk.simulation.driver import Observer
from stellwerk.simulation.world import World

AGAIN = 128
LOOK = Futures(samples=8, enough=4000)
"""Futures of one forecast: eight where they are short, fewer where thousands of events lie before the start."""


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast for the workload `key`, made at `at` (s): when it starts, None where that was not known.

    `first` ones were made at its submit; `certain` ones said that it starts at once.
    """

    key: str
    at: float
    p50: float | None
    p90: float | None
    first: bool = True
    certain: bool = False


class Forecaster:
    """Makes forecasts while a world runs; `told` has them, not yet calibrated, in the order in which they were made.

    Of `shares` processes this one makes the forecasts for those whose number modulo `shares` is `share`.
    """

    def __init__(
        self, world: World, look: Futures | None = None, again: int = AGAIN, *, share: int = 0, shares: int = 1
    ) -> None:
        self.told: list[Told] = []
        self.history = History()
        self.look = look or LOOK
        self._world, self._share, self._shares = world, share, shares
        self._options: dict[str, int] = {}
        self._submits = self._looks = 0
        submits = world.submissions
        self._every = (submits[-1].at - submits[0].at) / again if submits and again else INF
        self._next = submits[0].at + self._every if submits else INF

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """What the scheduler was told, and what it ordered."""
        for command in commands:
            if isinstance(command, StartAttempt):
                self._options[command.workload] = command.option
        if isinstance(event, Submitted):
            self._submitted(event)
        elif isinstance(event, AttemptEnded) and event.outcome == "succeeded":
            job = self._world.jobs[event.workload]
            self.history.learn(job.demand, self._options.pop(event.workload, 0), job.duration)

    def _submitted(self, event: Submitted) -> None:
        key, now = event.demand.key, self._world.now
        workload = self._world.scheduler.state.workloads.get(key)
        self.history.arrivals.note(now, event.demand)
        self._submits += 1
        if self._submits % self._shares == self._share:
            if workload is None or workload.phase != "waiting":
                known = now if workload is not None else None
                self.told.append(Told(key, now, known, known, certain=True))
            else:
                self._look([key], now, first=True)
        if now >= self._next:
            self._again(key, now)

    def _again(self, newest: str, now: float) -> None:
        """Look at the answers to all who wait once more, but for the one that has just come."""
        while self._next <= now:
            self._next += self._every
        self._looks += 1
        if self._looks % self._shares == self._share:
            self._look([key for key in self._world.scheduler.book.waiting if key != newest], now, first=False)

    def _look(self, keys: list[str], now: float, *, first: bool) -> None:
        drawn = draws(self._world.scheduler, self.history, [], keys, self.look)
        for key, (starts, _) in drawn.items():
            self.told.append(Told(key, now, quantile(starts, 0.5), quantile(starts, 0.9), first))
        gc.collect(0)  # a replay runs without the cycle collector, and every future is a cycle


def calibrated(told: Iterable[Told], starts: dict[str, float]) -> list[Told]:
    """The forecasts in the order of time, each corrected with what had become of those at submit before it.

    `starts` is when each workload started. Answers that say what was said before are left out.
    """
    calibration, due, said = Calibration(), list[tuple[float, int, Told, float]](), dict[str, Told]()
    made = list[Told]()
    for number, each in enumerate(sorted(told, key=_order)):
        while due and due[0][0] < each.at:
            at, _, earlier, bound = heappop(due)
            calibration.note(earlier.at, (earlier.p50 or at) - earlier.at, bound - earlier.at, at - earlier.at)
        better = each
        if each.p50 is not None and each.p90 is not None and not each.certain:
            bound = each.at + calibration.bound(each.p50 - each.at, each.p90 - each.at)
            better = replace(each, p90=bound)
            if each.first and each.key in starts:
                heappush(due, (starts[each.key], number, each, bound))
        if each.key not in said or _changed(said[each.key], better):
            said[each.key] = better
            made.append(better)
    return made


def _order(told: Told) -> tuple[float, bool, str]:
    return told.at, not told.first, told.key


def _changed(one: Told, other: Told) -> bool:
    """Whether two answers differ by a second or more."""
    pairs = ((one.p50, other.p50), (one.p90, other.p90))
    return any(a != b if a is None or b is None else abs(a - b) >= 1.0 for a, b in pairs)


@contextmanager
def forecasting(world: World, observe: Observer | None) -> Generator[None]:
    """Let an observer, if there is one, watch the world while it runs."""
    world.observer = observe
    try:
        yield
    finally:
        world.observer = None
