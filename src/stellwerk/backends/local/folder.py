"""Where an attempt keeps what lasts: `workloads/KEY/attempt-N` in the state folder.

`plan.json` (what to run; it has the token, 0600), `keeper.lock` (held while the keeper lives), `journal.jsonl`,
`acked` (the last record that the controller has made its own), `reports.jsonl`, `drain.json`, `allocation.json` (what
is held now, and what is about to be left, once it was resized), `released` (the code has left that), `outcome.json`,
`logs/`, and `work/`: the attempt's own copy of the bundle, where its code runs and what it writes there stays.
Beside the attempts lies `checkpoints/`, which they share. Sockets and Ray's own files need short paths and are in
`/tmp/sw-XXXXXXXX`, which the plan names.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from stellwerk.backends.local import journal


class AttemptFolder:
    """The files of one attempt."""

    def __init__(self, path: Path) -> None:
        """The folder need not exist yet."""
        self.path = path
        self.journal = path / "journal.jsonl"
        self.lock = path / "keeper.lock"
        self.reports = path / "reports.jsonl"
        self.drain = path / "drain.json"
        self.allocation = path / "allocation.json"
        self.released = path / "released"
        self.outcome = path / "outcome.json"
        self.logs = path / "logs"
        self.work = path / "work"

    @property
    def workload(self) -> str:
        """The workload's key."""
        return self.path.parent.name

    @property
    def attempt(self) -> int:
        """The attempt's number."""
        return int(self.path.name.removeprefix("attempt-"))

    def create(self, plan: Mapping[str, Any]) -> None:
        """Make the folder and write the plan, whole or not at all."""
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("plan.json", json.dumps(plan))

    def plan(self) -> dict[str, Any]:
        """The plan; FileNotFoundError before it is written."""
        return cast("dict[str, Any]", json.loads((self.path / "plan.json").read_text()))

    def planned(self) -> bool:
        """Whether there is a plan."""
        return (self.path / "plan.json").exists()

    def began(self) -> bool:
        """Whether a keeper has begun with it."""
        return bool(journal.read(self.journal))

    def kept(self) -> bool:
        """Whether a keeper lives."""
        try:
            file = os.open(self.lock, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def acked(self) -> int:
        """Number of the last record that the controller has made its own."""
        try:
            return int((self.path / "acked").read_text())
        except (OSError, ValueError):
            return 0

    def ack(self, seq: int) -> None:
        """Remember that the controller has made this record its own."""
        self._write("acked", str(seq))

    def write_drain(self, deadline: float, reason: str) -> None:
        """Tell the code of the attempt that it has to leave before `deadline` (epoch seconds)."""
        self._write("drain.json", json.dumps({"deadline": deadline, "reason": reason, "at": time.time()}))

    def write_allocation(self, allocation: Mapping[str, Any]) -> None:
        """Tell the code of the attempt what it holds, and what of it is about to be left."""
        self._write("allocation.json", json.dumps(allocation))

    def let_go(self, resize: int) -> bool:
        """Whether the code has left what it was told to leave by this order."""
        try:
            return self.released.read_text().strip() == str(resize)
        except OSError:
            return False

    def _write(self, name: str, text: str) -> None:
        part = self.path / f".{name}.{os.getpid()}"
        with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / name)


def attempt_folder(home: Path, workload: str, attempt: int) -> AttemptFolder:
    """The folder of an attempt."""
    return AttemptFolder(home / "workloads" / workload / f"attempt-{attempt}")


def attempt_folders(home: Path) -> Iterator[AttemptFolder]:
    """Every attempt that has been planned in a state folder."""
    for path in sorted((home / "workloads").glob("*/attempt-*/plan.json")):
        yield AttemptFolder(path.parent)


def home_id(home: Path) -> str:
    """What tells the processes of one state folder from those of another on the same machine."""
    return sha256(os.fsencode(home.resolve())).hexdigest()[:12]


def make_run_dir(marker: str) -> Path:
    """A private folder (0700) with a short path; the same for the same attempt, where nobody else has taken it."""
    root = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
    wanted = root / f"sw-{sha256(marker.encode()).hexdigest()[:8]}"
    try:
        wanted.mkdir(mode=0o700)
    except FileExistsError:
        found = wanted.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return Path(tempfile.mkdtemp(prefix="sw-", dir=root))
    return wanted


def network(marker: str) -> str:
    """The head's loopback address, `127.A.B.1`; its hosts have the addresses after it."""
    digest = sha256(f"network/{marker}".encode()).digest()
    return f"127.{1 + digest[0] % 254}.{digest[1]}.1"
