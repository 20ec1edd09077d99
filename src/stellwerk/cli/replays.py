"""What commands that replay have in common: their options, and what is made of them."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stellwerk.cli.errors import CliError

if TYPE_CHECKING:
    from stellwerk import spec
    from stellwerk.scheduling.model import PolicyName
    from stellwerk.simulation.failures import Failures
    from stellwerk.simulation.submissions import Estimates
    from stellwerk.simulation.traces import Trace

POLICIES: tuple[PolicyName, ...] = ("fifo", "sjf", "backfill", "default")

EstimatesOption = Annotated[
    str, typer.Option(help="What users say of durations: exact, user, or a range of factors (1-5).", metavar="E")
]
PreemptOption = Annotated[bool, typer.Option("--preempt", help="Let the policy preempt; restarts cost time.")]
FailuresOption = Annotated[
    str | None, typer.Option(help="What breaks, and what an interruption costs.", metavar="FILE")
]
AcceleratorOption = Annotated[
    str | None, typer.Option(help="What a trace that only counts chips runs on.", metavar="NAME")
]
SeedOption = Annotated[int, typer.Option(help="For generated demand, drawn estimates and failures.", metavar="N")]


def trace_for(file: str, fleet: spec.Fleet, source: str, accelerator: str | None, seed: int) -> Trace:
    """The trace for one fleet, drawn by `seed` where it is generated; hardware that neither says is refused."""
    from stellwerk.simulation.traces import read

    chosen = _accelerator(file, fleet, accelerator)
    trace = read(source, chosen, fleet.accelerators, seed)
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


def policy_named(name: str) -> PolicyName:
    """The policy of that name; another is refused with the nearest."""
    if name in POLICIES:
        return name
    near = difflib.get_close_matches(name, POLICIES, n=1)
    mend = f"; did you mean {near[0]}?" if near else ""
    raise CliError(f"no such policy: {name}; allowed: {', '.join(POLICIES)}{mend}")


def estimates_named(text: str) -> Estimates:
    """The estimates of `--estimates`."""
    from stellwerk.simulation.submissions import Estimates

    try:
        return Estimates.parse(text)
    except ValueError as error:
        raise CliError(str(error)) from None


def failures_for(fleet: spec.Fleet, file: str | None) -> Failures | None:
    """What breaks in a fleet, by the file of `--failures`; None without one."""
    from stellwerk.simulation.failures import load_failures

    return load_failures(file, frozenset(pool.name for pool in fleet.pools)) if file else None


def check_seed(seed: int) -> None:
    """Refuse a seed that nothing can be drawn from."""
    if seed < 0:
        raise CliError(f"--seed is {seed}; it must be 0 or more")


def check_out(out: str | None) -> None:
    """Refuse an `--out` that is there already and no folder."""
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise CliError(f"{out}: this is not a folder")
