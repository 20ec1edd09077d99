"""`ls`, `history`, `show`, `why`, `logs`, `stop`: workloads that the controller knows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stellwerk.cli import formats
from stellwerk.cli.arguments import json_option, name_argument
from stellwerk.cli.tables import Column, Row, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from stellwerk.api.client import Client


def connected() -> Client:
    """A client of the running controller."""
    from stellwerk.api.client import Client

    return Client.connect()


def ls(json: bool = json_option()) -> None:
    """List the workloads that have not ended: their state, their hardware, what they wait for, and until when.

    Expected starts are medians, with the 90th percentile in brackets; a dash is a start too far ahead to tell.
    """
    _print_list(connected().workloads(), _LIVE, json, "no workload is waiting or running")


def history(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only workloads of this name.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="How many are shown at most; 0: all.", metavar="N", min=0)] = 1000,
    json: bool = json_option(),
) -> None:
    """List the workloads that have ended, the latest first."""
    found = connected().workloads(ended=True, name=name, limit=limit or None)
    _print_list(found, _ENDED, json, "no workload has ended yet" if name is None else f"no {name} has ended")
    if limit and len(found) == limit:
        print(f"the latest {limit} are shown; --limit 0 shows all", file=sys.stderr)


def show(name: str = name_argument(), json: bool = json_option()) -> None:
    """Show one workload: its state, its attempts, what they ran on and what they cost."""
    found = connected().workload(name)
    if json:
        print_json(found)
    else:
        _print_one(found)


def why(name: str = name_argument(), json: bool = json_option()) -> None:
    """Say why a workload waits, for every option, when it could start, and the cheapest change that would start it."""
    found = connected().why(name)
    if json:
        print_json(found)
        return
    print(f"{found['name']} is {found['state']}")
    for option in found["options"]:
        print(f"  {option['option']}: {formats.reasons(option['reasons']) or 'can start now'}")
    earliest = formats.span(found.get("earliest"), formats.from_now)
    if earliest != formats.UNKNOWN:
        print(f"expected start: {earliest}")
        finish = formats.span(found.get("finish"), formats.from_now)
        if finish != formats.UNKNOWN:
            print(f"expected finish: {finish}")
    elif found["state"] == "waiting":
        print("expected start: too far ahead to tell, or something that it waits for has no estimate")
    if (promise := found.get("promise")) is not None:
        words = "at the latest" if promise["kept"] else "if nobody passes it"
        print(f"by the estimates of those before it: {formats.from_now(promise['at'])}, {words}")
    if found.get("cheapest_change"):
        print(f"would start now with: {_change(found['cheapest_change'])}")


def logs(
    name: str = name_argument(),
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the workload has ended.")] = False,
    attempt: Annotated[int | None, typer.Option(help="An earlier attempt.", metavar="N", min=1)] = None,
    source: Annotated[
        str, typer.Option(help="`driver`, `all`, or a host such as pool-0-host-1.", metavar="SOURCE")
    ] = "driver",
) -> None:
    """Print the log of a workload's last attempt: of its driver, of one host, or of all."""
    from stellwerk.cli.logs import print_logs

    print_logs(connected(), name, attempt, None if source == "all" else source, follow)


def stop(
    name: str = name_argument(),
    grace: Annotated[float, typer.Option(help="Seconds that its code has to save its state.", min=0)] = 10,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until it has ended.")] = False,
) -> None:
    """Stop a workload: tell its code, give it time to save its state, then end it."""
    client = connected()
    client.stop(name, grace)
    if detach:
        print(f"{name} is being stopped")
        return
    after, ended = 0, False
    while not ended:
        news = client.watch(name, after)
        after, ended = news["seq"], news["ended"]
        if ended:
            print(f"{name} {news['workload']['outcome']}")


def _waits(row: Row) -> bool:
    return bool(row["state"] == "waiting")


def first_reason(row: Row) -> str:
    """Why it does not run with its preferred option."""
    return formats.reasons([reason for reason in row["reasons"] if not reason.get("option")])


_NAME = Column("name", lambda row: str(row["name"]))
_KIND = Column("kind", lambda row: str(row["kind"]))
_QUEUE = Column("queue", lambda row: str(row["queue"]))
_ATTEMPT = Column("attempt", lambda row: formats.number(row["attempt"]), right=True)
_OPTION = Column("hardware", formats.hardware)
_UNITS = Column("units", lambda row: formats.names(row["units"]))

_LIVE = (
    _NAME,
    _KIND,
    _QUEUE,
    Column("state", lambda row: str(row["state"])),
    _ATTEMPT,
    _OPTION,
    _UNITS,
    Column("hosts", lambda row: formats.number(row["hosts"]), right=True),
    Column("chips", lambda row: formats.number(row["chips"]), right=True),
    Column("submitted", lambda row: formats.clock(row["submitted"])),
    Column("started", lambda row: formats.clock(row["started"])),
    Column("starts", lambda row: formats.span(row.get("start"), formats.from_now) if _waits(row) else ""),
    Column("reason", first_reason),
)

_ENDED = (
    _NAME,
    _KIND,
    _QUEUE,
    Column("outcome", lambda row: str(row["outcome"])),
    Column("cause", lambda row: str(row["cause"] or "")),
    Column("attempts", lambda row: formats.number(row["attempt"]), right=True),
    _OPTION,
    Column("submitted", lambda row: formats.clock(row["submitted"])),
    Column("finished", lambda row: formats.clock(row["finished"])),
    Column("took", lambda row: formats.duration(formats.between(row["started"], row["finished"])), right=True),
)


def _attempts(emulated: bool) -> tuple[Column, ...]:
    return (
        Column("attempt", lambda row: str(row["number"]), right=True),
        _OPTION,
        _UNITS,
        Column("state", lambda row: str(row["state"])),
        Column("outcome", lambda row: str(row["outcome"] or "")),
        Column("cause", lambda row: str(row["cause"] or "")),
        Column("started", lambda row: formats.clock(row["started"])),
        Column("took", lambda row: formats.duration(formats.between(row["started"], row["finished"])), right=True),
        Column("chip-hours", lambda row: formats.number(row["chip_hours"], 3), right=True),
        Column("would cost" if emulated else "cost", lambda row: formats.money(row["cost"]), right=True),
    )


def _print_list(found: Sequence[Row], columns: tuple[Column, ...], json: bool, empty: str) -> None:
    if json:
        print_json(found)
    else:
        print_table(found, columns, empty)


def _print_one(found: Row) -> None:
    ended = f": {found['outcome']}" if found["outcome"] else ""
    caused = f" ({found['cause']})" if found["cause"] else ""
    print_pairs(
        (
            ("name", str(found["name"])),
            ("kind", str(found["kind"])),
            ("queue", str(found["queue"])),
            ("state", f"{found['state']}{ended}{caused}"),
            ("message", str(found.get("message") or "")),
            ("submitted", formats.clock(found["submitted"])),
            ("finished", "" if found["finished"] is None else formats.clock(found["finished"])),
            ("retries left", formats.number(found["retries_left"])),
            ("checkpoint", str(found["checkpoint"] or "")),
            ("waits for", first_reason(found)),
        )
    )
    if found["attempts"]:
        print()
        print_attempts(found)


def print_attempts(found: Row) -> None:
    """The attempts of a workload as a table."""
    print_table(found["attempts"], _attempts(bool(found.get("emulated"))))


def _change(change: Row | str) -> str:
    return change if isinstance(change, str) else str(change.get("message") or change)
