"""How values are shown to people. What is unknown (None) is shown as a dash, or left out where that reads better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from stellwerk.spec.readable import UNKNOWN, duration


def money(dollars: float | None) -> str:
    """US dollars: `$12.34`, with more digits below ten cents."""
    if dollars is None:
        return UNKNOWN
    return f"${dollars:,.2f}" if dollars >= 0.1 or dollars == 0 else f"${dollars:.4f}"


def moment(time: str | None) -> datetime | None:
    """A time of the API (RFC 3339) as a datetime."""
    return None if time is None else datetime.fromisoformat(time)


def clock(time: str | None) -> str:
    """A time of the API in local time: of day if it is today's, else with its date."""
    at = moment(time)
    if at is None:
        return UNKNOWN
    local, today = at.astimezone(), datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M")


def between(start: str | None, end: str | None) -> float | None:
    """Seconds between two times of the API; None when one is unknown."""
    first, last = moment(start), moment(end)
    return None if first is None or last is None else (last - first).total_seconds()


def from_now(time: str | None) -> str:
    """A coming time as `now` or `in 5m 00s`."""
    at = moment(time)
    if at is None:
        return UNKNOWN
    seconds = (at - datetime.now(UTC)).total_seconds()
    return "now" if seconds < 1 else f"in {duration(seconds)}"


def span(forecast: Mapping[str, Any] | None, show: Any) -> str:
    """A forecast: `p50 (p90)` with the second left out where it is the same or unknown."""
    if not forecast or forecast.get("p50") is None:
        return UNKNOWN
    middle, high = show(forecast["p50"]), show(forecast.get("p90"))
    return middle if high in (middle, UNKNOWN) else f"{middle} ({high})"


def number(value: float | None, digits: int = 2) -> str:
    """A number with at most `digits` decimals and no trailing zeros."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(count: int, thing: str) -> str:
    """`1 host`, `4 hosts`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def names(units: Sequence[str] | None) -> str:
    """Unit names in one cell."""
    return " ".join(units or ())


def hardware(listed: Mapping[str, Any]) -> str:
    """The option of a listing, marked when a machine only plays it."""
    option = str(listed.get("option") or UNKNOWN)
    return f"{option} (emulated)" if listed.get("emulated") else option


def reasons(found: Sequence[Mapping[str, Any]] | None) -> str:
    """Reasons as sentences."""
    return "; ".join(str(reason.get("message") or reason.get("code")) for reason in found or ())
