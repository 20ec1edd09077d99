"""Promised starts: what is said, and that it is kept while estimates hold and nothing breaks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import Queue, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import Command
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.model import Fleet, Option, Part, PolicyName
from stellwerk.scheduling.policy.promises import Promise
from stellwerk.simulation.driver import Job, Run


def site_of(policy: PolicyName = "backfill") -> Site:
    """Two nodes, of which one is held until 100 and the other until 200."""
    site = Site(nodes(2))
    site.tell(replace(site.log[0], fleet=Fleet((nodes(2),), policy=policy)))  # type: ignore[type-var]
    site.obey()
    site.submit(demand("x", gpus(8), runtime=100.0), demand("y", gpus(8), runtime=200.0))
    site.obey()
    return site


def test_the_first_who_wait_are_told_when_they_start() -> None:
    site = site_of()
    site.submit(
        *(demand(key, gpus(chips), runtime=50.0) for key, chips in zip("abcde", (16, 8, 8, 16, 8), strict=True))
    )
    told = {key: site.scheduler.promise(key) for key in "abcde"}
    assert told == {
        "a": Promise(200.0, 1, kept=True),
        "b": Promise(250.0, 2, kept=False),
        "c": Promise(250.0, 3, kept=False),
        "d": Promise(300.0, 4, kept=False),
        "e": None,
    }
    assert [site.state.workloads[key].promise for key in "abcde"] == [200.0, 250.0, 250.0, 300.0, None]
    assert site.scheduler.promise("x") is None


def test_where_nobody_passes_all_that_are_told_are_kept() -> None:
    site = site_of("fifo")
    site.submit(demand("a", gpus(16), runtime=50.0), demand("b", gpus(8), runtime=50.0), demand("c", gpus(4)))
    told = [site.scheduler.promise(key) for key in "abc"]
    assert told == [Promise(200.0, 1, True), Promise(250.0, 2, True), Promise(250.0, 3, False)]


def test_what_nobody_knows_is_not_told() -> None:
    site = Site(nodes(1))
    site.obey()
    site.submit(demand("x", gpus(8)))
    site.obey()
    site.submit(demand("a", gpus(8), runtime=5.0))
    assert site.scheduler.promise("a") is None and site.state.workloads["a"].promise is None


def test_units_on_their_way_and_parts_on_other_pools_are_counted() -> None:
    site = Site(slices(1, minimum=0, provision=90.0), nodes(1))
    site.obey()
    site.submit(demand("x", gpus(8), runtime=200.0))
    site.obey()
    both = Option("both", (Part("learner", "tpu-v6e", "4x4", 16), Part("actor", "h100", None, 8)))
    site.submit(demand("a", tpu(1), runtime=30.0), demand("b", both, runtime=30.0), demand("c", gpus(8), runtime=9.0))
    told = [site.scheduler.promise(key) for key in "abc"]
    assert [promise and promise.at for promise in told] == [90.0, 200.0, 230.0]


def test_who_waits_for_quota_is_told_nothing() -> None:
    site = Site(nodes(1), queues=(Queue("a", (("h100", 4),)),))
    site.obey()
    site.submit(*(demand(key, gpus(4), queue="a", runtime=10.0) for key in "xy"))
    assert site.phase("y") == "waiting" and site.scheduler.promise("y") is None


class Watch:
    """Remembers the least start that a scheduler promised to each, and says which were broken."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.promised: dict[str, float] = {}
        self.broken: list[str] = []

    def __call__(self, event: Event, orders: Sequence[Command]) -> None:
        scheduler = self.scheduler
        now = scheduler.state.now
        for key, least in list(self.promised.items()):
            workload = scheduler.state.workloads.get(key)
            if workload is not None and workload.phase == "waiting" and now > least + 1e-6:
                self.broken.append(f"{key} was promised {least} and waits at {now}")
                del self.promised[key]
        for key in scheduler.book.waiting:
            found = scheduler.promise(key)
            if found is not None and found.kept:
                self.promised[key] = min(found.at, self.promised.get(key, found.at))


def test_who_waits_behind_a_part_of_a_unit_is_promised_nothing() -> None:
    """An early end may give it a unit of its own, which the next was to have."""
    site = Site(nodes(2))
    site.tell(ev.FleetChanged(0.0, Fleet((nodes(2),), policy="fifo")))
    site.obey()
    whole, part = demand("whole", gpus(8), runtime=10.0), demand("part", gpus(4), runtime=50.0)
    site.submit(demand("one", gpus(8), runtime=100.0), demand("two", gpus(5), runtime=60.0))
    site.submit(part, whole)
    told = [site.scheduler.promise(key) for key in ("part", "whole")]
    assert [(each.at, each.kept) for each in told if each is not None] == [(60.0, True), (100.0, False)]
    site.obey()
    site.now = 50.0
    site.finish("one")
    assert (site.phase("part"), site.phase("whole")) == ("running", "waiting")


@pytest.mark.parametrize("policy", ["fifo", "backfill", "default"])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_kept_promises_are_kept(policy: PolicyName, seed: int) -> None:
    """One queue, one priority, nothing breaks, nothing runs longer than its estimate."""
    rng = random.Random(seed)
    pool = rng.choice([nodes(rng.randint(1, 5)), slices(rng.randint(1, 4), layout="subslices")])
    jobs: list[Job] = []
    for number in range(rng.randint(5, 25)):
        option = gpus(rng.choice([1, 2, 4, 8, 12, 16])) if pool.name == "h100" else tpu(rng.randint(1, 3))
        if pool.name == "v6e" and rng.random() < 0.5:
            option = Option("cell", (Part("main", "tpu-v6e", "2x4", 8, rng.randint(1, 2)),))
        duration = rng.uniform(1.0, 300.0)
        work = demand(f"w{number}", option, runtime=duration * rng.choice([1.0, rng.uniform(1, 5)]))
        jobs.append(Job(rng.uniform(0.0, 600.0), work, duration))
    jobs.sort(key=lambda job: job.at)
    watch = Watch(Scheduler(validate=True))
    Run(Fleet((pool,), policy=policy), jobs, scheduler=watch.scheduler, observer=watch).run()
    assert not watch.broken
    assert all(job.end is not None or job.start is None for job in jobs)
