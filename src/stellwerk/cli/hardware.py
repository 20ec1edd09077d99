"""`stellwerk hardware`: facts about accelerators."""

from __future__ import annotations

from typing import Annotated

import typer

from stellwerk.cli import formats
from stellwerk.cli.arguments import json_option
from stellwerk.cli.tables import Column, Row, print_json, print_pairs, print_table


def hardware(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One accelerator, in any spelling.", show_default=False)
    ] = None,
    json: bool = json_option(),
) -> None:
    """List accelerators; with a NAME, its topologies, machines, prices and where the facts come from.

    Prices are list prices per chip and hour, in US dollars; a dash is a fact that no source gives.
    """
    from stellwerk.hardware import accelerator, accelerators, to_json

    found = [to_json(one) for one in (accelerators() if name is None else [accelerator(name)])]
    if json:
        print_json(found)
    elif name is None:
        print_table(found, _LIST)
    else:
        _print_one(found[0])


def _topologies(row: Row) -> str:
    """The smallest and the largest, and how many there are."""
    chips = {shape["topology"]: shape["chips"] for shape in row["shapes"] if shape["topology"]}
    if len(chips) < 2:
        return "".join(chips)
    return f"{min(chips, key=chips.__getitem__)} to {max(chips, key=chips.__getitem__)} ({len(chips)})"


_LIST = (
    Column("accelerator", lambda row: str(row["name"])),
    Column("kind", lambda row: str(row["kind"])),
    Column("memory GiB", lambda row: formats.number(row["memory_gib"]), right=True),
    Column("TFLOP/s bf16", lambda row: _tera(row["flops_bf16"]), right=True),
    Column("chips/host", lambda row: _choices(row["chips_per_host"])),
    Column("topologies", _topologies),
    Column("$/chip-hour", lambda row: formats.number(row["price_per_chip_hour"]), right=True),
)

_SHAPES = (
    Column("topology", lambda row: str(row["topology"] or formats.UNKNOWN)),
    Column("chips", lambda row: str(row["chips"]), right=True),
    Column("hosts", lambda row: str(row["hosts"]), right=True),
    Column("machine", lambda row: str(row["machine"] or formats.UNKNOWN)),
    Column("", lambda row: "several hosts" if row["multi_host"] else "one host"),
    Column("note", lambda row: str(row.get("doubt") or "")),
)


def _print_one(row: Row) -> None:
    price: Row = row.get("price") or {}
    priced = formats.money(row["price_per_chip_hour"])
    origin = ", ".join(str(price[key]) for key in ("provider", "region", "date") if price.get(key))
    print_pairs(
        (
            ("accelerator", str(row["name"])),
            ("kind", str(row["kind"])),
            ("also written", ", ".join(row["spellings"])),
            ("memory", f"{formats.number(row['memory_gib'])} GiB a chip"),
            ("speed", f"{_tera(row['flops_bf16'])} TFLOP/s a chip in bf16"),
            ("chips a host", _choices(row["chips_per_host"])),
            ("price", f"{priced} a chip-hour" + (f" ({origin})" if origin else "")),
        )
    )
    if row["shapes"]:
        print()
        print_table(row["shapes"], _SHAPES)
    for note in row.get("notes") or ():
        print(f"\nnote: {note}")
    if row["sources"]:
        print("\nsources:")
        for source in row["sources"]:
            print(f"  {_source(source)}")


def _tera(flops: float | None) -> str:
    return formats.number(None if flops is None else flops / 1e12, 1)


def _choices(counts: list[int]) -> str:
    return ", ".join(map(str, counts)) or formats.UNKNOWN


def _source(source: Row | str) -> str:
    if isinstance(source, str):
        return source
    return ", ".join(str(value) for value in source.values() if value)
