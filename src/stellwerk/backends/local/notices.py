"""Notices of preemption that are running: which unit will be taken away, and when.

They are kept in a file of the state folder, so that a unit that was noticed is also taken away when the controller was
killed in between.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

Unit = tuple[str, int]
"""A unit's name and its incarnation."""


class Notices:
    """The notices of one state folder."""

    def __init__(self, home: Path) -> None:
        """Read what is kept; a damaged file has no notices."""
        self._file = home / "notices.json"
        self._deadlines: dict[Unit, float] = {}
        try:
            kept = json.loads(self._file.read_text())
            self._deadlines = {(str(unit), int(incarnation)): float(at) for unit, incarnation, at in kept}
        except (OSError, ValueError, TypeError):
            return

    def running(self) -> list[tuple[Unit, float]]:
        """All notices with their deadlines (epoch seconds), the earliest first."""
        return sorted(self._deadlines.items(), key=lambda notice: (notice[1], notice[0]))

    def give(self, unit: Unit, deadline: float) -> None:
        """Keep a notice."""
        self._deadlines[unit] = deadline
        self._write()

    def drop(self, unit: Unit) -> None:
        """The unit is gone."""
        if self._deadlines.pop(unit, None) is not None:
            self._write()

    def _write(self) -> None:
        part = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        kept = [[*unit, at] for unit, at in self.running()]
        with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            json.dump(kept, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._file)
