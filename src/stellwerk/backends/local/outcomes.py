"""How an attempt ended, from what is left of its driver: whose doing it was decides what happens next."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

_OWN_CRASH = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
"""Signals that a program brings upon itself; others come from outside."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Outcome, cause (None for success), one line for people, and the entrypoint's exit code if it had one."""

    outcome: str
    cause: str | None
    message: str = ""
    exit_code: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As the fields of the journal's `ended` record."""
        return asdict(self)

    def with_note(self, note: str) -> Ending:
        """The same with something added to the message."""
        return replace(self, message=f"{self.message}; {note}" if self.message else note)


def driver_ending(file: Path, code: int, oom: bool) -> Ending:
    """The ending that a driver left in `file`, else what its exit says.

    `code` is its exit code, or minus the number of the signal that ended it; `oom` says that the kernel has ended a
    process for want of memory during the attempt.
    """
    told = _told(file)
    if told is not None:
        cause = told.get("cause")
        outcome = "succeeded" if cause is None else "failed"
        return Ending(outcome, cause, str(told.get("message") or ""), int(told.get("exit_code", code)))
    if code == 0:
        return Ending("succeeded", None, "", 0)
    if code > 0:
        return Ending("failed", "user-error", f"exit code {code}", code)
    name = _signal_name(-code)
    if oom and -code == signal.SIGKILL:
        return Ending("failed", "out-of-memory", "the kernel ended the driver for want of memory")
    if -code in _OWN_CRASH:
        return Ending("failed", "user-error", f"the driver crashed ({name})", 128 - code)
    return Ending("failed", "infrastructure", f"the driver was ended from outside ({name})")


def stop_ending(cause: str, driver: Ending | None) -> Ending:
    """The ending of an attempt that was told to stop; `driver` is how its driver left, if by itself."""
    message = {"stopped-by-user": "stopped on request", "infrastructure": "stopped: its hardware was lost"}
    return Ending("stopped", cause, message.get(cause, f"stopped: {cause}"), driver.exit_code if driver else None)


def lost_ending(hosts: list[str]) -> Ending:
    """The ending of a gang that lost hosts."""
    return Ending("failed", "infrastructure", f"lost {', '.join(hosts)}")


def _told(file: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", told) if isinstance(told, dict) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
