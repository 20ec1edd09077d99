"""Following what an attempt writes while it runs: the output of its Ray workers, and its reports.

Workers write into the log folder of their own host. Their lines are gathered into one log per host, and the files are
linked into the head's folder, where the one log monitor of the cluster reads them for the driver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

_CHUNK = 2**20
_MARKS = (b":job_id:", b":actor_name:", b":task_name:")
"""Lines that Ray writes for its own log monitor."""


class HostLog:
    """The workers' output of one host, gathered in `HOST.log`."""

    def __init__(self, folder: Path, target: Path, head_logs: Path | None) -> None:
        """`folder` is where the host's Ray processes log; None for `head_logs` on the head itself."""
        self._folder, self._head_logs = folder, head_logs
        self._offsets: dict[str, int] = {}
        self._target = target

    def poll(self) -> None:
        """Take what is new."""
        for entry in self._worker_files():
            if entry.name not in self._offsets:
                self._offsets[entry.name] = 0
                self._show_to_driver(entry.name)
            self._take(entry.name)

    def _worker_files(self) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder) as entries:
                found = [entry for entry in entries if entry.name.startswith("worker-") and not entry.is_symlink()]
        except OSError:
            return
        yield from sorted(found, key=lambda entry: entry.name)

    def _show_to_driver(self, name: str) -> None:
        if self._head_logs is None:
            return
        try:
            (self._head_logs / name).symlink_to(self._folder / name)
        except OSError:
            return

    def _take(self, name: str) -> None:
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(self._offsets[name])
                raw = file.read(_CHUNK)
        except OSError:
            return
        whole = raw[: raw.rfind(b"\n") + 1] if len(raw) < _CHUNK else raw
        self._offsets[name] += len(whole)
        lines = [line for line in whole.splitlines(keepends=True) if not line.startswith(_MARKS)]
        if lines:
            with self._target.open("ab") as target:
                target.writelines(lines)


class Reports:
    """The records that the workload's own code appends to its reports file."""

    def __init__(self, file: Path) -> None:
        """The file need not exist yet."""
        self._file, self._offset = file, 0

    def poll(self) -> list[dict[str, Any]]:
        """New records; lines that are none are passed over, they are the workload's own doing."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                raw = file.read()
        except OSError:
            return []
        whole = raw[: raw.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [record for line in whole.splitlines() if (record := _record(line)) is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", record) if isinstance(record, dict) else None
