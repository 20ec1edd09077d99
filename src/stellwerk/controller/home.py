"""What a controller keeps in its state folder for others: the lock, the token, and where it listens."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Home:
    """One state folder. It is its owner's alone (mode 0700)."""

    def __init__(self, folder: Path) -> None:
        """The folder, made when it is missing."""
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: int | None = None

    def lock(self) -> bool:
        """Take the lock that one running controller holds, until this process ends; False when another has it."""
        self._lock = os.open(self.folder / "controller.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
        return self._lock is not None

    def token(self) -> str:
        """The token that clients show; the same after a restart."""
        file = self.folder / "token"
        try:
            file.chmod(0o600)
            kept = file.read_text().strip()
        except FileNotFoundError:
            kept = ""
        if not kept:
            kept = secrets.token_urlsafe(32)
            write_file(file, f"{kept}\n".encode())
        return kept

    def announce(self, about: Mapping[str, Any]) -> None:
        """Write where the controller listens, whole or not at all."""
        write_file(self.folder / "controller.json", f"{json.dumps(dict(about))}\n".encode())

    def retire(self) -> None:
        """Take the announcement back."""
        (self.folder / "controller.json").unlink(missing_ok=True)


def write_file(file: Path, content: bytes, check: Callable[[Path], None] | None = None) -> None:
    """Write a file of its owner (mode 0600), whole or not at all, and durably.

    `check` looks at what was written before it gets its name; what it raises leaves everything as it was.
    """
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as writer:
        writer.write(content)
        writer.flush()
        os.fsync(writer.fileno())
    try:
        if check is not None:
            check(new)
    except BaseException:
        new.unlink()
        raise
    new.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
