"""Scalars of a declaration: durations, money, memory, names, priorities; and their pydantic types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from stellwerk.spec.problems import Flaw, did_you_mean, listed, shown

LONGEST_DURATION = 10 * 365 * 86_400.0
LONGEST_NAME = 40
PRIORITIES = {"low": -100, "normal": 0, "high": 100}
PRIORITY_RANGE = 1_000_000

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {
    "B": 1,
    **{f"{p}B": 1000**i for i, p in enumerate("KMGTP", 1)},
    **{f"{p}iB": 1024**i for i, p in enumerate("KMGTP", 1)},
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile(rf"(?:{_NUMBER}\s*(?:ms|s|m|h|d|w)\s*)+")
_DURATION_PART = re.compile(rf"({_NUMBER})\s*(ms|s|m|h|d|w)")
_MONEY = re.compile(rf"(?:\$\s*({_NUMBER})|({_NUMBER})\s*([A-Za-z]*))")
_MEMORY = re.compile(rf"({_NUMBER})\s*([A-Za-z]+)")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_duration(value: str | float) -> float:
    """Seconds of `2h`, `1h30m`, `1.5h`, `1d`; a plain number is seconds. Raises `Flaw` (a ValueError)."""
    seconds = _number(value)
    if seconds is None and isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        seconds = sum(float(count) * _SECONDS[unit] for count, unit in _DURATION_PART.findall(value))
    if seconds is None:
        raise Flaw(
            "duration",
            f"{shown(value)} is not a duration; allowed are numbers with {listed(_SECONDS)}",
            "write for example 20m, 1h30m or 2d",
        )
    if not 0 <= seconds <= LONGEST_DURATION:
        raise Flaw("duration", f"a duration of {shown(value)} is out of range; allowed are 0 s to 10 years")
    return seconds


def parse_money(value: str | float) -> float:
    """US dollars of `300 USD`, `$300` or a plain number. Raises `Flaw` (a ValueError)."""
    amount = _number(value)
    match = _MONEY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match and (match[3] or "USD").upper() != "USD":
        raise Flaw("money", f"{shown(value)} is in {match[3]}; only USD is known", "write for example 300 USD")
    if match:
        amount = float(match[1] or match[2])
    if amount is None or not 0 <= amount < math.inf:
        raise Flaw("money", f"{shown(value)} is not an amount of money", "write for example 300 USD")
    return amount


def parse_memory(value: str | float) -> int:
    """Bytes of `16GiB`, `80GB` or a plain number of bytes. Raises `Flaw` (a ValueError)."""
    size = _number(value)
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        unit = {name.lower(): scale for name, scale in _BYTES.items()}.get(match[2].lower())
        if unit is None:
            raise Flaw(
                "memory",
                f"{shown(value)} has an unknown unit; allowed are {listed(_BYTES)}",
                did_you_mean(match[2], _BYTES),
            )
        size = float(match[1]) * unit
    if size is None or not 0 < size < 2**63:
        raise Flaw("memory", f"{shown(value)} is not an amount of memory", "write for example 16GiB")
    return round(size)


def parse_priority(value: object) -> int:
    """-100, 0, 100 for `low`, `normal`, `high`; an integer is itself. Raises `Flaw` (a ValueError)."""
    if isinstance(value, str) and value.lower() in PRIORITIES:
        return PRIORITIES[value.lower()]
    if isinstance(value, bool) or not isinstance(value, int):
        hint = did_you_mean(value, PRIORITIES) if isinstance(value, str) else None
        raise Flaw(
            "priority",
            f"{shown(value)} is not a priority; allowed are {listed([*PRIORITIES, 'an integer'])}",
            hint,
        )
    if abs(value) > PRIORITY_RANGE:
        raise Flaw("priority", f"a priority of {shown(value)} is out of range; allowed are -1000000 to 1000000")
    return value


def parse_name(value: object) -> str:
    """A name: an RFC 1123 label of at most 40 characters, so that it is also legal in Kubernetes."""
    if not isinstance(value, str):
        raise Flaw(
            "name",
            f"{shown(value)} is not a name; names are text",
            'write it in quotes, as in "7b"' if value is not None else None,
        )
    if len(value) > LONGEST_NAME:
        raise Flaw("name", f"{shown(value)} has {len(value)} characters; names have at most {LONGEST_NAME}")
    if not _NAME.fullmatch(value):
        mended = sanitised(value)
        raise Flaw(
            "name",
            f"{shown(value)} is not a name; allowed are a-z, 0-9 and -, with a letter or digit at both ends",
            f"did you mean {mended}?" if mended else None,
        )
    return value


def sanitised(text: str) -> str:
    """The nearest legal name of a text, or an empty string when no character of it is legal."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower().encode("ascii", "ignore").decode())
    return plain.strip("-")[:LONGEST_NAME].strip("-")


def parse_env_name(value: object) -> str:
    """The name of an environment variable. Raises `Flaw` (a ValueError)."""
    if not isinstance(value, str) or not _ENV_NAME.fullmatch(value):
        raise Flaw(
            "env",
            f"{shown(value)} names no environment variable; allowed are letters, _ and (not first) digits",
        )
    return value


def parse_env_value(value: object) -> str:
    """The value of an environment variable: text only, since 1.10 and 1.1 are one number but two texts."""
    if not isinstance(value, str):
        mend = f'write it in quotes, as in "{value}"' if isinstance(value, bool | int | float) else None
        raise Flaw("env", f"{shown(value)} is not text, and environment variables are text", mend)
    if "\0" in value:
        raise Flaw("env", "an environment variable cannot hold a NUL character")
    return value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = value.strip() if isinstance(value, str) else ""
        return float(text) if re.fullmatch(_NUMBER, text) else None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _typed(parse: Callable[[Any], object], schema: dict[str, Any]) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(parse), WithJsonSchema(schema)


_v, _s = _typed(
    parse_duration,
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d|w)\s*)+$"},
        ],
        "examples": ["20m", "1h30m", 90],
    },
)
Duration = Annotated[float, _v, _s]
_v, _s = _typed(
    parse_money,
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {
                "type": "string",
                "pattern": r"^\s*(\$\s*[0-9]+(\.[0-9]+)?|[0-9]+(\.[0-9]+)?\s*([Uu][Ss][Dd])?)\s*$",
            },
        ],
        "examples": ["300 USD", 1.46],
    },
)
Money = Annotated[float, _v, _s]
_v, _s = _typed(
    parse_memory,
    {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([KMGTPkmgtp]i?)?[Bb]\s*$"},
        ],
        "examples": ["16GiB", "80GB"],
    },
)
Memory = Annotated[int, _v, _s]
_v, _s = _typed(
    parse_priority, {"anyOf": [{"enum": list(PRIORITIES)}, {"type": "integer"}], "examples": ["normal", 10]}
)
Priority = Annotated[int, _v, _s]
_v, _s = _typed(parse_name, {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": LONGEST_NAME})
Name = Annotated[str, _v, _s]
EnvName = Annotated[str, BeforeValidator(parse_env_name)]
EnvValue = Annotated[str, BeforeValidator(parse_env_value)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=4096)]
Whole = Annotated[int, Field(strict=True)]
