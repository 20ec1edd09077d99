"""Figures in words, for people."""

from __future__ import annotations

UNKNOWN = "-"


def duration(seconds: float | None) -> str:
    """The two largest parts of a duration: `2d 3h`, `1h 05m`, `4m 20s`, `17s`."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{seconds:.3g}s" if seconds < 10 else f"{rest}s"


def percent(share: float | None) -> str:
    """A share with two decimals."""
    return UNKNOWN if share is None else f"{share * 100:.2f} %"


def dollars(amount: float | None) -> str:
    """US dollars."""
    return UNKNOWN if amount is None else f"${amount:,.2f}"
