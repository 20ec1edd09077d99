"""`stellwerk size`: the cheapest fleet that meets a goal, found by replays."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stellwerk.cli import formats, replays
from stellwerk.cli.arguments import json_option
from stellwerk.cli.errors import FAILED, CliError
from stellwerk.cli.tables import Column, Row, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from stellwerk import spec
    from stellwerk.simulation.goals import Goal
    from stellwerk.simulation.sizing import Answer, Candidate, Range, Units
    from stellwerk.simulation.traces import Trace

_BOUND = re.compile(r"(.+)=(\d{1,8})(?:\.\.(\d{1,8}))?")
_MOST_LISTED = 30


def size(
    fleet: Annotated[str, typer.Option(help="A fleet file: its pools, whose sizes are looked for.", metavar="FLEET")],
    trace: Annotated[
        str, typer.Option(help="The demand; a trace, as for simulate, or Stellwerk's own log.", metavar="TRACE")
    ],
    goal: Annotated[str, typer.Option(help="For example 'p90 wait < 10m and utilization > 60%'.", metavar="GOAL")],
    pool: Annotated[
        list[str] | None,
        typer.Option(help="Bounds of a pool, or its size: NAME=2..16, NAME=4.", metavar="NAME=MIN..MAX"),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="fifo, sjf, backfill or default; the fleet's own unless said.", metavar="POLICY")
    ] = None,
    estimates: replays.EstimatesOption = "exact",
    preempt: replays.PreemptOption = False,
    failures: replays.FailuresOption = None,
    accelerator: replays.AcceleratorOption = None,
    seed: replays.SeedOption = 0,
    out: Annotated[
        str | None, typer.Option(help="Write fleet.yaml, candidates.csv, summary.json and plots.", metavar="DIR")
    ] = None,
    json: bool = json_option(),
) -> None:
    """Find the cheapest fleet that meets a goal: how many units each pool needs. Every candidate is simulated.

    A goal is one condition or several with "and": mean, p50, p90, p99 or max of wait or completion < DURATION, for all
    work, "for QUEUE" or "for chips > 8"; and utilization > SHARE. Exit code 1 when no fleet within the bounds meets it.
    """
    replays.check_seed(seed)
    replays.check_out(out)
    from stellwerk.spec import load_fleet

    wanted, declared = _goal(goal), load_fleet(fleet)
    bounds = dict(_bound(text, declared) for text in pool or ())
    demand = replays.trace_for(fleet, declared, trace, accelerator, seed)
    answer = _answer(declared, demand, wanted, bounds, policy, estimates, preempt, failures, seed)
    if out is not None:
        from stellwerk.simulation.report.sizes import write_sizes

        write_sizes(answer, declared, Path(fleet), Path(out))
    if json:
        from stellwerk.simulation.sizing import to_json

        print_json(to_json(answer))
    else:
        _print(answer)
    if answer.best is None:
        raise typer.Exit(FAILED)


def _goal(text: str) -> Goal:
    """The goal; what is wrong with it is told with its place."""
    from stellwerk.simulation.goals import parse_goal
    from stellwerk.spec import Flaw, Problem, SpecError

    try:
        return parse_goal(text)
    except Flaw as flaw:
        column = (flaw.offset or 0) + 1
        raise SpecError([Problem("--goal", 1, column, "error", flaw.code, flaw.message, flaw.mend)]) from None


def _bound(text: str, fleet: spec.Fleet) -> tuple[str, Range]:
    """`NAME=2..16` or `NAME=4`."""
    from stellwerk.spec.problems import did_you_mean, listed, shown

    match = _BOUND.fullmatch(text.strip())
    if match is None:
        raise CliError(f"--pool: {shown(text)} bounds no pool; write for example NAME=2..16, or NAME=4")
    name, low, high = match[1], int(match[2]), int(match[3] or match[2])
    names = [pool.name for pool in fleet.pools]
    if name not in names:
        near = did_you_mean(name, names)
        mend = f"; {near}" if near else ""
        raise CliError(f"--pool: the fleet has no pool {shown(name)}; it has {listed(names)}{mend}")
    if low > high:
        raise CliError(f"--pool: {text}: the least is more than the most")
    return name, (low, high)


def _answer(
    declared: spec.Fleet,
    trace: Trace,
    goal: Goal,
    bounds: dict[str, Range],
    policy: str | None,
    estimates: str,
    preempt: bool,
    failures: str | None,
    seed: int,
) -> Answer:
    from stellwerk.simulation.replay import Settings
    from stellwerk.simulation.sizing import size as sized
    from stellwerk.spec import Flaw

    guess, breaks = replays.estimates_named(estimates), replays.failures_for(declared, failures)
    chosen = replays.policy_named(policy) if policy is not None else declared.policy
    settings = Settings(chosen, preempt or declared.preempt, guess, breaks, seed)
    try:
        with _progress([pool.name for pool in declared.pools]) as watch:
            return sized(declared, trace, goal, settings, bounds=bounds, watch=watch)
    except Flaw as flaw:
        raise CliError(f"{flaw.message}" + (f"; {flaw.mend}" if flaw.mend else "")) from None


@contextmanager
def _progress(names: list[str]) -> Generator[Callable[[Units], None]]:
    """A bar on stderr with the fleet that is being simulated; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda units: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def watch(units: Units) -> None:
            fleet = ", ".join(f"{name} {count}" for name, count in zip(names, units, strict=True))
            done = int(bar.tasks[0].completed)
            bar.update(task, completed=done + 1, description=f"fleet {done + 1}: {fleet}")

        yield watch


