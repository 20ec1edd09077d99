"""`stellwerk cost`: the ledger as a bill."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from stellwerk.cli import formats
from stellwerk.cli.arguments import json_option
from stellwerk.cli.errors import CliError
from stellwerk.cli.tables import Column, Row, print_json, print_table
from stellwerk.cli.workloads import connected

BY = ("workload", "queue", "pool", "attempt")
_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def cost(
    by: Annotated[
        str, typer.Option(help="What to sum by: workload, queue, pool or attempt.", metavar="KEY")
    ] = "workload",
    since: Annotated[
        str | None, typer.Option(help="From when on: a time (2026-01-31T12:00Z) or an age (2h, 7d).", metavar="T")
    ] = None,
    json: bool = json_option(),
) -> None:
    """Print the bill: how long units were busy, starting, idle, draining, broken or being provisioned, and the money.

    Emulated hardware costs nothing: its row says what the real one would cost. Durations are unit-time.
    """
    if by not in BY:
        raise CliError(f"cannot sum by {by!r}; allowed: {', '.join(BY)}")
    found = connected().cost(by, None if since is None else moment(since))
    if json:
        print_json(found)
    else:
        print_bill(found, by)


def print_bill(found: Sequence[Row], by: str) -> None:
    """The bill as a table with its sum."""
    emulated = any(row.get("emulated") for row in found)
    print_table(found, _columns(by, emulated), "nothing has been used")
    costs = [row["cost"] for row in found]
    if len(costs) > 1 and None not in costs:
        print(f"{'would cost' if emulated else 'cost'} together: {formats.money(sum(costs))}")
    if emulated:
        print("Emulated hardware: nothing is charged.")


def moment(since: str, now: datetime | None = None) -> str:
    """A time or an age as RFC 3339 in UTC; a time without a zone is local."""
    age = re.fullmatch(r"(\d+)([smhdw])", since)
    try:
        if age:
            at = (now or datetime.now(UTC)) - timedelta(seconds=int(age[1]) * _AGO[age[2]])
        else:
            at = datetime.fromisoformat(since).astimezone(UTC)
    except (ValueError, OverflowError):
        raise CliError(f"{since!r} is neither a time (2026-01-31T12:00Z) nor an age (30m, 2h, 7d)") from None
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _columns(by: str, emulated: bool) -> tuple[Column, ...]:
    uses = ("busy", "starting", "idle", "draining", "broken", "provisioning")
    return (
        Column(by, lambda row: str(row["key"])),
        *(Column(use, lambda row, use=use: formats.duration(row[f"{use}_s"]), right=True) for use in uses),
        Column("chip-hours", lambda row: formats.number(row["chip_hours"], 3), right=True),
        Column("would cost" if emulated else "cost", lambda row: formats.money(row["cost"]), right=True),
    )
