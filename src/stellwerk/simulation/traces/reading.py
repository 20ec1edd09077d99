"""`FILE` or `FILE:FORMAT` to a trace. The format is seen from the content, so that a file's name does not matter.

A format is one module with `fits` (is it this?) and `read`. Compression is told from the first bytes, and so is a
database, which Stellwerk's own event log is.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from stellwerk.simulation.collector import collected_later
from stellwerk.simulation.traces import generated, log, openb, philly, swf, table
from stellwerk.simulation.traces.model import Trace
from stellwerk.simulation.traces.rows import Rows, refuse, rows_of_csv, rows_of_parquet
from stellwerk.spec.problems import allowed, did_you_mean, listed, nearest, shown

FORMATS = ("philly", "swf", "openb", "table", "log", "generated")
LARGEST = 1 << 31

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_SQLITE = b"SQLite format 3\0"
_FITS: dict[str, Callable[[list[str]], bool]] = {"table": table.fits, "openb": openb.fits, "philly": philly.fits}


def read(source: str, accelerator: str | None = None, extra_accelerators: Iterable[str] = (), seed: int = 0) -> Trace:
    """Read a trace from `FILE` or `FILE:FORMAT`, plain or gzipped; a state folder stands for the log in it.

    `accelerator` is what jobs run on that name no hardware; `extra_accelerators` are names that only the
    fleet declares; by `seed` (0 or more) generated demand is drawn. Raises `SpecError` with the place of what
    cannot be read.
    """
    file, format = _split(source)
    extra = frozenset(word.lower() for word in extra_accelerators)
    with collected_later():
        return _read(file, format, accelerator, extra, seed)


def _read(file: str, format: str | None, accelerator: str | None, extra: frozenset[str], seed: int) -> Trace:
    name = Path(file).name.split(".")[0] or "trace"
    if format == "log" or (format is None and log.is_log(file)):
        return log.read(file, name, accelerator, extra)
    data = _bytes_of(file)
    if data.startswith(_PARQUET):
        rows = rows_of_parquet(file, data)
        return _of_rows(rows, format or _seen(rows.header, file), name, accelerator, extra)
    text = _text_of(file, data)
    if format == "generated" or (format is None and generated.fits(text)):
        return generated.read(file, data, name, accelerator, extra, seed)
    if format == "swf" or (format is None and swf.fits(text)):
        return swf.read(file, text, name, accelerator)
    rows = rows_of_csv(file, text)
    return _of_rows(rows, format or _seen(rows.header, file), name, accelerator, extra)


def _of_rows(rows: Rows, format: str, name: str, accelerator: str | None, extra: frozenset[str]) -> Trace:
    if format not in _FITS or not _FITS[format](rows.header):
        message = f"its columns are {listed(rows.header)}, which is not the format {format}"
        refuse(rows.file, "wrong-format", message, "leave the format out", 1)
    match format:
        case "philly":
            return philly.read(rows, name, accelerator)
        case "openb":
            return openb.read(rows, name, accelerator)
        case _:
            return table.read(rows, name, accelerator, extra)


def _split(source: str) -> tuple[str, str | None]:
    """The file and the format that was named, if any; a colon may also belong to the file's name."""
    file, colon, format = source.rpartition(":")
    if not colon or os.path.exists(source):
        return source, None
    if format in FORMATS:
        return file, format
    if os.path.exists(file):
        message = f"{shown(format)} is not a format of traces; {allowed(FORMATS)}"
        refuse(file, "unknown-format", message, did_you_mean(format, FORMATS))
    return source, None


def _seen(header: list[str], file: str) -> str:
    """The format that a table's columns are of."""
    for format, fits in _FITS.items():
        if fits(header):
            return format
    message = f"no trace has these columns: {', '.join(map(shown, header[:12]))}"
    refuse(file, "unknown-format", message, f"known formats are {listed(FORMATS)}; see docs/simulation.md", 1)


def _bytes_of(file: str) -> bytes:
    """The file's content, unpacked. Raises `SpecError` when there is none or it is too large."""
    path = Path(file)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            refuse(file, "not-a-file", "this is not a regular file")
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP
            stream.seek(0)
            data = (gzip.GzipFile(fileobj=stream) if packed else stream).read(LARGEST + 1)
    except FileNotFoundError:
        refuse(file, "no-such-file", "there is no such file", _similar(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        refuse(file, "unreadable", f"the compressed file is broken: {error}")
    except (OSError, ValueError) as error:
        refuse(file, "unreadable", f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(data) > LARGEST:
        refuse(file, "too-large", f"the trace is larger than {LARGEST >> 30} GiB")
    return data


def _similar(path: Path) -> str | None:
    try:
        found = nearest(path.name, [other.name for other in path.parent.iterdir()])
    except OSError:
        return None
    return f"did you mean {path.with_name(found)}?" if found else None


def _text_of(file: str, data: bytes) -> str:
    if data.startswith(_SQLITE):
        refuse(file, "wrong-format", "this is a database, as event logs are", "leave the format out, or name it log")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Headers of old logs hold names in Latin-1; in a comment that harms nothing.
        if data.lstrip().startswith(b";"):
            return data.decode("latin-1")
        line = data.count(b"\n", 0, error.start) + 1
        refuse(file, "not-utf8", "the file is not UTF-8 text", "save it as UTF-8", line)
