"""`stellwerk simulate`: a trace on a fleet, in virtual time."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stellwerk.cli.arguments import json_option
from stellwerk.cli.errors import WRONG_INPUT, CliError
from stellwerk.cli.tables import Column, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from stellwerk import spec
    from stellwerk.simulation.outcome import Outcome
    from stellwerk.simulation.replay import Settings
    from stellwerk.simulation.traces import Trace
    from stellwerk.simulation.world import World

POLICIES = ("fifo", "sjf", "backfill", "default")


def simulate(
    fleet: Annotated[list[str], typer.Option(help="A fleet file; again to compare.", metavar="FLEET")],
    trace: Annotated[
        str,
        typer.Option(help="A trace; its format is seen from the content, or named: FILE:FORMAT.", metavar="TRACE"),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="fifo, sjf, backfill or default, the fleet's own unless said; again to compare.",
            metavar="POLICY",
            show_default=False,
        ),
    ] = None,
    estimates: Annotated[
        str, typer.Option(help="What users say of durations: exact, user, or a range of factors (1-5).", metavar="E")
    ] = "exact",
    preempt: Annotated[bool, typer.Option("--preempt", help="Let the policy preempt; restarts cost time.")] = False,
    failures: Annotated[
        str | None, typer.Option(help="What breaks, and what an interruption costs.", metavar="FILE")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="What a trace that only counts chips runs on.", metavar="NAME")
    ] = None,
    seed: Annotated[int, typer.Option(help="For drawn estimates and failures.", metavar="N")] = 0,
    out: Annotated[
        str | None, typer.Option(help="Write workloads.csv, summary.json, plots and report.html.", metavar="DIR")
    ] = None,
    json: bool = json_option(),
) -> None:
    """Replay a trace in virtual time, with the scheduler that runs workloads: utilization, waits, completions, cost.

    Beside every result stands its limit: what no scheduler can beat. Several policies or fleets are shown side by side.
    """
    from stellwerk.simulation.submissions import Estimates

    policies = [_policy(name) for name in policy or []]
    try:
        guess = Estimates.parse(estimates)
    except ValueError as error:
        raise CliError(str(error)) from None
    if seed < 0:
        raise CliError(f"--seed is {seed}; it must be 0 or more")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise CliError(f"{out}: this is not a folder")
    runs = list(_outcomes(fleet, trace, policies, guess, preempt, failures, accelerator, seed))
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
) -> Iterator[tuple[str, Outcome]]:
    """One outcome for each fleet and policy; all that is read is read before the first replay."""
    from stellwerk.simulation.failures import load_failures
    from stellwerk.simulation.replay import Settings
    from stellwerk.spec import load_fleet

    declared = [load_fleet(file) for file in fleets]
    traces = [_trace(file, one, trace, accelerator) for file, one in zip(fleets, declared, strict=True)]
    breaks = [
        load_failures(failures, frozenset(pool.name for pool in one.pools)) if failures else None for one in declared
    ]
    names = _names(fleets, policies or [declared[0].policy])
    for (index, policy), name in zip(product(range(len(fleets)), policies or [None]), names, strict=True):
        one = declared[index]
        settings = Settings(policy or one.policy, preempt or one.preempt, estimates, breaks[index], seed)
        labels = {"fleet": fleets[index], "trace": trace, "failures": failures}
        yield name, _replayed(one, traces[index], settings, labels, name)


def _replayed(fleet: spec.Fleet, trace: Trace, settings: Settings, labels: dict[str, str | None], name: str) -> Outcome:
    from stellwerk.simulation.replay import replay

    def watch(world: World) -> AbstractContextManager[object]:
        return _progress(world, name) if sys.stderr.isatty() else nullcontext()

    return replay(fleet, trace, settings, names=labels, watch=watch)


def _trace(file: str, fleet: spec.Fleet, source: str, accelerator: str | None) -> Trace:
    """The trace for one fleet; hardware that neither says is refused."""
    from stellwerk.simulation.traces import read

    chosen = _accelerator(file, fleet, accelerator)
    trace = read(source, chosen, fleet.accelerators)
    for kind, count in trace.left_out.items():
        print(f"{source}: {count:,} rows left out: {kind}", file=sys.stderr)
    if not trace.jobs:
        raise CliError(f"{source}: there is no workload in it")
    if any(job.option is None and job.accelerator is None for job in trace.jobs):
        had = ", ".join(dict.fromkeys(pool.accelerator for pool in fleet.pools))
        raise CliError(f"{source}: it only counts chips, and {file} has {had}; say which with --accelerator")
    return trace


def _accelerator(file: str, fleet: spec.Fleet, wanted: str | None) -> str | None:
    """The accelerator of work that names none: the one asked for, or the fleet's only one."""
    from stellwerk.spec import Flaw
    from stellwerk.spec.request import named

    had = list(dict.fromkeys(pool.accelerator for pool in fleet.pools))
    if wanted is None:
        return had[0] if len(had) == 1 else None
    try:
        name = named(wanted, frozenset(fleet.accelerators))[0]
    except Flaw as flaw:
        raise CliError(f"--accelerator: {flaw.message}" + (f"; {flaw.mend}" if flaw.mend else "")) from None
    if name not in had:
        raise CliError(f"--accelerator: {file} has no {name}; it has {', '.join(had)}")
    return name


def _policy(name: str) -> str:
    if name in POLICIES:
        return name
    near = difflib.get_close_matches(name, POLICIES, n=1)
    mend = f"; did you mean {near[0]}?" if near else ""
    raise CliError(f"no such policy: {name}; allowed: {', '.join(POLICIES)}{mend}", WRONG_INPUT)


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