def _print(answer: Answer) -> None:
    best = answer.best
    if best is None:
        near = answer.nearest
        print(f"No fleet within the bounds meets the goal: {answer.goal}.")
        print(f"The nearest, {_named(answer, near)}, {_missed(answer, near)}.")
        if any(one.upwards and not met for one, met in zip(answer.goal.clauses, near.met, strict=True)):
            print("That is the largest; bounds are widened with --pool NAME=MIN..MAX.")
    else:
        print_pairs(_found(answer, best))
    print()
    rows: list[Row] = [_row(answer, each) for each in answer.tried]
    print_table(rows[:_MOST_LISTED], _columns(answer))
    if len(rows) > _MOST_LISTED:
        print(f"and {len(rows) - _MOST_LISTED} more; --json has all")


def _found(answer: Answer, best: Candidate) -> list[tuple[str, str]]:
    from stellwerk.simulation.report.words import percent

    figures = best.figures
    given = (clause.show(value) for clause, value in zip(answer.goal.clauses, best.values, strict=True))
    pairs = [
        ("goal", str(answer.goal)),
        ("cheapest fleet", _named(answer, best)),
        ("chips", f"{best.chips:,}"),
        ("price per hour", formats.money(best.price_per_hour)),
        *((str(clause), given) for clause, given in zip(answer.goal.clauses, given, strict=True)),
        ("utilization", percent(figures["utilization"]) if all(one.upwards for one in answer.goal.clauses) else ""),
        ("mean wait", formats.duration(figures["wait_s"]["mean"])),
        ("cost of the trace", formats.money(figures["cost"])),
    ]
    smaller = [(_named(answer, each), each) for each in answer.smaller]
    pairs += [("next smaller", f"{name} {_missed(answer, each)}") for name, each in smaller]
    if not smaller:
        pairs.append(("next smaller", "none within the bounds"))
    return pairs


def _missed(answer: Answer, candidate: Candidate) -> str:
    from stellwerk.simulation.sizing import failing

    return "; ".join(f"misses {clause}: {told}" for clause, told in failing(answer, candidate)) or "meets it"


def _named(answer: Answer, candidate: Candidate) -> str:
    return ", ".join(f"{pool.name} {count}" for pool, count in zip(answer.pools, candidate.units, strict=True))


def _row(answer: Answer, each: Candidate) -> Row:
    clauses = zip(answer.goal.clauses, each.values, strict=True)
    return {
        "mark": each is answer.best,
        "units": each.units,
        "chips": each.chips,
        "price": each.price_per_hour,
        "values": [clause.show(value) for clause, value in clauses],
        "meets": each.meets,
    }


def _columns(answer: Answer) -> tuple[Column, ...]:
    pools = enumerate(pool.name for pool in answer.pools)
    clauses = enumerate(answer.goal.clauses)
    return (
        Column("", lambda row: ">" if row["mark"] else ""),
        *(Column(name, lambda row, index=index: str(row["units"][index]), right=True) for index, name in pools),
        Column("chips", lambda row: f"{row['chips']:,}", right=True),
        Column("price/h", lambda row: formats.money(row["price"]), right=True),
        *(Column(one.title, lambda row, index=index: row["values"][index], right=True) for index, one in clauses),
        Column("goal", lambda row: "met" if row["meets"] else "missed"),
    )


__all__ = ["size"]
