"""Text that attempts have written, read by offset: `workloads/KEY/attempt-N/logs/SOURCE.log`.

A source is `driver`, `UNIT-host-N` or `command-ID`; `start` and `keeper`, how the Ray nodes came up, are shown when
asked for. Offsets count bytes; a chunk never ends within a character.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LARGEST_CHUNK = 2**18
"""Bytes of one source that are handed out at once."""

_INNER = ("keeper", "start")


@dataclass(frozen=True, slots=True)
class Chunk:
    """New text of a source; `offset` (bytes) is where the next chunk begins."""

    source: str
    text: str
    offset: int


def read(workload: Path, attempt: int, after: Mapping[str, int], source: str | None = None) -> list[Chunk]:
    """What the sources of an attempt, or one of them, hold beyond `after`; `workload` is the workload's folder."""
    files = {file.stem: file for file in sorted((workload / f"attempt-{attempt}" / "logs").glob("*.log"))}
    wanted = [name for name in files if (name not in _INNER if source is None else name == source)]
    chunks = (_chunk(name, files[name], after.get(name, 0)) for name in wanted)
    return [chunk for chunk in chunks if chunk is not None]


def _chunk(source: str, file: Path, offset: int) -> Chunk | None:
    try:
        with file.open("rb") as reader:
            reader.seek(offset)
            raw = reader.read(LARGEST_CHUNK)
    except OSError:
        return None
    whole = _whole(raw)
    return Chunk(source, whole.decode("utf-8", errors="replace"), offset + len(whole)) if whole else None


def _whole(raw: bytes) -> bytes:
    """The bytes without the beginning of a character at their end."""
    for back in range(1, min(4, len(raw) + 1)):
        lead = raw[-back]
        if lead >= 0xC0:
            needed = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return raw[:-back] if back < needed else raw
        if lead < 0x80:
            break
    return raw
