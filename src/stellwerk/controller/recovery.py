"""After a crash at any point: replay the log, look at what really exists, and make both agree.

The log says what was decided, the backend what exists. A command may have been lost between the two, or carried
out without an answer. So nothing is remembered about commands; each is derived from the state once more:

* an attempt that is live in the log and exists is adopted, and is told to stop again where it was being stopped;
* one that does not exist was never launched while it is `starting`: it is launched, under the same number;
* one that was being resized is told its size once more;
* one that was running, or being stopped, and does not exist is over, and is reported as ended;
* one that exists and is not live in the log is stopped;
* units that are being made, rebuilt or given back are ordered so again, which backends do idempotently.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from stellwerk.backends.protocol import LiveAttempt
from stellwerk.controller.loop import Controller
from stellwerk.scheduling.commands import (
    Command,
    ProvisionUnit,
    RecycleUnit,
    ReleaseUnit,
    ResizeAttempt,
    StartAttempt,
    StopAttempt,
)
from stellwerk.scheduling.events import AttemptEnded, Event, Woke
from stellwerk.scheduling.state import State, UnitState, WorkloadState

GRACE = 10.0
"""Seconds left to an attempt that is told to stop once more."""

_logger = logging.getLogger(__name__)


async def recover(controller: Controller) -> None:
    """Bring a new controller to where the last one was, and go on from there."""
    for _seq, event in controller.log.events():
        controller.fold(event)
    controller.feed.go_live()
    with controller.hold():
        existing = await controller.backend.open(controller.report)
        commands, events = reconcile(controller.state, existing, controller.clock.now())
        if controller.state.wake_at is not None:
            controller.wake_at(controller.state.wake_at)
        for command in commands:
            _logger.info("once more: %s", command)
            controller.carry_out(command)
        controller.append([*events, Woke(controller.clock.now())])
    controller.drain()


def reconcile(state: State, existing: Sequence[LiveAttempt], now: float) -> tuple[list[Command], list[Event]]:
    """The commands to repeat and the events to add, from the replayed state and what exists."""
    found = set(existing)
    commands: list[Command] = []
    events: list[Event] = []
    for workload in state.workloads.values():
        attempt = workload.live
        if attempt is None:
            continue
        exists = LiveAttempt(workload.key, attempt.number) in found
        found.discard(LiveAttempt(workload.key, attempt.number))
        if workload.phase == "stopping" and exists:
            cause = workload.stop_cause or "infrastructure"
            commands.append(StopAttempt(workload.key, attempt.number, cause, GRACE))
        elif workload.phase == "starting" and not exists:
            commands.append(StartAttempt(workload.key, attempt.number, attempt.option, attempt.grants))
        elif not exists:
            events.append(_lost(workload, attempt.number, now))
        if workload.phase in ("starting", "running") and attempt.settled != attempt.resizes:
            commands.append(ResizeAttempt(workload.key, attempt.number, attempt.resizes, attempt.grants))
    strays = sorted(found, key=lambda stray: (stray.workload, stray.attempt))
    commands.extend(StopAttempt(stray.workload, stray.attempt, "infrastructure", 0.0) for stray in strays)
    commands.extend(command for unit in state.units.values() for command in _unit_orders(unit))
    return commands, events


def _lost(workload: WorkloadState, number: int, now: float) -> AttemptEnded:
    cause = workload.stop_cause or "infrastructure"
    outcome = "stopped" if cause == "stopped-by-user" else "failed"
    return AttemptEnded(now, workload.key, number, outcome, cause, "it was gone when the controller came back")


def _unit_orders(unit: UnitState) -> Iterator[Command]:
    if unit.phase == "provisioning":
        yield ProvisionUnit(unit.pool, unit.name, unit.incarnation)
    elif unit.phase == "recycling":
        yield RecycleUnit(unit.pool, unit.name, unit.incarnation)
    elif unit.phase == "releasing":
        yield ReleaseUnit(unit.name, unit.incarnation)
