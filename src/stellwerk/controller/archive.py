"""Old events leave the database for compressed files beside it, and stay readable there.

A segment holds consecutive events, one a line, in `events-FIRST-LAST.jsonl.gz`; the log notes its name and SHA-256.
Only events that are older than an age and wholly before a snapshot go there, so that no start has to read them; a
replay from the first event still does, through `Log.events`.

Order, so that a kill at any point loses nothing and doubles nothing: the segment is written under another name, synced,
read back and compared, renamed, and the folder synced; only then, in one transaction, is it noted and are its events
deleted. A file that no note names is a leftover of a kill before that transaction: its events are still in the
table, so it is removed once it was found to say the same; if it does not, it is left alone and a line in the log says
so.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stellwerk.controller.home import write_file

if TYPE_CHECKING:
    from stellwerk.controller.log import Log

ARCHIVE_AGE = 90 * 86_400.0
"""Seconds after which events are archived, unless said otherwise."""

SEGMENT = 20_000
"""Events in a segment at most; deleting so many takes the loop some hundredths of a second."""

_logger = logging.getLogger(__name__)


class Record(NamedTuple):
    """An event as it is written down."""

    seq: int
    at: float
    type: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """Events `first` to `last`, in a file of the archive with this digest."""

    first: int
    last: int
    file: str
    sha256: str

    def row(self) -> dict[str, Any]:
        """As the log notes it."""
        return asdict(self)


class SegmentError(Exception):
    """A segment is missing or damaged; the message names the file."""


class Archive:
    """The segments in one folder, which is its owner's alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, records: Sequence[Record]) -> Segment:
        """Make a segment durable; it is read back before this returns. Raises OSError and SegmentError."""
        first, last = records[0].seq, records[-1].seq
        lines = b"".join(_line(record) for record in records)
        packed = gzip.compress(lines, compresslevel=6, mtime=0)
        segment = Segment(first, last, f"events-{first:012}-{last:012}.jsonl.gz", hashlib.sha256(packed).hexdigest())
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_file(self.folder / segment.file, packed, check=lambda file: self._check(file, segment, records))
        return segment

    def read(self, segment: Segment) -> Iterator[Record]:
        """The events of a segment in order; SegmentError when the file is missing, or is not the one that was noted."""
        file = self.folder / segment.file
        yield from _records(file, segment)

    def remove_leftovers(self, log: Log, noted: Collection[str]) -> None:
        """Remove files that a kill has left behind, if all they hold is still in the log's table."""
        for file in self.folder.glob(".events-*.new"):
            file.unlink(missing_ok=True)
        for file in sorted(self.folder.glob("events-*.jsonl.gz")):
            if file.name not in noted:
                _remove_if_doubled(log, file)

    def _check(self, file: Path, segment: Segment, records: Sequence[Record]) -> None:
        if [_line(record) for record in _records(file, segment)] != [_line(record) for record in records]:
            raise SegmentError(f"{file} does not hold what was written to it")


def _line(record: Record) -> bytes:
    text = json.dumps(dict(record._asdict()), separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def _records(file: Path, segment: Segment) -> Iterator[Record]:
    what = f"{file}, which holds events {segment.first} to {segment.last} of the log,"
    try:
        packed = file.read_bytes()
    except OSError as error:
        raise SegmentError(f"{what} cannot be read: {error.strerror}") from error
    if hashlib.sha256(packed).hexdigest() != segment.sha256:
        raise SegmentError(f"{what} is damaged: its SHA-256 is not {segment.sha256}")
    yield from _unpacked(packed)


def _unpacked(packed: bytes) -> Iterator[Record]:
    for line in gzip.decompress(packed).splitlines():
        yield Record(**json.loads(line))


def _remove_if_doubled(log: Log, file: Path) -> None:
    try:
        held = list(_unpacked(file.read_bytes()))
    except (OSError, EOFError, ValueError, TypeError, zlib.error):
        held = []
    if held and log.records(held[-1].seq + 1, math.inf, len(held)) == held:
        file.unlink(missing_ok=True)
        _logger.info("%s was left behind and is removed; its events are in the log", file)
    else:
        _logger.warning("%s is no segment of this log and is left alone", file)


async def archive(log: Log, *, before: int, older_than: float) -> list[Segment]:
    """Archive all events before number `before` and time `older_than` (s since the epoch); the new segments.

    Reading, packing and checking happen in another thread; only the last step of each segment takes the loop's time.
    """
    if log.archive is None:
        return []
    made: list[Segment] = []
    await asyncio.to_thread(log.archive.remove_leftovers, log, {segment.file for segment in log.segments()})
    while records := await asyncio.to_thread(log.records, before, older_than, SEGMENT):
        segment = await asyncio.to_thread(log.archive.write, records)
        log.archived(segment)
        made.append(segment)
        where = log.archive.folder / segment.file
        _logger.info("events %d to %d were archived in %s", segment.first, segment.last, where)
    return made
