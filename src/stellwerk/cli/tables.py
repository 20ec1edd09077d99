"""Listings: JSON for programs, a rich table on a terminal, plain columns everywhere else.

Rich is imported for terminals only: the plain form is what scripts and logs get, and it costs no start-up time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, how a row is shown in it, and whether it holds numbers."""

    title: str
    show: Callable[[Row], str]
    right: bool = False


def print_json(value: Any) -> None:
    """JSON on stdout, indented, with the keys in the order that they were given."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(rows: Sequence[Row], columns: Iterable[Column], empty: str = "") -> None:
    """A table, or the sentence `empty` when there are no rows. Columns without any content are left out."""
    if not rows:
        if empty:
            print(empty)
        return
    cells = [(column, [column.show(row) for row in rows]) for column in columns]
    cells = [(column, shown) for column, shown in cells if any(shown)]
    if fancy():
        _print_rich(cells)
    else:
        _print_plain(cells)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line; pairs without a value are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        print(f"{name:<{width}}  {value}")


def fancy() -> bool:
    """Whether stdout is a terminal that shows colours and redraws lines."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _print_plain(cells: Sequence[tuple[Column, list[str]]]) -> None:
    widths = [max(len(column.title), *map(len, shown)) for column, shown in cells]
    lines = [[column.title.upper() for column, _ in cells], *zip(*(shown for _, shown in cells), strict=True)]
    for line in lines:
        parts = [
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, (column, _) in zip(line, widths, cells, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _print_rich(cells: Sequence[tuple[Column, list[str]]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column, _ in cells:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for line in zip(*(shown for _, shown in cells), strict=True):
        table.add_row(*(Text(text) for text in line))
    Console().print(table)
