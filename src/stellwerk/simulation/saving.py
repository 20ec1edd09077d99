"""How often to save: the time between checkpoints that would have lost least, of what ran on a fleet that breaks.

Work that saves for C seconds after every T, and is cut off without a notice r times a second, loses C / T + r T / 2
of every second. That is least for T = sqrt(2 C / r) (Young 1974). One T is declared for everything, so r is the mean
of all attempts, weighted by the chip-seconds that they worked: their losses add up in this way.

A gang is cut off by every host of its units, so larger gangs count for more. A unit of a spot pool that is taken away
counts only when its notice is too short to save in.

Limits: of first order, so for intervals that are short against 1 / r, and for work that is long against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum
from typing import TYPE_CHECKING

from stellwerk.scheduling.model import Pool
from stellwerk.simulation.costs import best_interval
from stellwerk.simulation.world import Span

if TYPE_CHECKING:
    from stellwerk.simulation.failures import Failures


def best_every(spans: Iterable[Span], pools: Iterable[Pool], failures: Failures) -> float | None:
    """Seconds of work between checkpoints; None when saving costs nothing, or nothing is cut off without notice."""
    rates = {pool.name: cut_off_rate(pool, failures) for pool in pools}
    worked = [(span.chips * (span.ended - span.began - span.overhead), _rate(span, rates)) for span in spans]
    expected = fsum(work * rate for work, rate in worked)
    cost = failures.checkpoints.cost
    return best_interval(fsum(work for work, _ in worked) / expected, cost) if expected > 0 and cost > 0 else None


def cut_off_rate(pool: Pool, failures: Failures) -> float:
    """How often per second what holds one unit of a pool is cut off without time to save."""
    declared, rate = failures.of(pool.name), 0.0
    if declared.hosts is not None:
        rate += pool.hosts / declared.hosts.up
    spot = declared.spot if pool.market == "spot" else None
    if spot is not None and not 0 < spot.notice >= failures.checkpoints.cost:
        rate += 1 / spot.every
    return rate


def _rate(span: Span, rates: Mapping[str, float]) -> float:
    """The rate of an attempt: that of all units it touches."""
    units = {(grant.pool, grant.unit) for grant in span.grants}
    return fsum(rates[pool] for pool, _ in units)
