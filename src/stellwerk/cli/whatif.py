"""`stellwerk whatif`: a site's log replayed with a change, beside what is."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from stellwerk.api.home import home_folder, read_address
from stellwerk.cli import formats
from stellwerk.cli.arguments import json_option
from stellwerk.cli.errors import CliError
from stellwerk.cli.replays import PreemptOption, check_seed, policy_named
from stellwerk.cli.tables import Column, Row, print_json, print_table

if TYPE_CHECKING:
    from stellwerk.scheduling.model import Demand, Fleet
    from stellwerk.simulation.changed import Change
    from stellwerk.simulation.traces.log import Recorded
    from stellwerk.simulation.whatif import Comparison, Figures, Question, Times

_COPIES = re.compile(r"(.+)\*(\d{1,4})")
_MOST_LINES = 40
_T = TypeVar("_T")


def whatif(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Workloads that are over, to be told of too.", show_default=False),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(help="More, fewer or so many units: POOL=+2, POOL=-1, POOL=4.", metavar="POOL=+N"),
    ] = None,
    submit: Annotated[
        list[str] | None, typer.Option(help="Submit a workload now; FILE*3 submits it three times.", metavar="FILE")
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="Another quota, in chips.", metavar="QUEUE:ACCELERATOR=+N")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Another policy: fifo, sjf, backfill or default.", metavar="POLICY")
    ] = None,
    preempt: PreemptOption = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="When the change comes: now, start (of the log), a time, or an age as in 7d. Default: for the figures "
            "the start, for what is not over now.",
            metavar="T",
        ),
    ] = None,
    assume: Annotated[
        str | None, typer.Option(help="How long that takes of which nothing is known; else it has no end.", metavar="D")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="How many futures are drawn. Default: 20, fewer for long logs.", metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(help="For what is drawn.", metavar="N")] = 0,
    home: Annotated[str | None, typer.Option(help="Another state folder.", metavar="DIR")] = None,
    log: Annotated[str | None, typer.Option(help="Another event log.", metavar="FILE")] = None,
    json: bool = json_option(),
) -> None:
    """Replay the event log with a change, beside what is: utilization, waits, cost, and when workloads start and end.

    What is not over yet goes on into the future for as long as is drawn from estimates and from what such work took.
    Changes nothing. Times are medians, with the 90th percentile in brackets.
    """
    _check(samples, seed, home, log)
    source = log if log is not None else str(Path(home) if home is not None else home_folder())
    recorded, now = _recorded(source, live=log is None)
    change = _change(recorded, add, quota, policy, preempt)
    change = replace(change, **_submitted(recorded, submit or ()))
    question = _question(recorded, change, now, since, assume, samples, seed, tuple(name or ()))
    compared = _compared(recorded, question, since is None)
    told = change.told(_fleet(recorded)) or ["nothing is changed"]
    notes = _notes(recorded, question, max(each.unknown for each in compared))
    if json:
        print_json(_to_json(*compared, told, notes))
    else:
        _print(*compared, told, notes)


def _check(samples: int | None, seed: int, home: str | None, log: str | None) -> None:
    if samples is not None and not 1 <= samples <= 10_000:
        raise CliError(f"--samples is {samples}; it must be 1 to 10000")
    check_seed(seed)
    if home is not None and log is not None:
        raise CliError("--home and --log both name a log; give one of them")


def _recorded(source: str, live: bool) -> tuple[Recorded, float]:
    """The log, and the time that it is (s): the clock's while its controller runs, else that of its last event."""
    from stellwerk.simulation.traces.log import FILE, recorded

    folder = Path(source)
    if live and not (folder / FILE).is_file():
        raise CliError(f"{source}: there is no event log here; it begins with the first `stellwerk run` or `up`")
    found = recorded(source)
    if not found.events:
        raise CliError(f"{source}: the event log is empty; there is nothing to replay")
    latest = found.events[-1].at
    return found, max(latest, time.time()) if live and _runs(folder) else latest


def _runs(home: Path) -> bool:
    """Whether a controller runs for this home."""
    if read_address(home) is None:
        return False
    from stellwerk.api.client import Client
    from stellwerk.api.errors import ApiError, NoController

    try:
        return bool(Client(home).status())
    except (NoController, ApiError):
        return False


def _fleet(recorded: Recorded) -> Fleet:
    """The fleet at the end of the log."""
    from stellwerk.scheduling.events import FleetChanged
    from stellwerk.scheduling.model import Fleet

    fleets = (event.fleet for event in reversed(recorded.events) if isinstance(event, FleetChanged))
    return next(fleets, Fleet())


def _change(
    recorded: Recorded, add: list[str] | None, quota: list[str] | None, policy: str | None, preempt: bool
) -> Change:
    from stellwerk.simulation.changed import Change, parse_pool, parse_quota

    fleet = _fleet(recorded)
    own = {pool.accelerator for pool in fleet.pools}
    change = Change(
        pools=tuple(_plain("--add", lambda text=text: parse_pool(text)) for text in add or ()),
        quotas=tuple(_plain("--quota", lambda text=text: parse_quota(text, own)) for text in quota or ()),
        policy=policy_named(policy) if policy is not None else None,
        preempt=preempt,
    )
    for part, option in ((replace(change, quotas=()), "--add"), (replace(change, pools=()), "--quota")):
        _plain(option, lambda part=part: part.check(fleet))
    return change


