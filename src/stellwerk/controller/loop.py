"""The loop: an event is made durable, then folded into the state, then the commands that follow go to the backend.

Everything happens on one event loop and in this order, so what the log says is what was decided on. `report` may be
called from within a command that is being carried out; its event is durable at once and is folded when its turn comes.
An error in the fold means that the state cannot be trusted: the controller stops, and starts anew from its log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from stellwerk.backends.protocol import Backend, Launch
from stellwerk.controller.clock import Clock, Timer, WallClock
from stellwerk.controller.feed import Feed
from stellwerk.controller.log import Declared, Log
from stellwerk.controller.outlooks import Outlooks
from stellwerk.observe.ledger import Ledger
from stellwerk.scheduling.commands import Command, StartAttempt, WakeAt
from stellwerk.scheduling.events import AttemptEnded, Event, StopRequested, Woke
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import State

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
        self.scheduler = Scheduler(validate=validate)
        self.ledger = Ledger()
        self.feed = Feed(home / "workloads")
        self.outlooks = Outlooks()
        self.failed = asyncio.Event()
        self.closing = False
        """Set once nobody should wait for news any more."""
        self.busy_at = self.clock.now()
        """When there was work for the last time (s since the epoch)."""
        self._pending: deque[Event] = deque()
        self._draining = False
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
        return sum(1 for workload in self.state.workloads.values() if workload.phase != "ended")

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
        latest = self._pending[-1].at if self._pending else self.state.now
        stamped = [replace(event, at=(latest := max(latest, event.at))) for event in events]
        self.log.append(stamped, declared=declared, fleet=fleet)
        self._pending.extend(stamped)

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
            while self._pending:
                for command in self.fold(self._pending.popleft()):
                    self.carry_out(command)
        except BaseException:
            self.failed.set()
            raise
        finally:
            self._draining = False
            self._tell()

    def fold(self, event: Event) -> list[Command]:
        """Fold a durable event into all that is known; the commands that follow."""
        commands = self.scheduler.handle(event)
        self.ledger.observe(self.state)
        self.feed.observe(event, self.state)
        self.outlooks.observe(event, self.state)
        return commands

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
        self._closed = True
        self.log.close()

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
