"""The feed: what happened to each workload, as items that a watcher reads in order.

Items of state come from events; items of progress from the lines that an attempt's code appends to its report file
(`stellwerk.runtime`). An item's number is its time in microseconds, raised where needed so that numbers only grow:
a watcher that knows a number can go on after the controller was restarted, and sees nothing twice. Only the newest
items of a workload are kept, and those of workloads that ended long ago not at all.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from stellwerk.controller.times import rfc3339
from stellwerk.scheduling.events import (
    AttemptResized,
    CheckpointReported,
    DrainNoticed,
    Event,
    HostChanged,
    Submitted,
    UnitGone,
)
from stellwerk.scheduling.state import Attempt, State, WorkloadState

ItemKind = Literal["state", "progress", "checkpoint", "note"]
KEPT_ITEMS = 2000
KEPT_ENDED = 100
REPORTS = "reports.jsonl"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that happened, at `at` (s since the epoch)."""

    seq: int
    at: float
    kind: ItemKind
    message: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """The form of the API."""
        return asdict(self) | {"at": rfc3339(self.at)}


@dataclass(slots=True)
class _Thread:
    """The items of one workload, and how far its report files are read (bytes, per attempt).

    Attempts up to `past` are older than this controller: what they had reported is put in order of time.
    """

    items: list[Item] = field(default_factory=list[Item])
    read: dict[int, int] = field(default_factory=dict[int, int])
    phase: str = ""
    attempts: int = 0
    ended_attempts: int = 0
    past: int = 0


class Feed:
    """Items of all workloads. `workloads` is the folder with one folder for each workload."""

    def __init__(self, workloads: Path) -> None:
        """An empty feed."""
        self._folder = workloads
        self._threads: dict[str, _Thread] = {}
        self._living: set[str] = set()
        self._ended: list[str] = []
        self._live = False

    def go_live(self) -> None:
        """The log is replayed; from now on items are put in order of arrival, not of time."""
        self._live = True
        for thread in self._threads.values():
            thread.past = thread.attempts

    def observe(self, event: Event, state: State) -> None:
        """Take note of an event, after the state has changed by it."""
        if isinstance(event, Submitted):
            self._living.add(event.demand.key)
            self._threads[event.demand.key] = _Thread()
        for key in list(self._living):
            workload = state.workloads[key]
            thread = self._threads[key]
            for kind, message, data in _told(event, workload, thread):
                self._add(key, event.at, kind, message, data, self._live)
            if workload.phase == "ended":
                self._end(key)

    def items(self, key: str, after: int) -> list[Item]:
        """Items of a workload that are newer than number `after`."""
        items = self._threads[key].items if key in self._threads else []
        return items[bisect_right(items, after, key=lambda item: item.seq) :]

    def refresh(self, key: str) -> None:
        """Read what the workload's attempts have reported since the last time."""
        thread = self._threads.get(key)
        for number in range(1, thread.attempts + 1 if thread else 1):
            self._read_reports(key, number)

    def _read_reports(self, key: str, number: int) -> None:
        thread = self._threads[key]
        offset = thread.read.get(number, 0)
        live = number in thread.read or number > thread.past
        lines, thread.read[number] = _new_lines(self._folder / key / f"attempt-{number}" / REPORTS, offset)
        for record in lines:
            self._add(key, record.pop("time"), "progress", _progress(record), {"attempt": number} | record, live)

    def _add(self, key: str, at: float, kind: ItemKind, message: str, data: Mapping[str, Any], live: bool) -> None:
        items = self._threads[key].items
        seq = round(at * 1e6)
        if live and items:
            seq = max(seq, items[-1].seq + 1)
        place = bisect_right(items, seq, key=lambda item: item.seq)
        while place and items[place - 1].seq == seq:
            seq += 1
            place = bisect_right(items, seq, key=lambda item: item.seq)
        items.insert(place, Item(seq, at, kind, message, data))
        del items[:-KEPT_ITEMS]

    def _end(self, key: str) -> None:
        self._living.discard(key)
        self._ended.append(key)
        if len(self._ended) > KEPT_ENDED:
            self._threads.pop(self._ended.pop(0), None)


_Told = tuple[ItemKind, str, dict[str, Any]]


