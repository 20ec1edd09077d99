"""`stellwerk plan`: what every option of a workload would give now."""

from __future__ import annotations

from typing import Annotated

import typer

from stellwerk.api.submission import plan_source
from stellwerk.cli import formats
from stellwerk.cli.arguments import TailCommand, json_option, tail
from stellwerk.cli.declaring import named, warn
from stellwerk.cli.errors import FAILED
from stellwerk.cli.tables import Column, Row, print_json, print_table


def plan(
    ctx: typer.Context,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="A workload file.", show_default=False)] = None,
    accelerator: Annotated[
        list[str] | None, typer.Option(help="Hardware instead of the file's; again for a fallback.", metavar="HARDWARE")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Another name.", metavar="NAME")] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue.", metavar="QUEUE")] = None,
    fleet: Annotated[str | None, typer.Option(help="Plan for this fleet file.", metavar="FLEET")] = None,
    on: Annotated[str, typer.Option(help="The backend.", metavar="BACKEND")] = "local",
    json: bool = json_option(),
) -> None:
    """Say what every option of a workload would give: units, price, start, finish, cost, and why not.

    Changes nothing and starts nothing: the controller is asked if one runs, else the plan is worked out here. Times and
    costs are medians, with the 90th percentile in brackets. Exit code 1 when no option can ever run.
    """
    source = named(file, tail(ctx), accelerator=accelerator, name=name, on=on)
    told = plan_source(source, fleet=fleet, warn=warn, accelerator=accelerator or None, name=name, queue=queue)
    if json:
        print_json(told)
    else:
        print_plan(told)
    if hopeless(told):
        raise typer.Exit(FAILED)


plan.cls = TailCommand  # pyright: ignore[reportFunctionMemberAccess]


def hopeless(told: Row) -> bool:
    """Whether no option can ever run."""
    return all(option["verdict"] == "never" for option in told["options"])


def print_plan(told: Row) -> None:
    """The options as a table, the chosen one marked."""
    options: list[Row] = [{**option, "mark": index == told["chosen"]} for index, option in enumerate(told["options"])]
    emulated = any(option.get("emulated") for option in options)
    columns = (
        Column("", lambda row: ">" if row["mark"] else ""),
        Column("option", formats.hardware),
        Column("units", lambda row: formats.number(row["units"]), right=True),
        Column("hosts", lambda row: formats.number(row["hosts"]), right=True),
        Column("chips", lambda row: formats.number(row["chips"]), right=True),
        Column("price/h", lambda row: formats.money(row["price_per_hour"]), right=True),
        Column("start", lambda row: formats.span(row["start"], formats.from_now)),
        Column("finish", lambda row: formats.span(row["finish"], formats.from_now)),
        Column("would cost" if emulated else "cost", lambda row: formats.span(row["cost"], formats.money), right=True),
        Column("verdict", lambda row: str(row["verdict"])),
        Column("reason", lambda row: formats.reasons(row["reasons"])),
    )
    print_table(options, columns)
    for note in told.get("notes") or ():
        print(f"note: {note}")


def summary(told: Row) -> str:
    """The plan in one line: the option that would run and what it means."""
    if told["chosen"] is None:
        return f"{told['name']}: no option can start now"
    option: Row = told["options"][told["chosen"]]
    size = [
        formats.quantity(option[key], key[:-1]) for key in ("units", "hosts", "chips") if option.get(key) is not None
    ]
    cost = formats.span(option["cost"], formats.money)
    would = "would cost" if option.get("emulated") else "costs"
    priced = [] if cost == formats.UNKNOWN else [f"{would} {cost}"]
    return ", ".join([f"{told['name']}: {formats.hardware(option)}", *size, f"starts {_start(option)}", *priced])


def _start(option: Row) -> str:
    start = formats.span(option["start"], formats.from_now)
    return str(option["verdict"]) if start == formats.UNKNOWN else start
