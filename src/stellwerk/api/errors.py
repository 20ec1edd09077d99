"""What can go wrong between a user and the controller; each is told to people as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class NoController(Exception):
    """No controller answers for this home."""

    def __init__(self, home: Path, detail: str = "") -> None:
        self.home = home
        super().__init__(f"no controller runs for {home}" + (f": {detail}" if detail else ""))


class ApiError(Exception):
    """The controller refused a request. `problems` is filled when a declaration was wrong (status 422)."""

    def __init__(self, status: int, message: str, problems: Sequence[Mapping[str, Any]] = ()) -> None:
        self.status = status
        self.problems = tuple(problems)
        super().__init__(message)


class NotSupported(Exception):
    """A declaration is right, but this version does not run it yet; nothing was changed."""
