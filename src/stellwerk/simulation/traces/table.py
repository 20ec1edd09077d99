"""Stellwerk's own table, CSV or Parquet: what a site can write out of whatever it has.

| column | |
|---|---|
| `submit_s`, `duration_s` | seconds; submit from any origin, or a date and time |
| `option` | hardware in its short form, `tpu-v6e:4x4*2@spot` or `h100:16`; or, instead of it: |
| `chips`, `accelerator` | how many chips, and of what (any: empty) |
| `name`, `user`, `queue` | texts; a name is the row's number, a queue `default`, unless said |
| `estimate_s` | what the user asked for; empty is unknown |
| `priority` | `low`, `normal`, `high` or an integer; `normal` unless said |
| `tag_NAME` | kept as the tag NAME |

`submit_s`, `duration_s` and one of `option` and `chips` are needed. Other columns are refused, since a
mistyped name would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from stellwerk.simulation.traces.model import Job, Tags, Trace, make_trace
from stellwerk.simulation.traces.rows import Rows, refuse
from stellwerk.spec.problems import Flaw, allowed, did_you_mean, shown

COLUMNS = (
    "name",
    "user",
    "queue",
    "submit_s",
    "duration_s",
    "option",
    "accelerator",
    "chips",
    "estimate_s",
    "priority",
)
_TAG = "tag_"
_DIGITS = 20
_T = TypeVar("_T")


def fits(header: list[str]) -> bool:
    """Whether a header is that of Stellwerk's table."""
    return "submit_s" in header


def read(rows: Rows, name: str, accelerator: str | None, extra: frozenset[str] = frozenset()) -> Trace:
    """The jobs of a table. `extra` are accelerators that only a fleet declares. Raises `SpecError` with places."""
    _check(rows)
    options = [_each(rows, "option", row, text, _option(extra)) for row, text in enumerate(rows.texts("option"))]
    makers = [
        _each(rows, "accelerator", row, text, _accelerator(extra)) for row, text in enumerate(rows.texts("accelerator"))
    ]
    priorities = [_each(rows, "priority", row, text, _priority) for row, text in enumerate(rows.texts("priority"))]
    names = rows.texts("name")
    jobs = [
        Job(*values)
        for values in zip(
            [text or str(row) for row, text in enumerate(names)],
            rows.texts("user", default="unknown"),
            rows.texts("queue", default="default"),
            rows.times("submit_s"),
            rows.numbers("duration_s"),
            _chips(rows, [option[1] if option else None for option in options]),
            rows.known("estimate_s"),
            [priority or 0 for priority in priorities],
            [option[0] if option else None for option in options],
            makers,
            [None] * len(rows),
            _tags(rows),
            strict=True,
        )
    ]
    return make_trace(name, jobs, "table", {}, accelerator)


def _check(rows: Rows) -> None:
    for name in rows.header:
        if name not in COLUMNS and not name.startswith(_TAG):
            message = f"unknown column {shown(name)}; {allowed([*COLUMNS, 'tag_NAME'])}"
            refuse(rows.file, "unknown-column", message, did_you_mean(name, COLUMNS), 1)
    missing = [name for name in ("submit_s", "duration_s") if name not in rows.header]
    if "option" not in rows.header and "chips" not in rows.header:
        missing.append("option` or `chips")
    if missing:
        refuse(rows.file, "missing-column", f"the column `{missing[0]}` is missing", None, 1)


def _each(rows: Rows, column: str, row: int, text: str, parse: Callable[[str], _T]) -> _T | None:
    if not text:
        return None
    try:
        return parse(text)
    except Flaw as flaw:
        rows.refuse(row, column, flaw.code, f"is wrong: {flaw.message}", flaw.mend)


def _option(extra: frozenset[str]) -> Callable[[str], tuple[str, int]]:
    @lru_cache(maxsize=4096)
    def parse(text: str) -> tuple[str, int]:
        from stellwerk.spec.request import parse_option

        option = parse_option(text, extra_accelerators=extra)
        return text, option.chips

    return parse


def _accelerator(extra: frozenset[str]) -> Callable[[str], str]:
    @lru_cache(maxsize=4096)
    def parse(text: str) -> str:
        from stellwerk.spec.request import named

        return named(text, extra)[0]

    return parse


@lru_cache(maxsize=4096)
def _priority(text: str) -> int:
    from stellwerk.spec.values import parse_priority

    number = text.lstrip("+-")
    return parse_priority(int(text) if number.isdecimal() and len(number) < _DIGITS else text)


def _chips(rows: Rows, of_options: list[int | None]) -> list[int]:
    """Chips by the column, else by the option; the two may not contradict each other."""
    column = rows.known("chips", 1)
    for row, value in enumerate(column):
        if value is not None and value != int(value):
            rows.refuse(row, "chips", "wrong-type", f"is {value:g}; it must be a whole number")
    for row, (given, known) in enumerate(zip(column, of_options, strict=True)):
        if given is None and known is None:
            name = "chips" if "chips" in rows.header else "option"
            rows.refuse(row, name, "missing-key", "is empty, and nothing else says what hardware this is")
        if None not in (given, known) and given != known:
            rows.refuse(row, "chips", "chips", f"is {given:g}, but the option has {known}", "leave `chips` empty")
    return [int(given or known or 0) for given, known in zip(column, of_options, strict=True)]


def _tags(rows: Rows) -> list[Tags]:
    names = [name for name in rows.header if name.startswith(_TAG)]
    if not names:
        return [()] * len(rows)
    columns = [rows.texts(name) for name in names]
    keys = [name.removeprefix(_TAG) for name in names]
    return [
        tuple((key, cell) for key, cell in zip(keys, cells, strict=True) if cell)
        for cells in zip(*columns, strict=True)
    ]
