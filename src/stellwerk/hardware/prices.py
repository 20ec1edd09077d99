"""List prices, and the user's own in front of them. What is unknown stays unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from stellwerk.hardware.errors import HardwareError
from stellwerk.hardware.model import Accelerator, Price
from stellwerk.hardware.names import accelerator

MARKETS = ("on-demand", "spot", "reserved", "flex-start", "commitment-1y", "commitment-3y")

_US = re.compile(r"us(-.*)?|[a-z]+us[0-9]?")
_GOOGLE_REGION = re.compile(r"[a-z]+-[a-z]+[0-9]+")


def price(
    acc: str,
    market: str = "on-demand",
    region: str | None = None,
    overrides: Mapping[str, float] | None = None,
    *,
    machine: str | None = None,
) -> float | None:
    """USD per chip-hour, or None when no list price is known.

    ``overrides`` are the user's own prices, keyed by accelerator in any spelling (all markets) or by
    ``NAME@MARKET`` (that market; it wins). Else the choice is that of ``listed_price``. A ``machine``
    with a list price of its own decides on-demand. Raises UnknownAccelerator, or HardwareError with code
    ``unknown-market`` or ``illegal-price``.
    """
    chip = accelerator(acc)
    _check_market(market)
    own = _override(chip, market, overrides or {})
    if own is not None:
        return own
    if machine is not None and market == "on-demand" and region is None:
        of_machine = _machine_price(chip, machine)
        if of_machine is not None:
            return of_machine
    found = listed_price(acc, market, region)
    return None if found is None else found.usd_per_chip_hour


def listed_price(acc: str, market: str = "on-demand", region: str | None = None) -> Price | None:
    """The list price that stands for an accelerator in a market, with its region, date and source; None:
    unknown.

    The data files list the best-supported price first: dated before undated, whole machine before GPU
    alone. Without ``region`` the first price of a US region is taken, else the first of any. With
    ``region`` the first of exactly that region, else of the wider one a Google region lies in (``us`` for
    ``us-east5``); a price of another region is never passed off for it. Prices in doubt are never taken.
    """
    chip = accelerator(acc)
    _check_market(market)
    sound = [item for item in chip.prices if item.market == market and item.doubt is None]
    if region is None:
        return next((item for item in sound if _US.fullmatch(item.region)), sound[0] if sound else None)
    wanted = region.strip().lower()
    exact = next((item for item in sound if item.region == wanted), None)
    return exact or next((item for item in sound if _contains(item.region, wanted)), None)


def _machine_price(chip: Accelerator, machine: str) -> float | None:
    """The list price of a whole machine, per chip; None when it has none."""
    for item in chip.machines:
        if item.name.lower() == machine.strip().lower() and item.usd_per_hour is not None:
            return item.usd_per_hour / item.chips
    return None


def _contains(wide: str, region: str) -> bool:
    """``us`` and ``us-east`` contain ``us-east5``; regions of AWS and Azure are not of this form."""
    if not _GOOGLE_REGION.fullmatch(region) or _GOOGLE_REGION.fullmatch(wide):
        return False
    return region.startswith(f"{wide}-") or region.rstrip("0123456789") == wide


def _override(chip: Accelerator, market: str, overrides: Mapping[str, float]) -> float | None:
    found: dict[str, float] = {}
    for key, value in overrides.items():
        name, _, of_market = key.partition("@")
        if accelerator(name).name == chip.name:
            found[_check_market(of_market.strip()) if of_market else ""] = _check_price(key, value)
    return found.get(market, found.get(""))


def _check_market(market: str) -> str:
    if market in MARKETS:
        return market
    from difflib import get_close_matches

    close = get_close_matches(market[:40].lower(), MARKETS, n=1, cutoff=0.4)
    raise HardwareError(
        f"{market[:40]!r} is no market",
        found=market,
        allowed=MARKETS,
        suggestion=close[0] if close else None,
        code="unknown-market",
    )


def _check_price(key: str, value: float) -> float:
    if isfinite(value) and value >= 0:
        return float(value)
    raise HardwareError(
        f"the price of {key} is {value}; a price is a number of USD per chip-hour, zero or more",
        found=str(value),
        code="illegal-price",
    )
