"""The loop: an event is made durable, then folded into the state, then the commands that follow go to the backend.

Everything happens on one event loop and in this order, so what the log says is what was decided on. `report` may be
called from within a command that is being carried out; its event is durable at once and is folded when its turn comes.
An error in the fold means that the state cannot be trusted: the controller stops, and starts anew from its log.

Now and then, and when it is closed, a snapshot is taken of everything that was folded (see
`stellwerk.controller.snapshot`). What has ended is in the log's tables from then on (`past`), and looked up there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from stellwerk.backends.protocol import Backend, Launch
from stellwerk.controller.clock import Clock, Timer, WallClock
from stellwerk.controller.feed import Feed
from stellwerk.controller.hindsight import Hindsight
from stellwerk.controller.log import Declared, Log
from stellwerk.controller.outlooks import Outlooks
from stellwerk.controller.past import Gone, newest
from stellwerk.controller.snapshot import EVERY, SHARE, WORK, Folded, Snapshots
from stellwerk.observe.ledger import Ledger
from stellwerk.scheduling import codec
from stellwerk.scheduling.commands import Command, StartAttempt, WakeAt
from stellwerk.scheduling.events import AttemptEnded, Event, SnapshotTaken, StopRequested, Woke
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import State, WorkloadState

MUCH = 2_000
"""Rows about what is over that are worth a transaction of their own."""

_log = logging.getLogger(__name__)


class Failed(Exception):
    """The controller has failed and takes no more events; what it took is in the log."""


class Controller:
    """Drives one scheduler with one backend. `recovery.recover` must have run before events are handed in."""

    def __init__(
        self, home: Path, backend: Backend, log: Log, clock: Clock | None = None, *, validate: bool = False
    ) -> None:
        """A controller for the state folder `home`; `validate` checks the scheduler's invariants after every event."""
        self.home = home
        self.backend = backend
        self.log = log
        self.clock = clock or WallClock()
        self.snapshots = Snapshots(home / "snapshots")
        self._validate = validate
        self._hindsight = Hindsight(home / "forecasts.jsonl")
        self.reset()
        self.folded = 0
        """The number of the last event that was folded."""
        self.failed = asyncio.Event()
        self.closing = False
        """Set once nobody should wait for news any more."""
        self.busy_at = self.clock.now()
        """When there was work for the last time (s since the epoch)."""
        self._pending: deque[tuple[int, Event]] = deque()
        self._draining = False
        self._live = False
        self._worked = False
        self._closed = False
        self._timer: Timer | None = None
        self._news = asyncio.Event()

    @property
    def state(self) -> State:
        """What the scheduler knows. Read only."""
        return self.scheduler.state

    @property
    def living(self) -> int:
        """Workloads that have not ended."""
        return self.state.submissions - self._over

    def reset(self, state: State | None = None) -> None:
        """Know nothing, or that state alone; what is folded beside it is empty."""
        self.scheduler = Scheduler(validate=self._validate, state=state)
        self.ledger = Ledger(self.log.past)
        self.feed = Feed(self.home / "workloads")
        self.outlooks = Outlooks(self._hindsight)
        self.folds: dict[str, Folded] = {"ledger": self.ledger, "feed": self.feed, "outlooks": self.outlooks}
        """What is folded beside the scheduler's state, by its name in snapshots."""
        self._ended: list[WorkloadState] = []
        self._since, self._work, self._cost = 0, 0.0, 0.0
        living = sum(1 for workload in self.state.workloads.values() if workload.phase != "ended")
        self._over = self.state.submissions - living

    def dump(self) -> dict[str, str]:
        """Everything that is folded from the log, for a snapshot: the same after the same events, byte for byte.

        But for what is over, which is in the log's tables and leaves the state with `SnapshotTaken`.
        """
        state = copy(self.state)
        state.workloads = {key: each for key, each in state.workloads.items() if each.phase != "ended"}
        return {"scheduler": codec.dump(state)} | {name: each.dump() for name, each in self.folds.items()}

    def load(self, parts: Mapping[str, str]) -> None:
        """Become what `dump` wrote. ValueError, KeyError or TypeError when it is not that; `reset` then."""
        self.reset(codec.load(State, parts["scheduler"]))
        for name, each in self.folds.items():
            each.load(parts[name])

    def go_live(self) -> None:
        """The log is folded; what comes from now on is new."""
        self._live = True
        self.feed.go_live()

    def workload(self, key: str) -> WorkloadState | None:
        """The workload of that key, also one that ended long ago."""
        return self.state.workloads.get(key) or self.log.past.workload(key)

    def history(self, name: str | None = None, limit: int | None = None) -> list[WorkloadState]:
        """Workloads that have ended, the latest submitted first; of that name, and no more than `limit`."""
        recent = (each for each in self.state.workloads.values() if each.phase == "ended")
        named = [each for each in recent if name in (None, each.demand.name)]
        return newest(named, self.log.past.ended(name, limit))[:limit]

    def report(self, event: Event) -> None:
        """Take an event in; it is durable when this returns. To be called on the controller's event loop."""
        self.take([event])

    def take(
        self, events: Sequence[Event], *, declared: Declared | None = None, fleet: Mapping[str, Any] | None = None
    ) -> None:
        """Take events in with what belongs to them, all or none of it; then do what follows."""
        self.append(events, declared=declared, fleet=fleet)
        self.drain()

    def append(
        self, events: Sequence[Event], *, declared: Declared | None = None, fleet: Mapping[str, Any] | None = None
    ) -> None:
        """Make events durable and keep them for `drain`. Times in the log never run backwards."""
        if self.failed.is_set() or self._closed:
            raise Failed("the controller has ended; its log has the cause")
        latest = self._pending[-1][1].at if self._pending else self.state.now
        stamped = [replace(event, at=(latest := max(latest, event.at))) for event in events]
        gone = self._gone()
        last = self.log.append(stamped, declared=declared, fleet=fleet, gone=gone)
        self._kept(gone)
        self._pending.extend(zip(range(last - len(stamped) + 1, last + 1), stamped, strict=True))

    @contextmanager
    def hold(self) -> Generator[None]:
        """Within this, events are made durable and wait; `drain` afterwards folds them."""
        self._draining = True
        try:
            yield
        finally:
            self._draining = False

    def drain(self) -> None:
        """Fold what is pending and carry out what follows."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._pending or self._take_snapshot():
                seq, event = self._pending.popleft()
                commands = self.fold(event)
                self.folded = seq
                for command in commands:
                    self.carry_out(command)
        except BaseException:
            self.failed.set()
            raise
        finally:
            self._draining = False
            self._tell()

    def fold(self, event: Event) -> list[Command]:
        """Fold a durable event into all that is known; the commands that follow."""
        began = time.perf_counter()
        if isinstance(event, SnapshotTaken):
            self._set_down()
        commands, over = self.scheduler.handle(event), self.scheduler.over
        self.ledger.observe(self.state, event, commands)
        self.feed.observe(event, self.state, commands, over)
        self.outlooks.observe(event, self.state)
        self._ended += over
        self._over += len(over)
        self._count(event, time.perf_counter() - began)
        return commands

    def snapshot(self) -> None:
        """Take a snapshot, unless nothing has happened since the last."""
        if self._since:
            self.report(SnapshotTaken(self.clock.now()))

    def write_gone(self, least: int = MUCH) -> None:
        """Write down what is over, if it is `least` rows or more; otherwise the next event takes it along."""
        if len(self._ended) + len(self.ledger.closed) >= least:
            gone = self._gone()
            self.log.keep(gone)
            self._kept(gone)

    def _gone(self) -> Gone:
        return Gone(self.folded, tuple(self._ended), tuple(self.ledger.closed))

    def _kept(self, gone: Gone) -> None:
        del self._ended[: len(gone.ended)]
        self.ledger.hand_over(len(gone.spans))

    def _set_down(self) -> None:
        """Write down what is over and, unless this was done before the controller started, everything that is known."""
        gone = self._gone()
        self.log.keep(gone, whole=True)
        self._kept(gone)
        mark = self.log.mark(self.folded) if self._live else None
        if mark is not None:
            self.snapshots.write_soon(self.folded, mark[0], self.dump())

    def _count(self, event: Event, seconds: float) -> None:
        """Note what folding has cost since the last snapshot, and what that one did."""
        if isinstance(event, SnapshotTaken):
            self._since, self._work, self._cost = 0, 0.0, seconds
        else:
            self._since, self._work = self._since + 1, self._work + seconds

    def _take_snapshot(self) -> bool:
        """Hand in `SnapshotTaken` when one is due."""
        much = self._since >= EVERY or self._work >= WORK
        if not (self._live and much and self._work >= SHARE * self._cost):
            return False
        self.append([SnapshotTaken(self.state.now)])
        return True

    def carry_out(self, command: Command) -> None:
        """Give a command to whom it is for. A backend that cannot start an attempt has failed it."""
        try:
            if isinstance(command, WakeAt):
                self.wake_at(command.at)
            elif isinstance(command, StartAttempt):
                self.backend.launch(self._launch(command))
            else:
                self.backend.execute(command)
        except Exception as error:
            _log.exception("the backend did not carry out %s", command)
            if isinstance(command, StartAttempt):
                self._refused(command, error)

    def wake_at(self, at: float) -> None:
        """Hand in `Woke` at that time; replaces what was asked for before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.clock.call_at(at, lambda: self._woke(at))

    def request_stop(self, key: str, grace: float) -> None:
        """A person wants a workload to end; `grace` in seconds."""
        self.report(StopRequested(self.clock.now(), key, grace))

    async def news(self, timeout: float) -> None:
        """Return when anything has changed, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Stop; what runs keeps running, and the next controller adopts it."""
        self.end_waits()
        if self._timer is not None:
            self._timer.cancel()
        await self.backend.close()
        try:
            self._leave_snapshot()
        finally:
            self._closed = True
            self.snapshots.wait()
            self.log.close()

    def _leave_snapshot(self) -> None:
        """Take a snapshot for the next controller, if more has happened than that this one has started."""
        if self._live and self._since > 1 and not self._pending and not self.failed.is_set():
            self.append([SnapshotTaken(self.state.now)])
            self._set_down()

    def end_waits(self) -> None:
        """Wake all who wait for news, for the last time."""
        self.closing = True
        self._tell()

    def _woke(self, at: float) -> None:
        self.report(Woke(max(at, self.clock.now())))

    def _launch(self, command: StartAttempt) -> Launch:
        workload = self.state.workloads[command.workload]
        declared = self.log.declared(key=command.workload)
        demand = workload.demand
        return Launch(
            command=command,
            name=demand.name,
            kind=demand.kind,
            option=demand.options[command.option],
            declaration=declared.declaration if declared else {},
            fleet=self.state.fleet,
            checkpoint=workload.checkpoint,
            start_limit=demand.limits.start,
        )

    def _refused(self, command: StartAttempt, error: Exception) -> None:
        message = f"the attempt could not be started: {error}"
        now = self.clock.now()
        self.report(AttemptEnded(now, command.workload, command.attempt, "failed", "infrastructure", message))

    def _tell(self) -> None:
        """Wake all who wait for news; those who come later wait for the next."""
        works = self.living > 0
        if works or self._worked:
            self.busy_at = self.clock.now()
        self._worked = works
        news, self._news = self._news, asyncio.Event()
        news.set()
