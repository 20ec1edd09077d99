"""Figures in words, for people."""

from __future__ import annotations

from stellwerk.spec.readable import UNKNOWN, duration

__all__ = ["UNKNOWN", "dollars", "duration", "percent"]


def percent(share: float | None) -> str:
    """A share with two decimals."""
    return UNKNOWN if share is None else f"{share * 100:.2f} %"


def dollars(amount: float | None) -> str:
    """US dollars."""
    return UNKNOWN if amount is None else f"${amount:,.2f}"
