"""The scheduler: events in, commands out, nothing else.

`handle` first folds the event into the state (`apply`), then runs one cycle over what it touched, which reads as its
phases:

1. times       what is due: limits reached, options that open, cool-downs and pauses that are over
2. lanes       every pool whose answer may have changed serves those who wait for it, in order (`dispatch`)
3. pools       broken units that nobody holds are rebuilt, pools are brought to the size they should have
4. wake        ask to be woken when time alone will change an answer

There is no clock, no I/O and no randomness here: the time is in the event. What is not touched by an event is not
looked at: the cost of an event grows with what it changes, not with what waits.
"""

from __future__ import annotations

from stellwerk.scheduling import changes, explain, limits
from stellwerk.scheduling.apply import fold
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.changes import Change
from stellwerk.scheduling.commands import Command, WakeAt
from stellwerk.scheduling.dispatch import serve
from stellwerk.scheduling.evaluation import Verdict, judge
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.index import Lane
from stellwerk.scheduling.invariants import check
from stellwerk.scheduling.model import Demand, Reason
from stellwerk.scheduling.policy import (
    elastic,
    fairshare,
    fallback,
    lifetime,
    promises,
    provisioning,
    queues,
    sjf,
)
from stellwerk.scheduling.policy.promises import Promise
from stellwerk.scheduling.policy.rules import old_at
from stellwerk.scheduling.state import State, WorkloadState, copied

EXPLAINED = 50
"""Reasons are written into the state while at most so many workloads wait; `Scheduler.reasons` answers always."""


