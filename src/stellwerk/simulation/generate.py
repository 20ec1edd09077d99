"""Demand that nobody had: traces drawn from a few figures, and scenarios that others have published figures for.

Arrivals are a Poisson process of given number (so: sorted independent times) whose rate follows a daily wave,
sizes are drawn by weight, durations are lognormal, estimates are the duration times a uniform factor. Only
uniform doubles are taken from PCG64 and everything is rounded to the millisecond, so that a seed gives the
same trace everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import floor
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.typing import NDArray

from stellwerk.simulation.mix import Mix
from stellwerk.simulation.traces.model import Job, Trace, make_trace

_DAY = 86_400.0
_T = TypeVar("_T")
_Floats = NDArray[np.float64]
# numpy's own types leave what these return unknown.
_interp: Callable[..., _Floats] = np.interp
_searchsorted: Callable[..., NDArray[np.int64]] = np.searchsorted


@dataclass(frozen=True)
class Scenario:
    """A trace with the fleet it belongs to, as `load_fleet` reads it.

    `window` closes the loop: that many workloads wait at all times, a new one is submitted when one starts
    (the trace gives their order, and all its submits are 0). None: they come when the trace says.
    """

    name: str
    trace: Trace
    fleet: Mapping[str, Any]
    window: int | None = None


def generate(mix: Mix, seed: int = 0, name: str = "generated") -> Trace:
    """A trace drawn from a mix; equal seeds give equal traces."""
    rng = _rng(seed)
    n = mix.jobs
    submits = _arrivals(rng, n, mix.span, mix.wave)
    chips = _drawn(rng, n, mix.sizes)
    longest = floor(mix.longest * 1000) / 1000
    durations = np.maximum(np.minimum(_rounded(_lognormal(rng, n, mix.median, mix.sigma)), longest), 0.001)
    queues = _drawn(rng, n, mix.queues)
    users = _drawn(rng, n, {user: 1.0 for user in range(mix.users)})
    factors = rng.random(n)
    estimates: list[float | None] = [None] * n
    if mix.estimates is not None:
        low, high = mix.estimates
        estimates = _rounded(durations * (low + (high - low) * factors)).tolist()
    people = map(cache(_user), queues, users)
    ids = [f"job-{index}" for index in range(n)]
    jobs = map(Job, ids, people, queues, submits.tolist(), durations.tolist(), chips, estimates)
    return make_trace(name, jobs, accelerator=mix.accelerator)


def kueue_baseline(seed: int = 0) -> Scenario:
    """The baseline of Kueue's performance tests: 15,000 workloads of 30 queues in 5 cohorts; nothing in it is random.

    In each queue 350 small (1 unit, 0.2 s, priority 50), 100 medium (5 units, 0.5 s, 100) and 50 large
    workloads (20 units, 1 s, 200) are created every 0.1, 0.5 and 1.2 s. A queue has a quota of 20 and may
    borrow up to 100 from its cohort. A cohort is an accelerator of its own here, with one pool of 120
    one-chip units. A perfect schedule takes 66 s (1,320 unit-seconds by 20).
    """
    classes = ((350, 0.1, 1, 0.2, 50), (100, 0.5, 5, 0.5, 100), (50, 1.2, 20, 1.0, 200))
    cohorts = [f"cohort-{cohort}" for cohort in range(1, 6)]
    queues = {f"{cohort}-queue-{queue}": cohort for cohort in cohorts for queue in range(1, 7)}
    jobs = [
        Job(
            f"{queue}-{size}-{index}",
            queue,
            queue,
            round(index * every, 3),
            duration,
            size,
            duration,
            priority,
            accelerator=cohort,
        )
        for queue, cohort in queues.items()
        for count, every, size, duration, priority in classes
        for index in range(count)
    ]
    fleet: dict[str, Any] = {
        "accelerators": {cohort: {} for cohort in cohorts},
        "pools": [{"name": cohort, "accelerator": cohort, "chips": 1, "units": 120} for cohort in cohorts],
        "queues": {queue: {"quota": {cohort: 20}, "borrow": 100} for queue, cohort in queues.items()},
    }
    return Scenario("kueue-baseline", make_trace("kueue-baseline", jobs), fleet)


POD_SHAPES = MappingProxyType({1: "4x4x4", 2: "4x4x8", 4: "4x8x8", 8: "8x8x8", 16: "8x8x16", 32: "8x16x16"})
POD_WEIGHTS = MappingProxyType({1: 40.0, 2: 20.0, 4: 15.0, 8: 12.0, 16: 8.0, 32: 5.0})


def pod_queue(seed: int = 0, jobs: int = 2000) -> Scenario:
    """A pod of 64 cubes (4,096 chips) whose queue is always full: 50 workloads wait at all times.

    Slices take 1 to 32 cubes with the weights 40/20/15/12/8/5, in the squarest shape each. Durations are
    lognormal with a median of 1 h and sigma 1.5: with these, first come first served keeps 0.81 of optically
    switched cubes busy and backfill 0.97, as in the published comparison, which does not say its own.
    """
    rng = _rng(seed)
    cubes = _drawn(rng, jobs, POD_WEIGHTS)
    durations = np.maximum(_rounded(_lognormal(rng, jobs, 3600.0, 1.5)), 0.001).tolist()
    rows = [
        Job(f"slice-{index}", "pod", "default", 0.0, duration, 64 * size, duration, 0, f"tpu-v4:{POD_SHAPES[size]}")
        for index, (size, duration) in enumerate(zip(cubes, durations, strict=True))
    ]
    fleet = {"pools": [{"name": "pod", "accelerator": "tpu-v4", "topology": "16x16x16", "units": 1}]}
    return Scenario("pod-queue", make_trace("pod-queue", rows), fleet, window=50)


SCENARIOS: Mapping[str, Callable[[int], Scenario]] = MappingProxyType(
    {"kueue-baseline": kueue_baseline, "pod-queue": pod_queue}
)


def _user(queue: str, number: int) -> str:
    return f"{queue}-{number + 1}"


def _rng(seed: int) -> Generator:
    return Generator(PCG64(SeedSequence(seed)))


def _rounded(values: _Floats) -> _Floats:
    return np.round(values, 3)


def _drawn(rng: Generator, count: int, weights: Mapping[_T, float]) -> list[_T]:
    """Keys drawn by weight, in the mapping's order of keys."""
    keys, edges = list(weights), np.cumsum(np.array(list(weights.values()), dtype=np.float64))
    places = _searchsorted(edges, rng.random(count) * edges[-1], side="right")
    return [keys[min(int(place), len(keys) - 1)] for place in places]


def _lognormal(rng: Generator, count: int, median: float, sigma: float) -> _Floats:
    """By Box and Muller (1958), from two uniform numbers each."""
    radius, angle = rng.random(count), rng.random(count)
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
    return median * np.exp(sigma * normal)


def _arrivals(rng: Generator, count: int, span: float, wave: float) -> _Floats:
    """Sorted times from 0 on, of the density 1 + wave * sin(2 pi t / day) over the span."""
    grid = np.linspace(0.0, span, max(2, int(span // 60) + 2))
    integral = grid + wave * _DAY / (2 * np.pi) * (1 - np.cos(2 * np.pi * grid / _DAY))
    times = _interp(np.sort(rng.random(count)) * integral[-1], integral, grid)
    return _rounded(times - times[:1])
