"""What some backends can do beyond carrying commands out: break something on purpose, run commands in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

CHAOS = ("kill-host", "kill-unit", "preempt")


class Refused(Exception):
    """The backend cannot do this to this workload now; the message says why."""


@runtime_checkable
class Breaks(Protocol):
    """A backend whose hosts can be broken on purpose."""

    def chaos(self, kind: str, unit: str, incarnation: int, host: int | None) -> None:
        """Break a host, or the whole unit where `host` is None. What follows is reported as events."""
        ...


@runtime_checkable
class RunsCommands(Protocol):
    """A backend that can run a command as a driver in the Ray cluster of a running attempt."""

    def command(self, workload: str, attempt: int, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
        """Start a command; its id. Its output is the log source `command-ID` of the attempt."""
        ...

    def command_result(self, workload: str, attempt: int, command: str) -> int | None:
        """Its exit code, None while it runs; KeyError when there is no such command."""
        ...
