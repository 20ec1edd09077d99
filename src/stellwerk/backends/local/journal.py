"""The journal of one attempt: every fact that its keeper learnt, in order, on the disk before it is told.

A JSON line per record: `{"seq", "at", "kind", ...}`. Only the keeper appends while it lives; a half-written last line
(a crash) is no record, and is cut off before the next one is written.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, cast

Record = dict[str, Any]


class Journal:
    """Appends records; `seq` counts from 1 over the whole life of the file."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending, behind its last whole record."""
        records, end = _parse(path)
        self._seq: int = records[-1]["seq"] if records else 0
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)

    @property
    def seq(self) -> int:
        """Number of the last record, 0 before the first."""
        return self._seq

    def append(self, kind: str, **fields: Any) -> Record:
        """Write a record; it is on the disk when this returns."""
        record: Record = {"seq": self._seq + 1, "at": time.time(), "kind": kind, **fields}
        os.write(self._file, (json.dumps(record) + "\n").encode())
        os.fsync(self._file)
        self._seq += 1
        return record

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class JournalReader:
    """Reads records as they come, from the byte behind the last one read."""

    def __init__(self, path: Path) -> None:
        """Read from the beginning; the file need not exist yet."""
        self._path, self._offset = path, 0

    def read(self) -> list[Record]:
        """The records that are new since the last call."""
        records, self._offset = _parse(self._path, self._offset)
        return records


def read(path: Path) -> list[Record]:
    """All records of a journal; none where there is no file."""
    return _parse(path)[0]


def ended(records: list[Record]) -> Record | None:
    """The record of the attempt's end, or None while it has none."""
    return next((record for record in records if record["kind"] == "ended"), None)


def _parse(path: Path, offset: int = 0) -> tuple[list[Record], int]:
    """Whole records from a byte on, and the byte behind the last of them."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            raw = file.read()
    except FileNotFoundError:
        return [], 0
    records: list[Record] = []
    for line in raw.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            records.append(cast("Record", json.loads(line)))
        except ValueError:
            break
        offset += len(line)
    return records, offset
