"""`stellwerk chaos`: faults on purpose, to see what happens."""

from __future__ import annotations

from typing import Annotated

import typer

from stellwerk.cli.app import new_typer
from stellwerk.cli.arguments import name_argument
from stellwerk.cli.coercion import PlainCommand
from stellwerk.cli.workloads import connected

app = new_typer()


@app.command("kill-host", cls=PlainCommand)
def kill_host(
    name: str = name_argument(),
    host: Annotated[
        int | None, typer.Option(help="Which host of the unit, from 0; default: the last.", metavar="N", min=0)
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Which unit of the workload.", metavar="UNIT")] = None,
) -> None:
    """Kill one host of a running workload, with everything on it."""
    told = connected().chaos("kill-host", name, host=host, unit=unit)
    print(f"killed host {told['host']} of {told['unit']}")


@app.command("kill-unit", cls=PlainCommand)
def kill_unit(
    name: str = name_argument(),
    unit: Annotated[str | None, typer.Option(help="Which unit of the workload.", metavar="UNIT")] = None,
) -> None:
    """Kill all hosts of one unit of a running workload."""
    told = connected().chaos("kill-unit", name, unit=unit)
    print(f"killed {told['unit']}")


@app.command(cls=PlainCommand)
def preempt(
    name: str = name_argument(),
    unit: Annotated[str | None, typer.Option(help="Which unit of the workload.", metavar="UNIT")] = None,
) -> None:
    """Take a unit away as a provider does: with notice, so that the code can save its state."""
    told = connected().chaos("preempt", name, unit=unit)
    print(f"gave notice to {told['unit']}")
