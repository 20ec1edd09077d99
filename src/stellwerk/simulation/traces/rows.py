"""Rows of a table file as columns of numbers and texts; whatever is wrong is told with its place.

Columns are converted whole, which is as fast as Python goes. Only when that fails are cells looked at one by
one, and the file's text once more, to find the place.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, NoReturn, TypeVar

from stellwerk.spec.problems import Problem, SpecError, shown

LARGEST_NUMBER = 10**15

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_T = TypeVar("_T", float, int)


def refuse(
    file: str, code: str, message: str, mend: str | None = None, line: int | None = None, column: int | None = None
) -> NoReturn:
    """Raise a `SpecError` with this one problem."""
    raise SpecError([Problem(file, line, column, "error", code, message, mend)])


@dataclass
class Rows:
    """A header and rows of equal width. `text` is the CSV they came from, None for formats without lines."""

    file: str
    header: list[str]
    cells: list[list[str]]
    text: str | None = None

    def __post_init__(self) -> None:
        """Look columns up by name."""
        self._columns: Sequence[Sequence[str]] = list(zip(*self.cells, strict=True)) if self.cells else []

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.cells)

    def column(self, *names: str) -> Sequence[str] | None:
        """The cells of the first of these columns that the file has, else None."""
        for name in names:
            if name in self.header:
                return self._columns[self.header.index(name)] if self.cells else []
        return None

    def texts(self, *names: str, default: str = "") -> list[str]:
        """A column as texts; the default stands for empty cells and for a column that is not there."""
        found = self.column(*names)
        if found is None:
            return [default] * len(self)
        # Equal cells become one object: a million jobs have a hundred users.
        once = {cell: cell.strip() or default for cell in set(found)}
        return list(map(once.__getitem__, found))

    def numbers(self, name: str, least: float | None = 0.0) -> list[float]:
        """A column of numbers, none empty. Raises `SpecError` with the place of the first that is none."""
        return self._converted(name, float, "a number", least)

    def wholes(self, name: str, least: int | None = 0) -> list[int]:
        """A column of whole numbers, none empty. Raises `SpecError` with the place of the first that is none."""
        return self._converted(name, int, "a whole number", least)

    def known(self, name: str, least: float | None = 0.0) -> list[float | None]:
        """A column of numbers in which empty cells are None."""
        if name not in self.header:
            return [None] * len(self)
        convert = self._checked(float, "a number", least)
        return [convert(name, row, cell) if cell.strip() else None for row, cell in enumerate(self.column(name) or ())]

    def times(self, name: str) -> list[float]:
        """A column of seconds, or of dates and times (UTC unless they say otherwise), as seconds."""
        column = self.column(name) or []
        if column and ("-" in column[0][1:] and ":" in column[0]):
            return [self._moment(name, row, cell) for row, cell in enumerate(column)]
        return self.numbers(name, None)

    def refuse(self, row: int, name: str, code: str, message: str, mend: str | None = None) -> NoReturn:
        """Raise a `SpecError` at the cell of this row (from 0) and column."""
        line, column = _place(self.text, row + 1, self.header.index(name)) if self.text is not None else (None, None)
        where = "" if line else f"row {row + 1}: "
        refuse(self.file, code, f"{where}`{name}` {message}", mend, line, column)

    def _converted(self, name: str, kind: Callable[[str], _T], wanted: str, least: _T | None) -> list[_T]:
        column = self.column(name) or []
        try:
            values = list(map(kind, column))
        except ValueError:
            values = None
        if values is not None and self._are_plain(values, least):
            return values
        convert = self._checked(kind, wanted, least)
        return [convert(name, row, cell) for row, cell in enumerate(column)]

    @staticmethod
    def _are_plain(values: Sequence[_T], least: _T | None) -> bool:
        """Whether all are finite and within their range, in three passes of compiled code."""
        low, high = min(values, default=0), max(values, default=0)
        within = (low >= least if least is not None else low >= -LARGEST_NUMBER) and high <= LARGEST_NUMBER
        return within and math.isfinite(sum(values))

    def _checked(self, kind: Callable[[str], _T], wanted: str, least: _T | None) -> Callable[[str, int, str], _T]:
        def convert(name: str, row: int, cell: str) -> _T:
            try:
                value = kind(cell)
            except ValueError:  # also for numbers of thousands of digits
                self.refuse(row, name, "wrong-type", f"is {shown(cell)}; it must be {wanted}")
            if not abs(value) <= LARGEST_NUMBER:
                self.refuse(row, name, "wrong-value", f"is {shown(cell)}; it must be finite and at most 1e15")
            if least is not None and value < least:
                self.refuse(row, name, "wrong-value", f"is {shown(cell)}; it must be at least {least:g}")
            return value

        return convert

    def _moment(self, name: str, row: int, cell: str) -> float:
        try:
            moment = datetime.fromisoformat(cell.strip())
        except ValueError:
            self.refuse(
                row, name, "wrong-type", f"is {shown(cell)}; it must be a date and time, as in 2017-10-09 07:01:55"
            )
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (moment - _EPOCH).total_seconds()


def rows_of_csv(file: str, text: str) -> Rows:
    """The rows of a CSV with a header. Raises `SpecError` when rows are not as wide as the header."""
    try:
        cells = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        refuse(file, "not-csv", f"this is no CSV: {error}")
    if not cells:
        refuse(file, "empty", "the file is empty; a trace has a header and jobs")
    header = [name.strip() for name in cells[0]]
    del cells[0]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        refuse(file, "duplicate-key", f"the column {shown(twice)} is there twice", line=1)
    if set(map(len, cells)) - {len(header)}:
        wrong = next(index for index, row in enumerate(cells) if len(row) != len(header))
        line, _ = _place(text, wrong + 1, 0)
        message = f"this row has {len(cells[wrong])} cells, the header has {len(header)}"
        refuse(file, "row", message, line=line, column=1)
    return Rows(file, header, cells, text)


def rows_of_parquet(file: str, data: bytes) -> Rows:
    """The rows of a Parquet file; needs pyarrow. Raises `SpecError` without it, or when nothing can be read."""
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        refuse(file, "no-pyarrow", "Parquet is read with pyarrow, which is missing", "install pyarrow, or use CSV")
    try:
        table: Any = parquet.read_table(io.BytesIO(data))
    except (arrow.ArrowException, OSError) as error:
        refuse(file, "not-parquet", f"this Parquet file cannot be read: {str(error).splitlines()[0]}")
    names: list[str] = table.column_names
    lists: list[list[object]] = [column.to_pylist() for column in table.columns]
    columns = [["" if value is None else str(value) for value in column] for column in lists]
    return Rows(file, names, [list(row) for row in zip(*columns, strict=True)])


def _place(text: str | None, row: int, cell: int) -> tuple[int | None, int | None]:
    """Line and column of a cell; `row` counts from the header, which is 0."""
    reader = csv.reader(io.StringIO(text or "", newline=""))
    rows, begins = -1, 1
    for cells in reader:
        rows += bool(cells)
        if rows == row:
            line = (text or "").splitlines()[begins - 1]
            exact = '"' not in line and cell < len(cells)
            return begins, 1 + sum(len(part) + 1 for part in cells[:cell]) if exact else None
        begins = reader.line_num + 1
    return None, None
