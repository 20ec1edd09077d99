"""`stellwerk fleet`: pools, units, hosts, queues."""

from __future__ import annotations

from typing import Annotated

import typer

from stellwerk.cli import formats
from stellwerk.cli.app import new_typer
from stellwerk.cli.arguments import json_option
from stellwerk.cli.coercion import PlainCommand
from stellwerk.cli.errors import FAILED
from stellwerk.cli.tables import Column, Row, print_json, print_table
from stellwerk.cli.workloads import connected

app = new_typer()


@app.command(cls=PlainCommand)
def show(json: bool = json_option()) -> None:
    """Show every pool with its units, their hosts, what is free and who holds them, and the queues."""
    found = connected().fleet()
    if json:
        print_json(found)
        return
    print_table(found["pools"], _POOLS, "the fleet has no pools yet: the local backend makes them as workloads ask")
    units: list[Row] = [{"pool": pool["name"], **unit} for pool in found["pools"] for unit in pool["units"]]
    if units:
        print()
        print_table(units, _UNITS)
    if found["queues"]:
        print()
        print_table(found["queues"], _QUEUES)


@app.command(cls=PlainCommand)
def check(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Fleet files.", show_default=False)] = None,
    json: bool = json_option(),
) -> None:
    """Check fleet files, or without any, whether every unit of the running fleet is whole (exit code 1 if not)."""
    if files:
        from stellwerk.cli.check import check_files

        check_files(files, json)
        return
    pools = connected().fleet()["pools"]
    broken: list[Row] = [
        {"pool": pool["name"], **unit}
        for pool in pools
        for unit in pool["units"]
        if unit["state"] == "broken" or (unit["state"] == "up" and unit["hosts_up"] < unit["hosts"])
    ]
    if json:
        print_json(broken)
    else:
        whole = formats.quantity(sum(len(pool["units"]) for pool in pools), "unit")
        print_table(broken, _UNITS, f"{whole}, none broken")
    if broken:
        raise typer.Exit(FAILED)


_POOLS = (
    Column("pool", lambda row: str(row["name"])),
    Column("accelerator", lambda row: f"{row['accelerator']}{' (emulated)' if row.get('emulated') else ''}"),
    Column("topology", lambda row: str(row["topology"] or "")),
    Column("layout", lambda row: str(row["layout"])),
    Column("machine", lambda row: str(row["machine"] or "")),
    Column("market", lambda row: str(row["market"])),
    Column("$/unit-hour", lambda row: formats.number(row["price_per_hour"]), right=True),
    Column("units", lambda row: str(len(row["units"])), right=True),
    Column("at most", lambda row: formats.number(row.get("maximum")), right=True),
    Column("free chips", lambda row: formats.number(row["free_chips"]), right=True),
    Column("largest free", lambda row: _largest(row["largest_free"], row["fragmentation"])),
)

_UNITS = (
    Column("unit", lambda row: str(row["name"])),
    Column("pool", lambda row: str(row["pool"])),
    Column("incarnation", lambda row: str(row["incarnation"]), right=True),
    Column("state", lambda row: str(row["state"])),
    Column("hosts", lambda row: f"{row['hosts_up']}/{row['hosts']}", right=True),
    Column("free chips", lambda row: formats.number(row["free_chips"]), right=True),
    Column("workloads", lambda row: formats.names(_held(row))),
)

_QUEUES = (
    Column("queue", lambda row: str(row["name"])),
    Column("weight", lambda row: formats.number(row.get("weight")), right=True),
    Column("quota", lambda row: _quota(row.get("quota"))),
    Column("cohort", lambda row: str(row.get("cohort") or "")),
    Column("borrow", lambda row: _share(row["borrow"], "all that is lent")),
    Column("lend", lambda row: _share(row["lend"], "all")),
    Column("policy", lambda row: str(row.get("policy") or "")),
)


def _largest(found: Row | None, scattered: float) -> str:
    """The largest shape that still fits, and how far that is from what is free."""
    if found is None:
        return "nothing"
    return f"{found['shape']} ({scattered:.0%} fragmented)" if scattered else str(found["shape"])


def _held(unit: Row) -> list[str]:
    """Who holds what: `NAME`, or `NAME (PLACE)` for a part of the unit."""
    return [
        f"{held['workload']} ({held['place']})" if held["place"] else held["workload"] for held in unit["placements"]
    ]


def _share(value: object, everything: str) -> str:
    if value is None or value is True:
        return everything
    return "nothing" if value is False or value == 0 else f"{value} chips"


def _quota(quota: Row | None) -> str:
    return "unlimited" if not quota else ", ".join(f"{name} {chips}" for name, chips in quota.items())