def _plain(option: str, make: Callable[[], _T]) -> _T:
    """What `make` returns; its flaws are told as those of an option."""
    from stellwerk.spec import Flaw

    try:
        return make()
    except Flaw as flaw:
        raise CliError(f"{option}: {flaw.message}" + (f"; {flaw.mend}" if flaw.mend else "")) from None


def _submitted(recorded: Recorded, files: Sequence[str]) -> dict[str, Any]:
    """The workloads that the change submits, and the pools that they bring into being where no fleet is declared."""
    from stellwerk.controller import intake
    from stellwerk.scheduling.events import Submitted
    from stellwerk.spec import load_workload

    fleet = _fleet(recorded)
    demands: list[Demand] = []
    own = {pool.accelerator for pool in fleet.pools}
    taken = {event.demand.name for event in recorded.events if isinstance(event, Submitted)}
    for file, count in map(_copies, files):
        workload = load_workload(file, extra_accelerators=own)
        intake.check_supported(workload)
        for _ in range(count):
            name = _free(workload.name, taken)
            demands.append(intake.demand(workload, f"whatif/{len(demands)}", name))
    if recorded.declared is not None or not demands:
        return {"submit": tuple(demands)}
    from stellwerk.controller.machine import LocalMachine

    grown = intake.grown(fleet, [option for demand in demands for option in demand.options], LocalMachine())
    known = {pool.name for pool in fleet.pools}
    return {"submit": tuple(demands), "grown": tuple(pool for pool in grown.pools if pool.name not in known)}


def _copies(text: str) -> tuple[str, int]:
    """`FILE` or `FILE*3`."""
    match = _COPIES.fullmatch(text)
    if match is None or Path(text).exists():
        return text, 1
    if not int(match[2]):
        raise CliError(f"--submit {text}: nothing is submitted no times; allowed are 1 to 9999")
    return match[1], int(match[2])


