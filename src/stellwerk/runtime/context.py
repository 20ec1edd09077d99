"""What a process of a workload knows about its attempt, and how it answers back.

The backend describes the attempt in the environment variable `STELLWERK_CONTEXT` of every host, as one JSON object.
Reports go to a file of JSON lines, which every process of the workload appends to; a drain notice is a file which
the backend writes before it takes hosts away. What an elastic attempt holds changes while it runs: a file tells what
it holds now, and what of it is about to be left.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat, cast

from stellwerk.runtime.outside import description

VARIABLE = "STELLWERK_CONTEXT"
UNIT_VARIABLE = "STELLWERK_UNIT"
"""On a host: the unit, or the part of a unit, that it belongs to."""

_log = logging.getLogger("stellwerk.runtime")


@dataclass(frozen=True)
class Context:
    """One attempt, as seen from inside; plain data, which may be pickled to the workers.

    `topology` is the shape of one slice, or None where there are no slices. `chips` counts the whole workload
    (for `cpu`, a chip is one CPU). `option` is the hardware in its short form. `emulated` says that the hardware is
    played by this machine. `managed` is false outside Stellwerk. `units`, `slices`, `hosts` and `chips` are those of
    the moment that `current()` was called; of an elastic workload they change.
    """

    name: str
    attempt: int
    kind: str
    units: tuple[str, ...]
    topology: str | None
    accelerator: str | None
    slices: int
    hosts: int
    chips: int
    chips_per_host: int
    emulated: bool
    checkpoint_dir: Path
    option: str
    managed: bool = True
    drain_file: Path | None = field(default=None, repr=False)
    reports_file: Path | None = field(default=None, repr=False)
    allocation_file: Path | None = field(default=None, repr=False)

    @property
    def hosts_per_slice(self) -> int:
        """Hosts of one slice, or of one unit where there are no slices."""
        return self.hosts // self.slices

    def should_stop(self) -> bool:
        """Whether hosts are about to be taken away: save a checkpoint and leave, with an exit code other than 0.

        It reads the drain notice anew and may be asked at every step. Hosts may see the notice at slightly different
        times; a loop with collectives has to agree on the answer before it acts on it. Where an elastic workload goes
        on and leaves some units, it is true on their hosts alone.
        """
        return self._drained() or os.environ.get(UNIT_VARIABLE) in self.leaving()

    def stop_deadline(self) -> float | None:
        """When the hosts will be gone, in epoch seconds; None without a notice or without a known time."""
        deadline = _notice(self.drain_file if self._drained() else self.allocation_file).get("deadline")
        return float(deadline) if isinstance(deadline, int | float) else None

    def leaving(self) -> tuple[str, ...]:
        """The units of an elastic workload that are about to be taken away, while the rest stays; asked anew.

        A part of a unit is named by its slice, as in `TPU_NAME`.
        """
        units = _notice(self.allocation_file).get("leaving")
        return tuple(map(str, cast("list[Any]", units))) if isinstance(units, list) else ()

    def let_go(self) -> None:
        """Says that nothing runs on the units of `leaving()` any more, so that nobody waits for the deadline."""
        notice = _notice(self.allocation_file)
        if self.allocation_file is not None and notice.get("leaving"):
            part = self.allocation_file.with_name(f".released.{os.getpid()}")
            part.write_text(str(notice.get("resize")))
            part.replace(self.allocation_file.with_name("released"))

    def _drained(self) -> bool:
        return self.drain_file is not None and self.drain_file.exists()

    def report(self, step: int | None = None, checkpoint: str | None = None, **metrics: SupportsFloat) -> None:
        """Tells how far the attempt is; `checkpoint` names one that is complete and can be resumed from.

        Any process may report, one is enough. A report that names a checkpoint is on disk when the call returns.
        Outside Stellwerk the report is only logged.
        """
        record = {
            "time": time.time(),
            "step": step,
            "checkpoint": checkpoint,
            "metrics": {name: _finite(value) for name, value in metrics.items()},
        }
        if self.reports_file is None:
            _log.info("report: %s", record)
        else:
            _append(self.reports_file, record, durable=checkpoint is not None)


def current() -> Context:
    """The attempt that this process belongs to, or an account of this machine outside Stellwerk.

    Raises `RuntimeError` when `STELLWERK_CONTEXT` is set and is not what Stellwerk writes.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return _context(description(os.environ), managed=False)
    try:
        return _context(cast("dict[str, Any]", json.loads(text)), managed=True)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise RuntimeError(
            f"{VARIABLE} is malformed: {what}; it is set by Stellwerk, unset it to run this program by itself"
        ) from error


def _context(data: Mapping[str, Any], *, managed: bool) -> Context:
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]: it comes from JSON
        raise TypeError(f"a JSON object is needed, not {type(data).__name__}")
    allocation_file = _path_or_none({"allocation_file": None, **data}, "allocation_file")
    data = {**data, **_allocated(allocation_file)}
    return Context(
        name=_text(data, "name"),
        attempt=_count(data, "attempt", least=1),
        kind=_text(data, "kind"),
        units=_texts(data, "units"),
        topology=_text_or_none(data, "topology"),
        accelerator=_text_or_none(data, "accelerator"),
        slices=_count(data, "slices", least=1),
        hosts=_count(data, "hosts", least=1),
        chips=_count(data, "chips", least=0),
        chips_per_host=_count(data, "chips_per_host", least=0),
        emulated=bool(data["emulated"]),
        checkpoint_dir=Path(_text(data, "checkpoint_dir")),
        option=_text(data, "option"),
        managed=managed,
        drain_file=_path_or_none(data, "drain_file"),
        reports_file=_path_or_none(data, "reports_file"),
        allocation_file=allocation_file,
    )


def _allocated(path: Path | None) -> dict[str, Any]:
    """What an attempt that was resized holds now; empty for one that never was."""
    notice = _notice(path)
    return {key: notice[key] for key in ("units", "slices", "hosts", "chips") if key in notice}


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str) or not value:
        raise TypeError(f"{key!r} is {value!r}, not a text")
    return value


def _text_or_none(data: Mapping[str, Any], key: str) -> str | None:
    return None if data[key] is None else _text(data, key)


def _path_or_none(data: Mapping[str, Any], key: str) -> Path | None:
    text = _text_or_none(data, key)
    return None if text is None else Path(text)


def _texts(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = data[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise TypeError(f"{key!r} is {value!r}, not a list of texts")
    return tuple(cast("list[str]", value))


def _count(data: Mapping[str, Any], key: str, *, least: int) -> int:
    value = data[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TypeError(f"{key!r} is {value!r}, not a whole number of at least {least}")
    return value


def _notice(path: Path | None) -> dict[str, Any]:
    """The drain notice; empty without one, and while one is only half readable: the file itself is the notice."""
    try:
        data: Any = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _finite(value: SupportsFloat) -> float | None:
    """A JSON number; what JSON cannot say (NaN, infinity) is null."""
    number = float(value)
    return number if math.isfinite(number) else None


def _append(path: Path, record: Mapping[str, Any], *, durable: bool) -> None:
    """One line in one write, so that the lines of many processes do not mix."""
    line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)
