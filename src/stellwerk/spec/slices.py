"""How many TPU slices an option takes: a number, or from a minimum to a maximum, `1..4`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from stellwerk.spec.plain import is_mapping
from stellwerk.spec.problems import Flaw, shown
from stellwerk.spec.values import Whole
from stellwerk.spec.wording import Declared, declared

MOST_SLICES = 10_000_000
_RANGE = re.compile(r"([0-9]{1,9})(?:\s*\.\.\s*([0-9]{1,9}))?")


class SliceRange(Declared):
    """An elastic option is granted `min` to `max` slices, as many as are free, and grows and shrinks as it runs."""

    min: Whole = Field(ge=1, le=MOST_SLICES, description="Slices that it needs at least.", examples=[1])
    max: Whole = Field(ge=1, le=MOST_SLICES, description="Slices that it can use at most.", examples=[4])

    def __str__(self) -> str:
        """As in a short form."""
        return f"{self.min}..{self.max}"


def parse_slices(value: Any) -> int | SliceRange:
    """A number of slices, or a range: `2`, `1..4`, `{min: 1, max: 4}`. Raises `Flaw` or `Flaws`."""
    if isinstance(value, SliceRange):
        return value
    if is_mapping(value):
        found = declared(SliceRange, value)
        return _range(found.min, found.max)
    match = _RANGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match and match[2]:
        return _range(int(match[1]), int(match[2]))
    number = int(match[1]) if match else value
    if isinstance(number, bool) or not isinstance(number, int):
        message = f"{shown(value)} is not a number of slices; allowed is a whole number or a range"
        raise Flaw("slices", message, "write for example 2, 1..4 or {min: 1, max: 4}")
    return _in_bounds(number)


def _range(least: int, most: int) -> int | SliceRange:
    if most < least:
        raise Flaw("slices", f"{least}..{most} ends before it begins", f"did you mean {most}..{least}?")
    if least == most:
        return _in_bounds(least)
    return SliceRange(min=_in_bounds(least), max=_in_bounds(most))


def _in_bounds(number: int) -> int:
    if not 1 <= number <= MOST_SLICES:
        bound = "at least 1" if number < 1 else f"at most {MOST_SLICES}"
        raise Flaw("wrong-value", f"`slices` is {shown(number)}; it must be {bound}")
    return number


_WHOLE = {"type": "integer", "minimum": 1, "maximum": MOST_SLICES}
Slices = Annotated[
    int | SliceRange,
    BeforeValidator(parse_slices),
    WithJsonSchema(
        {
            "anyOf": [
                _WHOLE,
                {"type": "string", "pattern": r"^\s*[0-9]+(\s*\.\.\s*[0-9]+)?\s*$"},
                {
                    "type": "object",
                    "properties": {
                        "min": {"description": "Slices that it needs at least.", **_WHOLE},
                        "max": {"description": "Slices that it can use at most.", **_WHOLE},
                    },
                    "required": ["min", "max"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
