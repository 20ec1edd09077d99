"""Stellwerk's own event log: all that happened on a site, and its workloads as a trace.

The log is the SQLite file `log.db` in a state folder; the folder stands for it. It is read by one transaction of a
connection that cannot write, which sees the log at one moment while a controller goes on writing. Events that were
archived are in the segments that the log names, in the folder `archive` beside it. What happened to
a workload is not in its events alone (which option it was granted is a decision, not a fact that was told), so the
events are folded by the scheduler, as the controller does after a restart.

As a trace, a job is what a workload turned out to be:

* submit, queue, user and priority are those of the submission; the option is the one that its last attempt ran on,
  the estimate the user's for it;
* the duration is its running time, over all attempts: from when an attempt's code began until it was over or was told
  to stop. Starting is not in it, and what was done twice is;
* what is not over yet is censored: it takes as long as its estimate says, or as it has run when that is more. Without
  an estimate it takes what it has run so far, and is left out when it has not run. Its tag `outcome` is
  `not-over`, that of all others what became of them;
* what ended without having run is left out, and so are roles on several accelerators, which a trace cannot say.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from stellwerk.scheduling.codec import decode_event
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import Attempt, State, WorkloadState
from stellwerk.simulation.traces.model import Job, Trace, make_trace
from stellwerk.simulation.traces.rows import refuse

FILE = "log.db"
ARCHIVE = "archive"
SCHEMA = 2
"""The latest form of the log that is read here."""

_MAGIC = b"SQLite format 3\0"
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A log: its file, its events in order, and the fleet as it was last declared (None: nobody declared one)."""

    file: str
    events: tuple[Event, ...]
    declared: Mapping[str, Any] | None


def is_log(file: str) -> bool:
    """Whether this is a database, or a folder with a log in it."""
    path = Path(file)
    try:
        if path.is_dir():
            return (path / FILE).is_file()
        if not path.is_file():  # a pipe would be read from
            return False
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):
        return False


def recorded(file: str) -> Recorded:
    """The log in a file or state folder, as it is at this moment. Raises `SpecError` when it cannot be read."""
    path = Path(file)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        refuse(file, "no-such-file", "there is no event log here")
    try:
        with closing(_connected(path)) as connection:
            connection.execute("BEGIN")
            return Recorded(file, _events(file, path, connection), _declared(connection))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        refuse(file, "unreadable", f"the event log cannot be read: {error}")


def read(file: str, name: str, accelerator: str | None, extra: frozenset[str] = frozenset()) -> Trace:
    """The workloads of a log. `extra` are accelerators that only a fleet declares. Raises `SpecError`."""
    found = recorded(file)
    now = found.events[-1].at if found.events else 0.0
    return trace_of(folded(found.events).state, now, name, accelerator, extra)


def folded(events: Iterable[Event]) -> Scheduler:
    """The scheduler that has learnt all of these events."""
    scheduler = Scheduler(explained=0)
    for event in events:
        scheduler.handle(event)
    return scheduler


def trace_of(
    state: State,
    now: float,
    name: str = "log",
    accelerator: str | None = None,
    extra: frozenset[str] = frozenset(),
) -> Trace:
    """The workloads of a state at the time `now` (s) as a trace; the rest as for `read`."""
    jobs, left_out = list[Job](), Counter[str]()
    for workload in sorted(state.workloads.values(), key=lambda workload: workload.order):
        hardware, duration = _hardware(workload, extra), _duration(workload, now)
        if isinstance(duration, str):
            left_out[duration] += 1
        elif hardware is None:
            left_out["roles on several accelerators"] += 1
        else:
            jobs.append(_job(workload, hardware, duration))
    return make_trace(name, jobs, "log", left_out, accelerator)


def running_time(workload: WorkloadState, now: float) -> float:
    """Seconds until `now` that attempts of a workload ran, all together."""
    return math.fsum(_ran(attempt, now) for attempt in workload.attempts)


def _ran(attempt: Attempt, now: float) -> float:
    if attempt.running is None:
        return 0.0
    ends = [time for time in (attempt.stopping, attempt.finished, now) if time is not None]
    return max(0.0, min(ends) - attempt.running)


def last_option(workload: WorkloadState) -> int:
    """The option that a workload's last attempt was granted; the first while it had none."""
    return workload.attempts[-1].option if workload.attempts else 0