def _free(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    taken.add(free)
    return free


def _question(
    recorded: Recorded,
    change: Change,
    now: float,
    since: str | None,
    assume: str | None,
    samples: int | None,
    seed: int,
    named: tuple[str, ...],
) -> Question:
    from stellwerk.scheduling.events import Submitted
    from stellwerk.simulation.whatif import Question
    from stellwerk.spec import parse_duration

    names = [event.demand.name for event in recorded.events if isinstance(event, Submitted)]
    if not names and not change.submit:
        raise CliError(f"{recorded.file}: there is no workload in the event log; there is nothing to replay")
    for name in named:
        if name not in names:
            from stellwerk.spec.problems import did_you_mean

            near = did_you_mean(name, names)
            raise CliError(f"{recorded.file}: no workload is named {name}" + (f"; {near}" if near else ""))
    begin = since or ("now" if change.submit and not change.of_fleet else "start")
    assumed = _plain("--assume", lambda: parse_duration(assume)) if assume is not None else None
    return Question(change, now, _moment(begin, now), samples, seed, assumed, named)


def _moment(since: str, now: float) -> float | None:
    """A time in seconds; None for the start of the log."""
    if since == "start":
        return None
    if since == "now":
        return now
    from stellwerk.cli.cost import moment

    try:
        at = datetime.fromisoformat(moment(since, datetime.fromtimestamp(now, UTC)))
    except CliError:
        raise CliError(f"--since: {since!r} is no time; allowed: now, start, 2026-01-31T12:00Z, 30m, 2h, 7d") from None
    return at.timestamp()


def _compared(recorded: Recorded, question: Question, both: bool) -> tuple[Comparison, Comparison]:
    """The comparison for the figures, and that for the workloads that are not over: with `both`, if it came now."""
    from stellwerk.simulation.traces.log import folded
    from stellwerk.simulation.whatif import what_if

    full = folded(recorded.events)
    with _bar() if sys.stderr.isatty() else nullcontext() as watch:
        figures = what_if(recorded, question, watch, full)
        if not both or question.since is not None:
            return figures, figures
        coming = what_if(recorded, replace(question, since=question.now), watch, full)
        over = tuple(line for line in figures.lines if line.state == "ended")
        return figures, replace(coming, lines=coming.lines + over)


@contextmanager
def _bar() -> Generator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("replays"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replays", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _notes(recorded: Recorded, question: Question, unknown: int) -> list[str]:
    fleet, notes = _fleet(recorded), list[str]()
    if unknown:
        count = formats.quantity(unknown, "workload")
        notes.append(f"nothing is known of how long {count} would run, so no end; --assume 1h says how long that is")
    if fleet.memory is not None and question.change.pools:
        notes.append("one machine plays this fleet: its memory limits what runs, whatever units are added")
    return notes


def _to_json(compared: Comparison, coming: Comparison, told: list[str], notes: list[str]) -> dict[str, Any]:
    return {
        "since": _time(compared.since),
        "now": _time(compared.now),
        "samples": compared.samples,
        "replayed": compared.replayed,
        "drawn": compared.open,
        "changes": told,
        "as_it_is": compared.as_it_is.to_json(),
        "with_the_change": compared.changed.to_json(),
        "workloads_since": _time(coming.since),
        "workloads": [
            {
                "name": line.name,
                "state": line.state,
                "submitted": _time(line.submitted),
                "as_it_is": _times(line.as_it_is),
                "with_the_change": _times(line.changed),
            }
            for line in coming.lines
        ],
        "notes": notes,
    }


def _time(at: float | None) -> str | None:
    from stellwerk.controller.times import rfc3339

    return rfc3339(None if at is None else round(at, 3))


def _times(times: Times | None) -> dict[str, Any] | None:
    """A workload's times as JSON; None where it is not there."""
    if times is None:
        return None
    pairs = (("start", times.start), ("finish", times.finish))
    return {key: {"p50": _time(p50), "p90": _time(p90)} for key, (p50, p90) in pairs}


def _print(compared: Comparison, coming: Comparison, told: list[str], notes: list[str]) -> None:
    print(f"The change: {'; '.join(told)}.")
    print(f"{formats.quantity(compared.replayed, 'workload')}, {_when(compared)}:")
    print()
    print_table(_figures(compared), _FIGURES)
    lines: list[Row] = [
        {
            "name": line.name,
            "state": line.state,
            "as_it_is": _times(line.as_it_is),
            "changed": _times(line.changed),
            "sooner": _sooner(line.as_it_is, line.changed),
        }
        for line in coming.lines
    ]
    if lines:
        print()
        if coming is not compared:
            print(f"What is not over, {_when(coming)}:")
            print()
        print_table(lines[:_MOST_LINES], _WORKLOADS)
        if len(lines) > _MOST_LINES:
            print(f"and {len(lines) - _MOST_LINES} more; --json has all")
    for note in notes:
        print(f"note: {note}")


def _when(compared: Comparison) -> str:
    """When the change comes, and in how many futures."""
    futures = f", in {compared.samples} drawn futures" if compared.samples > 1 else ""
    since = formats.clock(_time(compared.since))
    return ("if it comes now" if compared.since == compared.now else f"as if it had been since {since}") + futures


def _figures(compared: Comparison) -> list[Row]:
    """The figures of both sides, without those that neither has; an unknown cost is one."""
    sides = compared.as_it_is, compared.changed
    rows = [{"title": title, "values": [show(side) for side in sides]} for title, show in _SHOWN]
    return [row for row in rows if row["title"] == "cost" or row["values"] != [formats.UNKNOWN] * 2]


def _share(figures: Figures) -> str:
    share = figures.utilization
    return formats.UNKNOWN if share is None else f"{share * 100:.1f} % of {figures.chips:,} chips"


_SHOWN: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("utilization", _share),
    ("mean wait", lambda side: formats.duration(side.wait_s["mean"])),
    ("median wait", lambda side: formats.duration(side.wait_s["p50"])),
    ("p90 wait", lambda side: formats.duration(side.wait_s["p90"])),
    ("longest wait", lambda side: formats.duration(side.wait_s["max"])),
    ("mean completion", lambda side: formats.duration(side.completion_s["mean"])),
    ("p90 completion", lambda side: formats.duration(side.completion_s["p90"])),
    ("workloads that started", lambda side: formats.number(side.started, 1)),
    ("workloads that ended", lambda side: formats.number(side.ended, 1)),
    ("preemptions", lambda side: formats.number(side.preemptions, 1)),
    ("cost", lambda side: formats.money(side.cost)),
)
_FIGURES = (
    Column("", lambda row: str(row["title"])),
    Column("as it is", lambda row: str(row["values"][0]), right=True),
    Column("with the change", lambda row: str(row["values"][1]), right=True),
)


def _sooner(before: Times | None, after: Times) -> str:
    """How much earlier a workload ends with the change (or starts, where no end is known)."""
    if before is None:
        return ""
    for had, has, verb in ((before.finish[0], after.finish[0], "ends"), (before.start[0], after.start[0], "starts")):
        if had is not None and has is not None:
            gain = had - has
            if abs(gain) < 1:
                return "same"
            return f"{verb} {formats.duration(abs(gain))} {'earlier' if gain > 0 else 'later'}"
    return ""


def _span(row: Row, side: str, key: str) -> str:
    return "" if row[side] is None else formats.span(row[side][key], formats.clock)


_WORKLOADS = (
    Column("name", lambda row: str(row["name"])),
    Column("state", lambda row: str(row["state"])),
    Column("starts", lambda row: _span(row, "as_it_is", "start")),
    Column("with the change", lambda row: _span(row, "changed", "start")),
    Column("ends", lambda row: _span(row, "as_it_is", "finish")),
    Column("with the change", lambda row: _span(row, "changed", "finish")),
    Column("so", lambda row: str(row["sooner"])),
)

__all__ = ["whatif"]