class Scheduler:
    """Decides for one fleet. With `validate` every invariant is checked after every event (slow; for tests).

    While at most `explained` workloads wait, the state holds the reasons of each after every event. With `forget` a
    workload that is over leaves the state, for long simulations.
    """

    def __init__(
        self,
        *,
        validate: bool = False,
        state: State | None = None,
        explained: int = EXPLAINED,
        forget: bool = False,
    ) -> None:
        self.state = state if state is not None else State()
        self.book = Book(self.state, schedule, provisioning.settle)
        self.book.forget = forget
        self._explained = explained
        self._validate = validate
        self._watched = validate or bool(explained)
        self._explains = True

    def handle(self, event: Event) -> list[Command]:
        """Fold `event` into the state and decide; the commands are to be carried out in order."""
        book, state = self.book, self.state
        out: list[Command] = []
        book.out = out
        if (at := event.at) > state.now:
            state.now = at
        fold(book, event)
        timed = book.timers.due
        if timed and book.timers.any(state.now):
            self._times()
        if book.dirty or book.attention or book.sized:
            self._cycle()
        if timed or state.wake_at is not None:
            self._wake()
        if self._watched:
            self._afterwards()
        return out

    def _cycle(self) -> None:
        """Serve and size what the event has touched, until nothing is touched any more."""
        book, dirty = self.book, self.book.dirty
        while True:
            if len(dirty) == 1:
                serve(book, dirty.popitem()[0])
            elif dirty:
                if book.asking:
                    for lane in list(dirty):
                        book.ask_next(lane)
                lane = min(dirty, key=_order)
                del dirty[lane]
                serve(book, lane)
            elif book.asking:
                book.ask_rest()
            elif book.attention or book.sized:
                self._pools()
            else:
                book.serving = None
                return

    @property
    def over(self) -> list[WorkloadState]:
        """The workloads that ended by the last event, in the order they did."""
        book = self.book
        return book.over if book.over_by is book.out else []

    def reasons(self, key: str) -> tuple[tuple[Reason, ...], ...]:
        """Why a waiting workload has not been granted each of its options, as of now; () when it does not wait."""
        workload = self.state.workloads.get(key)
        return explain.why(self.book, workload) if workload is not None and workload.phase == "waiting" else ()

    def promise(self, key: str) -> Promise | None:
        """When a waiting workload starts, as far as it is promised; None when it is not among the first who wait."""
        workload = self.state.workloads.get(key)
        return None if workload is None else promises.of(self.book, workload)

    def cheapest_change(self, key: str) -> Change | None:
        """The smallest change that would start a waiting workload now; None when it does not wait, or none would."""
        workload = self.state.workloads.get(key)
        if workload is None or workload.phase != "waiting":
            return None
        return changes.cheapest(self.book, workload)

    def copy(self, *, ended: bool = False) -> Scheduler:
        """A scheduler of its own in the same state, for what-ifs; without what has ended, unless asked for."""
        return Scheduler(state=copied(self.state, ended=ended), explained=0, forget=not ended)

    def evaluate(self, demand: Demand, at: float) -> list[Verdict]:
        """What would come of each option if `demand` were submitted at `at`; changes nothing."""
        return judge(self.book, demand, at)

    def _afterwards(self) -> None:
        """Write the reasons of those who wait into the state, unless they are too many; check what must hold."""
        book = self.book
        if self._explained and len(book.waiting) <= self._explained:
            for workload in book.waiting.values():
                workload.reasons = explain.why(book, workload)
            promises.note(book)
            self._explains = True
        elif self._explains:
            for workload in book.waiting.values():
                workload.reasons = ()
            self._explains = False
        if self._validate:
            check(book, book.out)

    def _pools(self) -> None:
        book = self.book
        if book.attention:
            provisioning.mend(book)
        while book.sized:
            lane = min(book.sized, key=lambda lane: lane.number)
            del book.sized[lane]
            provisioning.resize(book, lane)

    def _times(self) -> None:
        book = self.book
        for kind, name in book.timers.pop(self.state.now):
            if kind == "workload":
                self._workload_due(book.state.workloads[name])
            elif kind == "pool" and name in book.lanes:
                _cool_down_over(book, book.lanes[name])
            elif kind == "unit" and name in book.state.units:
                lifetime.over(book, book.state.units[name])
            elif kind == "shares":
                fairshare.tick(book)

    def _workload_due(self, workload: WorkloadState) -> None:
        book = self.book
        limits.enforce(book, workload)
        if workload.phase == "waiting":
            if workload.key in book.held and workload.hold_until <= self.state.now:
                del book.held[workload.key]
                book.wait(workload)
            elif len(workload.demand.options) > 1 and workload.key not in book.held:
                fallback.out_of_patience(book, workload)
                fallback.leave_cooling(book, workload)
                book.dirty.update(dict.fromkeys(book.class_of(workload.demand).shape.lanes))
            if book.rules.displaces:
                sjf.grown_old(book, workload)
            queues.patience_over(book, workload)
        elif workload.load_low_since is not None:
            elastic.steady(book, workload)
        else:
            elastic.calm(book, workload)
        book.schedule(workload)

    def _wake(self) -> None:
        wake = self.book.timers.next()
        if wake is not None and wake != self.state.wake_at:
            self.book.out.append(WakeAt(wake))
        self.state.wake_at = wake


def schedule(book: Book, workload: WorkloadState) -> None:
    """Set the next time at which something about a workload changes by itself."""
    now, times = book.state.now, [time for _, time in limits.times(book.state, workload)]
    if workload.phase == "waiting":
        times.append(workload.hold_until)
        if book.rules.displaces:
            times.append(old_at(workload))
        if book.class_of(workload.demand).account.quota:
            times.append(workload.waiting_since + queues.PATIENCE)
        if len(workload.demand.options) > 1:
            times.extend(fallback.opens_at(workload, book.class_of(workload.demand).never))
    if workload.load_low_since is not None:
        times.append(workload.load_low_since + elastic.STEADY)
    if workload.key in book.flexible:
        times.append(elastic.calm_until(workload))
    book.timers.set(("workload", workload.key), min((time for time in times if time > now), default=None))


def _cool_down_over(book: Book, lane: Lane) -> None:
    cool_down = book.state.cool_downs.get(lane.pool.name)
    if cool_down is not None and cool_down.until <= book.state.now:
        del book.state.cool_downs[lane.pool.name]
    book.touch(lane)


def _order(lane: Lane) -> tuple[bool, tuple[float, ...], int]:
    top = lane.top()
    return top is None, top[:4] if top is not None else (), lane.number
