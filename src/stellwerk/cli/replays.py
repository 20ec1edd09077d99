"""What commands that replay have in common: the trace on its fleet, and the names of policies."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

from stellwerk.cli.errors import CliError

if TYPE_CHECKING:
    from stellwerk import spec
    from stellwerk.scheduling.model import PolicyName
    from stellwerk.simulation.traces import Trace

POLICIES: tuple[PolicyName, ...] = ("fifo", "sjf", "backfill", "default")


def trace_for(file: str, fleet: spec.Fleet, source: str, accelerator: str | None) -> Trace:
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


def policy_named(name: str) -> PolicyName:
    """The policy of that name; another is refused with the nearest."""
    if name in POLICIES:
        return name
    near = difflib.get_close_matches(name, POLICIES, n=1)
    mend = f"; did you mean {near[0]}?" if near else ""
    raise CliError(f"no such policy: {name}; allowed: {', '.join(POLICIES)}{mend}")