def _duration(workload: WorkloadState, now: float) -> float | str:
    """How long a workload takes, or why nobody can say."""
    ran = running_time(workload, now)
    if workload.phase == "ended":
        began = any(attempt.running is not None for attempt in workload.attempts)
        return ran if began else "ended without having run"
    estimate = _estimate(workload)
    if estimate is None and not ran:
        return "not over yet, and nobody said how long it takes"
    return max(ran, estimate or 0.0)


def _estimate(workload: WorkloadState) -> float | None:
    option = workload.demand.options[last_option(workload)]
    return option.runtime if option.runtime is not None else workload.demand.runtime


def _hardware(workload: WorkloadState, extra: frozenset[str]) -> tuple[str | None, str | None, int] | None:
    """Option, accelerator and chips; the option where one short form says it all."""
    option = workload.demand.options[last_option(workload)]
    (first, *others) = option.parts
    if not others and first.role == _MAIN and _is_known(option.short, extra):
        return option.short, None, option.chips
    names = {part.accelerator for part in option.parts}
    return (None, first.accelerator, option.chips) if len(names) == 1 else None


@cache
def _is_known(short: str, extra: frozenset[str]) -> bool:
    from stellwerk.spec.request import parse_option

    try:
        parse_option(short, extra_accelerators=extra)
    except ValueError:
        return False
    return True


def _job(workload: WorkloadState, hardware: tuple[str | None, str | None, int], duration: float) -> Job:
    demand, (option, accelerator, chips) = workload.demand, hardware
    return Job(
        name=demand.name,
        user=demand.user or "unknown",
        queue=demand.queue,
        submit=workload.submitted,
        duration=duration,
        chips=chips,
        estimate=_estimate(workload),
        priority=demand.priority,
        option=option,
        accelerator=accelerator,
        wait=workload.attempts[0].began - workload.submitted if workload.attempts else None,
        tags=(("outcome", workload.outcome or "not-over"),),
    )


def _connected(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. A log at rest in a folder that cannot be written needs to be told so."""
    where = path.absolute().as_uri()
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{where}?{options}", uri=True, isolation_level=None, timeout=10)
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            return connection
        except sqlite3.Error as error:
            connection.close()
            again = options == "mode=ro" and not path.with_name(f"{path.name}-wal").exists()
            if not (again and isinstance(error, sqlite3.OperationalError)):
                raise
    raise AssertionError


def _events(file: str, path: Path, connection: sqlite3.Connection) -> tuple[Event, ...]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"events", "meta"} <= tables:
        refuse(file, "not-a-log", "this database has no events of Stellwerk", "name the log.db of a state folder")
    schema = _meta(connection, "schema")
    if isinstance(schema, int) and schema > SCHEMA:
        refuse(file, "later-schema", f"the event log has schema {schema}, and this version reads up to {SCHEMA}")
    rows = connection.execute("SELECT seq, type, payload FROM events ORDER BY seq")
    archived = _archived(file, path, connection) if "segments" in tables else iter(())
    return tuple(_event(file, *row) for row in chain(archived, rows))


def _archived(file: str, path: Path, connection: sqlite3.Connection) -> Iterator[tuple[int, str, Any]]:
    """The events of all segments, each of which must be the file that was noted."""
    for name, digest in connection.execute("SELECT file, sha256 FROM segments ORDER BY first").fetchall():
        segment = path.parent / ARCHIVE / name
        try:
            packed = segment.read_bytes()
        except OSError as error:
            refuse(file, "unreadable", f"events of the log are in {segment}, which cannot be read: {error.strerror}")
        if hashlib.sha256(packed).hexdigest() != digest:
            refuse(file, "unreadable", f"events of the log are in {segment}, which is damaged")
        for line in gzip.decompress(packed).splitlines():
            record = json.loads(line)
            yield record["seq"], record["type"], record["payload"]


def _event(file: str, number: int, kind: str, payload: Any) -> Event:
    try:
        event = decode_event(kind, json.loads(payload) if isinstance(payload, str | bytes) else payload)
        if not math.isfinite(event.at):
            raise ValueError("its time is not finite")
    except (ValueError, TypeError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        refuse(file, "unreadable", f"event {number} of the log cannot be read: {cause}")
    return event


def _declared(connection: sqlite3.Connection) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = _meta(connection, "fleet")
    return found if isinstance(found, dict) else None


def _meta(connection: sqlite3.Connection, key: str) -> Any:
    """A value of the table `meta`; SQLite keeps JSON that is a number as a number."""
    rows = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchall()
    value = rows[0][0] if rows else None
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
