"""`stellwerk simulate`: a trace on a fleet, in virtual time."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stellwerk.cli import replays
from stellwerk.cli.arguments import json_option
from stellwerk.cli.tables import Column, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from stellwerk import spec
    from stellwerk.simulation.outcome import Outcome
    from stellwerk.simulation.replay import Settings
    from stellwerk.simulation.traces import Trace
    from stellwerk.simulation.world import World


SHORT = 500
"""Workloads of a trace whose forecasts one process makes."""


def simulate(
    fleet: Annotated[list[str], typer.Option(help="A fleet file; again to compare.", metavar="FLEET")],
    trace: Annotated[
        str,
        typer.Option(
            help="A trace, or generated demand; its format is seen from the content, or named: FILE:FORMAT.",
            metavar="TRACE",
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="fifo, sjf, backfill or default, the fleet's own unless said; again to compare.",
            metavar="POLICY",
            show_default=False,
        ),
    ] = None,
    estimates: replays.EstimatesOption = "exact",
    preempt: replays.PreemptOption = False,
    failures: replays.FailuresOption = None,
    accelerator: replays.AcceleratorOption = None,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Foretell every start at its submit, and say how good that was.")
    ] = False,
    seed: replays.SeedOption = 0,
    out: Annotated[
        str | None,
        typer.Option(
            help="Write workloads.csv, forecasts.csv, summary.json, plots and report.html.",
            metavar="DIR",
        ),
    ] = None,
    json: bool = json_option(),
) -> None:
    """Replay a trace in virtual time, with the scheduler that runs workloads: utilization, waits, completions, cost.

    Beside every result stands its limit: what no scheduler can beat. Several policies or fleets are shown side by side.
    """
    policies, guess = [replays.policy_named(name) for name in policy or []], replays.estimates_named(estimates)
    replays.check_seed(seed)
    replays.check_out(out)
    runs = list(_outcomes(fleet, trace, policies, guess, preempt, failures, accelerator, seed, forecast))
    if out is not None:
        _write(runs, Path(out))
    if json:
        print_json(runs[0][1].summary() if len(runs) == 1 else [{"name": n, **o.summary()} for n, o in runs])
    else:
        _print(runs)


def _outcomes(
    fleets: Sequence[str],
    trace: str,
    policies: Sequence[Any],
    estimates: Any,
    preempt: bool,
    failures: str | None,
    accelerator: str | None,
    seed: int,
    forecast: bool,
) -> Iterator[tuple[str, Outcome]]:
    """One outcome for each fleet and policy; all that is read is read before the first replay."""
    from stellwerk.simulation.replay import Settings
    from stellwerk.spec import load_fleet

    declared = [load_fleet(file) for file in fleets]
    named = zip(fleets, declared, strict=True)
    traces = [replays.trace_for(file, one, trace, accelerator, seed) for file, one in named]
    breaks = [replays.failures_for(one, failures) for one in declared]
    names = _names(fleets, policies or [declared[0].policy])
    processes = _processes(traces) if forecast else 1
    for (index, policy), name in zip(product(range(len(fleets)), policies or [None]), names, strict=True):
        one = declared[index]
        chosen, stops = policy or one.policy, preempt or one.preempt
        settings = Settings(chosen, stops, estimates, breaks[index], seed, forecast=forecast, processes=processes)
        labels = {"fleet": fleets[index], "trace": trace, "failures": failures}
        yield name, _replayed(one, traces[index], settings, labels, name)


def _processes(traces: Sequence[Trace]) -> int:
    """How many processes make forecasts: all that there are CPUs for, but one where starting more takes longer."""
    return min(os.cpu_count() or 1, 16) if max(len(trace.jobs) for trace in traces) > SHORT else 1


def _replayed(fleet: spec.Fleet, trace: Trace, settings: Settings, labels: dict[str, str | None], name: str) -> Outcome:
    from stellwerk.simulation.replay import replay

    def watch(world: World) -> AbstractContextManager[object]:
        return _progress(world, name) if sys.stderr.isatty() else nullcontext()

    return replay(fleet, trace, settings, names=labels, watch=watch)


def _names(fleets: Sequence[str], policies: Sequence[str]) -> list[str]:
    """Short names of all runs, no two alike."""
    stems = [Path(file).stem for file in fleets]
    names = list[str]()
    for stem, policy in product(stems, policies):
        name = policy if len(fleets) == 1 else stem if len(policies) == 1 else f"{stem}-{policy}"
        same = sum(each == name or each.startswith(f"{name}#") for each in names)
        names.append(f"{name}#{same + 1}" if same else name)
    return names


def _write(runs: Sequence[tuple[str, Outcome]], folder: Path) -> None:
    from stellwerk.simulation.report import write_comparison, write_report

    if len(runs) == 1:
        write_report(runs[0][1], folder)
    else:
        write_comparison(runs, folder)


def _print(runs: Sequence[tuple[str, Outcome]]) -> None:
    from stellwerk.simulation.report.page import table

    lines = table(runs)
    if len(runs) == 1:
        print_pairs((line[0], line[1]) for line in lines)
        return
    rows = [{"title": line[0], "values": line[1:]} for line in lines]
    columns = [
        Column(name, lambda row, index=index: str(row["values"][index]), right=True)
        for index, (name, _) in enumerate(runs)
    ]
    print_table(rows, [Column("", lambda row: str(row["title"])), *columns])


@contextmanager
def _progress(world: World, name: str) -> Generator[None]:
    """A bar on stderr. It looks at the world from rich's own thread, so that the simulation does nothing for it."""
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    class Watching(Progress):
        def get_renderable(self) -> RenderableType:
            scheduler = world.scheduler
            started = scheduler.state.submissions - len(scheduler.book.waiting)
            for task in self.task_ids:
                self.update(task, completed=started)
            return super().get_renderable()

    words, counted = TextColumn("{task.description}"), (MofNCompleteColumn(), TextColumn("started"))
    columns = (words, BarColumn(), *counted, TimeElapsedColumn())
    with Watching(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        bar.add_task(name, total=len(world.jobs))
        yield


__all__ = ["simulate"]
