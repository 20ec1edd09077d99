"""Forecasts of a running controller: what it has learnt of durations and arrivals, and what follows for those who wait.

`observe` is fed with every event as it is folded, so a controller that replays its log knows the same. A forecast is
made in a thread of its own, over a copy of the state, while the controller goes on; it is kept until something has
happened, or `FRESH` seconds have passed, so that who asks again gets the same answer at once. Its bounds follow how
earlier ones turned out (`hindsight`).

However many wait, it takes about `EVENTS` events of the core in all futures together, at least five futures are drawn
and of each class the oldest are looked at, some `WAITING` in all. So of several thousand that wait the first hundreds
to start have a time, and the others none (None, not a guess).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from stellwerk.controller.hindsight import Hindsight, bounded
from stellwerk.scheduling.events import AttemptEnded, Event, Submitted, Woke
from stellwerk.scheduling.forecast import ENDLESS, Futures, Outlook, forecast
from stellwerk.scheduling.history import History
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import State, WorkloadState, copied

EVENTS = 3000
"""Events of the core that one forecast may take; some 50 microseconds each."""

WAITING = 800
"""Waiting workloads that are looked at: the oldest of each class of equal hardware, queue and priority."""

FRESH = 10.0
"""Seconds for which a forecast holds when nothing happens."""

LOOK = Futures(events=EVENTS, waiting=WAITING)


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    at: float
    found: Mapping[str, Outlook]


class Outlooks:
    """What one controller expects; `history` is what it has learnt of durations and arrivals, `hindsight` how good its
    forecasts were."""

    def __init__(self, hindsight: Hindsight | None = None) -> None:
        self.history = History()
        self.hindsight = hindsight or Hindsight()
        self._version = 0
        self._kept: _Kept | None = None
        self._one_at_a_time = asyncio.Lock()

    def observe(self, event: Event, state: State) -> None:
        """Take notice of an event that was folded into `state`."""
        self._version += 1
        if isinstance(event, Submitted):
            self.history.arrivals.note(state.now, event.demand)
        elif isinstance(event, AttemptEnded) and event.outcome == "succeeded":
            workload = state.workloads.get(event.workload)
            if workload is not None and _has_just_ended(workload, event, state.now):
                self.history.learn(workload.demand, workload.attempts[-1].option, _ran(workload))

    def dump(self) -> str:
        """What was learnt, for a snapshot: the same after the same events."""
        return self.history.dump()

    def load(self, text: str) -> None:
        """Know what `dump` wrote. ValueError, KeyError or TypeError when it is not that; nothing has changed then."""
        self.history.load(text)
        self._version += 1

    async def of_all(self, state: State, now: float) -> Mapping[str, Outlook]:
        """The outlook of everything that waits or runs, by key. To be called on the controller's event loop."""
        async with self._one_at_a_time:
            kept = self._kept
            if kept is None or kept.version != self._version or not kept.at <= now < kept.at + FRESH:
                version, history, alone = self._version, self.history.copy(), copied(state, ended=False)
                drawn = await asyncio.to_thread(lambda: forecast(at_time(alone, now), history, futures=LOOK))
                self.hindsight.judge(state)
                found = {key: bounded(self.hindsight.calibration, each, now) for key, each in drawn.items()}
                self.hindsight.say(found, state, now)
                kept = self._kept = _Kept(version, now, found)
            return kept.found


def at_time(alone: State, now: float) -> Scheduler:
    """A scheduler for a state of its own, at the time `now` (s)."""
    scheduler = Scheduler(state=alone, explained=0, forget=True)
    if now > alone.now:
        scheduler.handle(Woke(now))
    return scheduler


def _has_just_ended(workload: WorkloadState, event: AttemptEnded, now: float) -> bool:
    """False for late news of what had ended before, and for what ends only because somebody ends it."""
    attempt = workload.attempts[-1] if workload.attempts else None
    ended = attempt is not None and attempt.number == event.attempt and workload.finished == now
    return ended and workload.outcome == "succeeded" and workload.demand.kind not in ENDLESS


def _ran(workload: WorkloadState) -> float:
    """Seconds that all attempts ran."""
    spans = ((attempt.running, attempt.finished) for attempt in workload.attempts)
    return sum((end - began for began, end in spans if began is not None and end is not None), 0.0)
