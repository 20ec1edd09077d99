"""What breaks, drawn: the events of a declaration of failures in order of time, without end and only as far as asked.

Every unit (and every pool, for stock-outs) has a random generator of its own, made from the seed, the pool's
name and the unit's number: adding a pool or a unit to the fleet changes nothing for the others, so that
what-ifs compare like with like. Only uniform doubles are drawn from it, and turned into exponential spans
here: numpy promises that PCG64's stream stays as it is, not that its distributions do. Times are rounded to
the microsecond, which hides how platforms round logarithms.

The hosts of a unit are drawn together: with u of them up and d down, the next change comes after an
exponential span of the rate u / mtbf + d / mttr, and is a failure with the share that the first term has
(competing exponentials). Units are counted to the pool's maximum, whether they are there or not: a driver
ignores what happens to those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from math import log1p
from typing import Literal
from zlib import crc32

from numpy.random import PCG64, Generator, SeedSequence

from stellwerk.scheduling.model import Pool
from stellwerk.simulation.failures import Failures, HostFailures, Preemptions, StockOuts

Kind = Literal["host-down", "host-up", "preempted", "stock-out", "in-stock"]

_HOSTS, _SPOT, _STOCK = range(3)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that broke, or was mended, at `at` seconds.

    `host-down`, `host-up`: `host` (from 0) of the pool's unit number `unit` (from 0). `preempted`: the unit
    is gone at `deadline`; the notice came at `at`. `stock-out`, `in-stock`: the pool gives no new units in
    between.
    """

    at: float
    kind: Kind
    pool: str
    unit: int | None = None
    host: int | None = None
    deadline: float | None = None


def failure_events(failures: Failures, pools: Iterable[Pool], seed: int = 0) -> Iterator[Failure]:
    """All events of these pools from time 0, ascending in time and without end; equal seeds give equal events."""
    sources = [source for pool in pools for source in _of_pool(failures, pool, seed)]
    return merge(*sources, key=lambda failure: failure.at)


def _of_pool(failures: Failures, pool: Pool, seed: int) -> Iterator[Iterator[Failure]]:
    declared = failures.of(pool.name)
    for unit in range(pool.maximum):
        if declared.hosts:
            yield _hosts(_uniform(seed, pool, _HOSTS, unit), declared.hosts, pool, unit)
        if declared.spot and pool.market == "spot":
            yield _preemptions(_uniform(seed, pool, _SPOT, unit), declared.spot, pool, unit)
    if declared.stock_outs and pool.maximum > pool.minimum:
        yield _stock(_uniform(seed, pool, _STOCK, 0), declared.stock_outs, pool)


def _uniform(seed: int, pool: Pool, kind: int, unit: int) -> Callable[[], float]:
    key = (crc32(pool.name.encode()), kind, unit)
    return Generator(PCG64(SeedSequence(seed, spawn_key=key))).random


def _span(uniform: Callable[[], float], mean: float) -> float:
    return -log1p(-uniform()) * mean


def _hosts(uniform: Callable[[], float], hosts: HostFailures, pool: Pool, unit: int) -> Iterator[Failure]:
    failing, mending = 1 / hosts.up, 1 / hosts.down
    # The first `up` entries are the hosts that are up; a change swaps one over the border.
    order, up, at = list(range(pool.hosts)), pool.hosts, 0.0
    while True:
        rate = up * failing + (pool.hosts - up) * mending
        at += _span(uniform, 1 / rate)
        fails = uniform() * rate < up * failing if 0 < up < pool.hosts else up > 0
        first, many = (0, up) if fails else (up, pool.hosts - up)
        chosen = first + int(uniform() * many)
        border = up - 1 if fails else up
        order[chosen], order[border] = order[border], order[chosen]
        up += -1 if fails else 1
        yield Failure(round(at, 6), "host-down" if fails else "host-up", pool.name, unit, order[border])


def _preemptions(uniform: Callable[[], float], spot: Preemptions, pool: Pool, unit: int) -> Iterator[Failure]:
    at = 0.0
    while True:
        at += _span(uniform, spot.every)
        told = round(at, 6)
        yield Failure(told, "preempted", pool.name, unit, deadline=round(told + spot.notice, 6))
        at += spot.notice


def _stock(uniform: Callable[[], float], stock: StockOuts, pool: Pool) -> Iterator[Failure]:
    at = 0.0
    while True:
        at += _span(uniform, stock.every)
        yield Failure(round(at, 6), "stock-out", pool.name)
        at += _span(uniform, stock.last)
        yield Failure(round(at, 6), "in-stock", pool.name)