def _told(event: Event, workload: WorkloadState, thread: _Thread) -> Iterator[_Told]:
    """What an event means to one workload."""
    match event:
        case CheckpointReported(workload=key) if key == workload.key and workload.checkpoint == event.uri:
            step = "" if event.step is None else f" at step {event.step}"
            data = {"uri": event.uri, "step": event.step, "attempt": event.attempt}
            yield "checkpoint", f"checkpoint{step}", data
        case AttemptResized(workload=key) if key == workload.key and workload.live is not None:
            units = list(workload.live.units)
            yield "state", f"attempt {event.attempt} goes on with {', '.join(units)}", {"units": units}
        case HostChanged(up=False) | UnitGone() | DrainNoticed():
            attempt = workload.attempts[-1] if workload.attempts else None
            if attempt and attempt.finished is None and _holds(attempt, event.unit, event.incarnation):
                yield "note", _trouble(event, workload, attempt), {"unit": event.unit}
        case _:
            pass
    yield from _changes(workload, thread)


def _holds(attempt: Attempt, unit: str, incarnation: int) -> bool:
    return any(grant.unit == unit and grant.incarnation == incarnation for grant in attempt.grants)


def _changes(workload: WorkloadState, thread: _Thread) -> Iterator[_Told]:
    for attempt in workload.attempts[thread.ended_attempts :]:
        if attempt.finished is not None:
            thread.ended_attempts += 1
            data = {"attempt": attempt.number, "outcome": attempt.outcome, "cause": attempt.cause}
            yield "state", _ending(attempt), data
    if (workload.phase, len(workload.attempts)) != (thread.phase, thread.attempts):
        thread.phase, thread.attempts = workload.phase, len(workload.attempts)
        yield "state", _PHASES[workload.phase](workload), {"state": workload.phase, "attempt": thread.attempts or None}


def _ending(attempt: Attempt) -> str:
    why = f": {attempt.cause}" if attempt.cause else ""
    detail = f" ({attempt.message})" if attempt.message else ""
    return f"attempt {attempt.number} {attempt.outcome}{why}{detail}"


def _waiting(workload: WorkloadState) -> str:
    reason = next((reason.message for option in workload.reasons for reason in option), "")
    return f"waiting: {reason}" if reason else "waiting"


def _starting(workload: WorkloadState) -> str:
    attempt = workload.attempts[-1]
    option = workload.demand.options[attempt.option].short
    return f"attempt {attempt.number} is starting with {option} on {', '.join(attempt.units)}"


def _ended(workload: WorkloadState) -> str:
    why = f": {workload.cause}" if workload.cause else ""
    detail = f" ({workload.message})" if workload.message else ""
    return f"{workload.outcome}{why}{detail}"


_PHASES: dict[str, Callable[[WorkloadState], str]] = {
    "waiting": _waiting,
    "starting": _starting,
    "running": lambda workload: f"attempt {workload.attempts[-1].number} is running",
    "stopping": lambda workload: f"attempt {workload.attempts[-1].number} is being stopped: {workload.stop_cause}",
    "ended": _ended,
}


def _trouble(event: HostChanged | UnitGone | DrainNoticed, workload: WorkloadState, attempt: Attempt) -> str:
    what = f"host {event.host} of {event.unit} lost" if isinstance(event, HostChanged) else f"{event.unit} lost"
    if isinstance(event, DrainNoticed):
        what = f"{event.unit} will be taken away in {max(0.0, event.deadline - event.at):.0f} s"
    if workload.stop_cause != "infrastructure":
        return what
    step = workload.checkpoint_step
    resume = "from the beginning" if workload.checkpoint is None else "from its last checkpoint"
    resume = resume if step is None or workload.checkpoint is None else f"from step {step}"
    return f"{what}; attempt {attempt.number + 1} will resume {resume}"


def _progress(record: Mapping[str, Any]) -> str:
    step = [] if record["step"] is None else [f"step {record['step']}"]
    metrics = [f"{name} {value:.6g}" if value is not None else f"{name} -" for name, value in record["metrics"].items()]
    return "  ".join(step + metrics) or "report"


def _new_lines(file: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The whole records after `offset`, and where the next one begins."""
    try:
        with file.open("rb") as reader:
            reader.seek(offset)
            text = reader.read()
    except OSError:
        return [], offset
    whole = text[: text.rfind(b"\n") + 1]
    records = [record for line in whole.splitlines() if (record := _record(line)) is not None]
    return records, offset + len(whole)


def _record(line: bytes) -> dict[str, Any] | None:
    """A report, or None for a line that is not one: the file is written by the workload's own processes."""
    try:
        raw = json.loads(line)
        at = float(raw["time"])
        metrics = {str(name): _finite(value) for name, value in raw["metrics"].items()}
        rfc3339(at)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError):
        return None
    step, checkpoint = raw.get("step"), raw.get("checkpoint")
    return {
        "time": at,
        "step": step if isinstance(step, int) else None,
        "checkpoint": checkpoint if isinstance(checkpoint, str) else None,
        "metrics": metrics,
    }


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) else None
