"""The one protocol between the controller and whatever carries its commands out.

A backend executes commands and reports events. It may be asked for the same thing twice (after a crash the
controller replays its log and asks again), so `execute` is idempotent: what already runs is adopted, what is already
gone is reported gone. A backend never decides: which unit, which attempt and when is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stellwerk.scheduling.commands import Command, StartAttempt
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.model import Fleet, Option

Report = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything a backend needs to start one attempt.

    `declaration` is the workload as declared (`stellwerk.spec.Workload` dumped to JSON), `option` the chosen option,
    `fleet` the fleet of the moment, `checkpoint` the URI of the last checkpoint or None.
    """

    command: StartAttempt
    name: str
    kind: str
    option: Option
    declaration: Mapping[str, Any]
    fleet: Fleet
    checkpoint: str | None = None
    start_limit: float | None = None


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """An attempt that a backend found to exist, running or just ended, when asked after a restart."""

    workload: str
    attempt: int


class Backend(Protocol):
    """Carries commands out and reports what happens."""

    async def open(self, report: Report) -> list[LiveAttempt]:
        """Begin reporting; return what already exists. Events of the time away are reported after this returns.

        An attempt in the returned list is adopted or, if the log does not know it as live, removed by the controller
        with `StopAttempt`. An attempt that the log holds live and the list lacks is lost.
        """
        ...

    def launch(self, launch: Launch) -> None:
        """Carry out a `StartAttempt`; returns at once, progress comes as events."""
        ...

    def execute(self, command: Command) -> None:
        """Carry out any other command; returns at once."""
        ...

    async def close(self) -> None:
        """Stop reporting; what runs keeps running."""
        ...
