"""Starting a controller in the background and waiting until it answers.

Several clients may start one at the same time: the controller's own lock decides which stays, and every client waits
for whichever answers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from stellwerk.api.client import Client
from stellwerk.api.errors import NoController

_POLL = 0.05  # s
_TAIL = 5  # lines of the log shown when a controller does not come up

# Kept so that a controller which ends while this process lives is not left a zombie.
_started: list[subprocess.Popen[bytes]] = []


def start_controller(home: Path, timeout: float = 60) -> None:
    """Start a controller for `home`, detached from this terminal; returns when one answers.

    Raises `NoController` with the end of its log when none has answered within `timeout` seconds.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    process = spawn(home, detached=True)
    _started[:] = [earlier for earlier in _started if earlier.poll() is None] + [process]
    wait_until_ready(home, process, timeout)


def spawn(home: Path, *, detached: bool) -> subprocess.Popen[bytes]:
    """The controller's process: in the background with its output in `controller.log`, or on this terminal."""
    command = [sys.executable, "-m", "stellwerk.api", "--home", str(home)]
    if not detached:
        return subprocess.Popen(command)
    log = os.open(home / "controller.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=home
        )
    finally:
        os.close(log)


def wait_until_ready(home: Path, process: subprocess.Popen[bytes], timeout: float) -> None:
    """Return when a controller answers for `home`; raise `NoController` when `process` failed or time is up."""
    deadline = time.monotonic() + timeout
    failed_at: float | None = None
    while True:
        try:
            Client.connect(home)
            return
        except NoController:
            now = time.monotonic()
        if process.poll() is not None:
            # It may have lost the race to another one, which then needs a moment to answer.
            failed_at = failed_at or now
        lost = failed_at is not None and (process.returncode != 0 and now - failed_at > 2)
        if lost or now > deadline:
            raise NoController(home, f"one was started and did not answer{_last_words(home)}")
        time.sleep(_POLL)


def _last_words(home: Path) -> str:
    path = home / "controller.log"
    try:
        lines = path.read_text(errors="replace").splitlines()[-_TAIL:]
    except OSError:
        return ""
    return f"; the end of {path}:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
