"""A trace on a fleet under a policy, in virtual time: the scheduler that runs workloads also runs this.

    fleet = load_fleet("fleet.yaml") trace = read("trace.csv", "p100") outcome = replay(fleet, trace, policy="default")
outcome.summary()["wait_s"]["p90"]

The pools are there from the beginning, each at its minimum. Nothing is random but what `seed` draws: factors of
estimates, and failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import fsum
from multiprocessing import get_context
from typing import TYPE_CHECKING

from stellwerk.scheduling.declared import fleet_of
from stellwerk.scheduling.model import Fleet, PolicyName, Pool
from stellwerk.simulation.collector import collected_later
from stellwerk.simulation.costs import Costs, RestartCosts
from stellwerk.simulation.driver import Job
from stellwerk.simulation.forecasting import LOOK, Forecaster, Told, calibrated, forecasting
from stellwerk.simulation.limits import Limits, limits, utilization_limit
from stellwerk.simulation.outcome import Labels, Outcome
from stellwerk.simulation.submissions import Estimates, submissions, with_default_queue
from stellwerk.simulation.traces.model import Job as Row
from stellwerk.simulation.traces.model import Trace
from stellwerk.simulation.trouble import TroubledWorld
from stellwerk.simulation.world import World, steady

if TYPE_CHECKING:
    from stellwerk import spec
    from stellwerk.simulation.failures import Failures

EXACT = Estimates()
Watch = Callable[[World], AbstractContextManager[object]]
"""Given the world before it runs; what it returns is entered while it does. For progress bars."""


@dataclass(frozen=True)
class Settings:
    """How to replay. `explained`: while at most so many workloads wait, reasons are made for each after every event.

    With `forecast` starts are foretold, by so many `processes` that replay the same trace.
    """

    policy: PolicyName = "default"
    preempt: bool = False
    estimates: Estimates = EXACT
    failures: Failures | None = None
    seed: int = 0
    explained: int = 0
    forecast: bool = False
    processes: int = 1


def replay(
    declared: spec.Fleet,
    trace: Trace,
    settings: Settings | None = None,
    *,
    names: Mapping[str, str | None] | None = None,
    bounds: Limits | None = None,
    limited: bool = True,
    watch: Watch = nullcontext,
) -> Outcome:
    """Run a trace through the scheduler until everything has ended.

    `names` are shown as `fleet`, `trace`, `failures`; `bounds` are the trace's limits where they are known already;
    without `limited` there are none. Raises `ValueError` for a trace that names no hardware, on a fleet of several
    accelerators.
    """
    settings = settings or Settings()
    fleet, jobs, world = _made(declared, trace, settings)
    with watch(world), collected_later():
        began = time.perf_counter()
        world.run()
        wall = time.perf_counter() - began
    return Outcome(
        labels=_labels(settings, trace, names or {}),
        pools=fleet.pools,
        jobs=jobs,
        spans=list(world.spans()),
        units=list(world.units()),
        limits=bounds if bounds is not None or not limited else limits_of(fleet.pools, jobs),
        preemptions=world.preemptions,
        wall_s=wall,
        ended=max((job.end for job in jobs if job.end is not None), default=0.0),
        failed=dict(world.failed) if isinstance(world, TroubledWorld) else {},
        forecasts=_foretold(declared, trace, settings, jobs) if settings.forecast else None,
        failures=settings.failures,
    )


def _made(declared: spec.Fleet, trace: Trace, settings: Settings) -> tuple[Fleet, list[Job], World]:
    fleet = replace(fleet_of(declared), policy=settings.policy, preempt=settings.preempt)
    fleet = with_default_queue(fleet, trace)
    own = frozenset(declared.accelerators)
    jobs = submissions(trace, fleet, settings.estimates, settings.seed, own)
    return fleet, jobs, world_for(fleet, jobs, settings)


def _foretold(declared: spec.Fleet, trace: Trace, settings: Settings, jobs: Iterable[Job]) -> list[Told]:
    """The forecasts of a replay, made in further replays of it."""
    count = settings.processes
    if count == 1:
        told = _told_by_one(declared, trace.name, trace.jobs, settings, 0)
    else:
        with ProcessPoolExecutor(count, get_context("spawn")) as pool:
            parts = [pool.submit(_told_by_one, declared, trace.name, trace.jobs, settings, n) for n in range(count)]
            told = [each for part in parts for each in part.result()]
    return calibrated(told, {job.demand.key: job.start for job in jobs if job.start is not None})


def _told_by_one(declared: spec.Fleet, name: str, rows: tuple[Row, ...], settings: Settings, share: int) -> list[Told]:
    _, _, world = _made(declared, Trace(name, rows), settings)
    forecaster = Forecaster(world, replace(LOOK, seed=settings.seed), share=share, shares=settings.processes)
    with forecasting(world, forecaster.observe), collected_later():
        world.run()
    return forecaster.told


def world_for(fleet: Fleet, jobs: Sequence[Job], settings: Settings) -> World:
    """The world that a fleet needs: the plain one while units neither come, go nor break."""
    failures = settings.failures
    if failures is None and steady(fleet.pools):
        return World(fleet, jobs, RestartCosts().of, settings.explained)
    costs = failures.costs if failures is not None else Costs()
    return TroubledWorld(fleet, jobs, costs, failures, settings.seed, settings.explained)


def limits_of(pools: Sequence[Pool], jobs: Sequence[Job]) -> Limits | None:
    """The limits of jobs on pools: of each accelerator over the jobs that run on it, put together.

    Jobs that no pool of their accelerator could hold are left out; None when that are all.
    """
    chips, rows = dict[str, int](), dict[str, list[Row]]()
    for pool in pools:
        chips[pool.accelerator] = chips.get(pool.accelerator, 0) + pool.chips * pool.maximum
    for job in jobs:
        option = job.demand.options[0]
        name = option.parts[0].accelerator
        if option.chips <= chips.get(name, 0):
            rows.setdefault(name, []).append(Row("", "", "", job.at, job.duration, option.chips))
    if not rows:
        return None
    if len(rows) == 1 and len(chips) == 1:
        name = next(iter(rows))
        return limits(rows[name], chips[name])
    return _together([(limits(own, chips[name]), chips[name], own) for name, own in rows.items()], sum(chips.values()))


def _together(each: list[tuple[Limits, int, list[Row]]], chips: int) -> Limits:
    """Limits of several accelerators as one: all must hold, so means are weighted and makespans the largest."""
    count = sum(len(rows) for _, _, rows in each)
    window = max(rows[-1].submit for _, _, rows in each)
    busy = fsum(own * utilization_limit(rows, own, window if window > 0 else None) for _, own, rows in each)
    return Limits(
        utilization=busy / chips,
        completion_s=fsum(one.completion_s * len(rows) for one, _, rows in each) / count,
        makespan_s=max(one.makespan_s for one, _, _ in each),
        joint_completion_s=fsum(one.joint_completion_s * len(rows) for one, _, rows in each) / count,
        staggered_makespan_s=max(one.staggered_makespan_s for one, _, _ in each),
    )


def _labels(settings: Settings, trace: Trace, names: Mapping[str, str | None]) -> Labels:
    return Labels(
        policy=settings.policy,
        fleet=names.get("fleet") or "fleet",
        trace=names.get("trace") or trace.name,
        estimates=str(settings.estimates),
        preempt=settings.preempt,
        failures=names.get("failures"),
        seed=settings.seed,
    )
