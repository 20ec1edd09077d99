"""How earlier forecasts of a controller turned out, so that nine of ten starts come by the time that is told.

What is said first of a workload that waits is noted. When it has started, `scheduling.calibration` is told what came of
that, and later bounds follow. Until enough has been judged a bound is that of the drawn futures.

This is no fold over the log, as what was said depends on when it was asked. What was judged is kept in a file beside
the log, a line each: [when it was said, the wait that was said, its bound, the wait that came], in seconds. Without the
file learning begins anew; a line that cannot be read is passed over.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path

from stellwerk.controller.home import write_file
from stellwerk.scheduling.calibration import Calibration
from stellwerk.scheduling.forecast import Outlook
from stellwerk.scheduling.state import State

MOST = 2048
"""Lines that are kept of the file when a controller starts."""

_logger = logging.getLogger(__name__)
_Judged = tuple[float, float, float, float]


class Hindsight:
    """What was said and what came; with a `file` also after a restart."""

    def __init__(self, file: Path | None = None) -> None:
        self.calibration = Calibration()
        self._file = file
        self._said: dict[str, tuple[float, float, float]] = {}
        self._read()

    def say(self, outlooks: Mapping[str, Outlook], state: State, now: float) -> None:
        """These are told at `now`; of whoever waits, the first answer will be judged."""
        for key, outlook in outlooks.items():
            workload = state.workloads.get(key)
            if workload is None or workload.phase != "waiting" or workload.attempts or key in self._said:
                continue
            if outlook.start_p50 is not None and outlook.start_p90 is not None:
                self._said[key] = now, outlook.start_p50 - now, outlook.start_p90 - now

    def judge(self, state: State) -> None:
        """See what came of what was said; whoever ended without a start is forgotten."""
        judged = list[_Judged]()
        for key, (at, said, bound) in list(self._said.items()):
            workload = state.workloads.get(key)
            if workload is not None and not workload.attempts and workload.phase == "waiting":
                continue
            del self._said[key]
            if workload is not None and workload.attempts:
                judged.append((at, said, bound, workload.attempts[0].began - at))
        for each in judged:
            self.calibration.note(*each)
        self._write(judged)

    def _read(self) -> None:
        lines = list(_lines(self._file)) if self._file is not None else []
        for each in lines[-MOST:]:
            self.calibration.note(*each)
        if self._file is not None and len(lines) > MOST:
            with _said_if_not(self._file):
                write_file(self._file, "".join(f"{json.dumps(each)}\n" for each in lines[-MOST:]).encode())

    def _write(self, judged: list[_Judged]) -> None:
        if self._file is None or not judged:
            return
        with _said_if_not(self._file), open(_opened(self._file), "a") as writer:
            writer.writelines(f"{json.dumps(each)}\n" for each in judged)


def bounded(calibration: Calibration, outlook: Outlook, now: float) -> Outlook:
    """A forecast made at `now` with the bound that forecasts have held of late, once enough have been judged."""
    start, latest, finish = outlook.start_p50, outlook.start_p90, outlook.finish_p90
    if not calibration.ready or start is None or latest is None or start <= now:
        return outlook
    bound = now + calibration.bound(start - now, latest - now)
    return replace(outlook, start_p90=bound, finish_p90=None if finish is None else finish + bound - latest)


@contextmanager
def _said_if_not(file: Path) -> Generator[None]:
    """What is written within this can be done without: a failure is logged."""
    try:
        yield
    except OSError as error:
        _logger.warning("what came of forecasts could not be written to %s: %s", file, error)


def _opened(file: Path) -> int:
    """A descriptor to append to a file of its owner."""
    return os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)


def _lines(file: Path) -> Iterator[_Judged]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        _logger.warning("%s is passed over: %s", file, error)
        return
    for line in text.splitlines():
        try:
            at, said, bound, came = map(float, json.loads(line))
            if not isfinite(at + said + bound + came):
                raise ValueError(line)
        except (ValueError, TypeError):
            _logger.warning("a line of %s is passed over: it is not what was judged", file)
            continue
        yield at, said, bound, came
