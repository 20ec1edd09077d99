"""Snapshots: all that is folded from the log, as it was after one event, so that a start need not fold every event.

Why files beside the log and not a table in it: a snapshot is one large write that nothing else depends on. In a file it
is written and synced by another thread while events are appended; in SQLite it would hold the one write lock, and an
event, and with it a command, would wait. A file is right for every database too: a controller that lost its files, or
moved without them, folds all events.

A snapshot is taken when the event `SnapshotTaken` is folded, before it changes anything: it holds the state up to the
event before. That event makes the indexes of the scheduler anew from the state, in a controller that goes on, in one
that starts from the snapshot and in one that folds all events. So all three decide alike from there on by construction,
and nothing derived has to be written down. It also takes what has ended out of the state, which is in the tables of
`stellwerk.controller.past` by then.

The first line of `snapshot-SEQ.jsonl` says which event of which log it was taken after, and has the SHA-256 of the
rest, which is a line for the scheduler's state and one for each thing that is folded beside it. Files are written whole
or not at all, and the last two are kept.

Limits: the loop waits while what lives is put into words and the indexes are made anew, which takes some hundredths of
a second, and about a second for 20,000 that wait. So that this stays a small part of the work, the next one is not due
before folding has taken `SHARE` times as long.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from stellwerk import __version__
from stellwerk.controller.home import write_file
from stellwerk.controller.log import Log

SCHEMA = 1
"""Of the files here. It rises when what is folded means something else; other snapshots are then passed over."""

KEPT = 2
"""Snapshots that are kept."""

EVERY = 2_500
"""Events after which a snapshot is due."""

WORK = 2.0
"""Seconds of folding after which one is due too, since a start has to fold as much again."""

SHARE = 20.0
"""Folding since the last snapshot is at least so many times what taking that one cost the loop."""

_NAME = "snapshot-{:012}.jsonl"
_PATTERN = "snapshot-" + "[0-9]" * 12 + ".jsonl"
_logger = logging.getLogger(__name__)


class Folded(Protocol):
    """Something that is folded from the events beside the scheduler's state, and takes part in snapshots."""

    def dump(self) -> str:
        """All that it knows, as one line; equal for all that have folded the same events."""
        ...

    def load(self, text: str) -> None:
        """Become what `dump` wrote. ValueError, KeyError or TypeError when it is not that; then nothing has changed."""
        ...


class Unusable(Exception):
    """A file is no snapshot of this log that this version can start from; the message says why."""


@dataclass(frozen=True, slots=True)
class About:
    """The first line of a snapshot: taken after event `seq`, whose digest is `event`, by `version`."""

    schema: int
    version: str
    seq: int
    event: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is whole: the line of each part by its name."""

    seq: int
    parts: Mapping[str, str]


class Snapshots:
    """The snapshots in one folder, which is its owner's alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing: threading.Thread | None = None

    def write(self, seq: int, event: str, parts: Mapping[str, str]) -> None:
        """Make a snapshot durable, and remove older ones but one. Raises OSError."""
        body = "".join(f"{name} {line}\n" for name, line in parts.items()).encode()
        about = About(SCHEMA, __version__, seq, event, hashlib.sha256(body).hexdigest())
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_file(self.folder / _NAME.format(seq), json.dumps(asdict(about)).encode() + b"\n" + body)
        for file in (*self._files()[KEPT:], *self.folder.glob(".snapshot-*.new")):
            file.unlink(missing_ok=True)

    def write_soon(self, seq: int, event: str, parts: Mapping[str, str]) -> None:
        """The same in another thread, after what is being written. A failure is logged: the events are safe."""
        self.wait()
        self._writing = threading.Thread(target=self._try_to_write, args=(seq, event, parts), name="snapshot")
        self._writing.start()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def usable(self, log: Log) -> Iterator[Snapshot]:
        """Snapshots that a controller of this log can start from, the newest first; others are named in the log."""
        whole = log.past.upto()
        for file in self._files():
            try:
                yield _read(file, log, whole)
            except Unusable as problem:
                _logger.warning("%s is passed over: %s", file, problem)

    def before(self) -> int:
        """The least event number that a kept snapshot was taken after; 0 without one."""
        files = self._files()
        return int(files[-1].stem.partition("-")[2]) if files else 0

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(_PATTERN), reverse=True)

    def _try_to_write(self, seq: int, event: str, parts: Mapping[str, str]) -> None:
        try:
            self.write(seq, event, parts)
        except OSError as error:
            _logger.error("the snapshot after event %d could not be written: %s", seq, error)


def _read(file: Path, log: Log, whole: int) -> Snapshot:
    head, _, body = _content(file).partition(b"\n")
    about = _about(head)
    if about.schema != SCHEMA:
        raise Unusable(f"it has schema {about.schema} (version {about.version}), and this version reads {SCHEMA}")
    if hashlib.sha256(body).hexdigest() != about.sha256:
        raise Unusable("it is damaged: its SHA-256 is not what its first line says")
    if log.mark(about.seq) != (about.event, "SnapshotTaken"):
        raise Unusable(f"it was not taken after event {about.seq} of this log")
    if about.seq > whole:
        raise Unusable(f"it was taken after event {about.seq}, and what was over is known up to event {whole}")
    return Snapshot(about.seq, _parts(body.decode().splitlines()))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from error


def _about(head: bytes) -> About:
    try:
        fields: dict[str, Any] = dict(json.loads(head))
        if fields["schema"] != SCHEMA:
            return About(fields["schema"], str(fields["version"]), 0, "", "")
        return About(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise Unusable("its first line is not that of a snapshot") from error


def _parts(lines: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition(" ") for line in lines)
    return {name: line for name, _, line in pairs}
