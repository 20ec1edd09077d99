"""Elastic work on a machine whose memory is the limit, in pods, and in parts of units."""

from __future__ import annotations

import dataclasses

from world import Limits, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import ResizeAttempt, StopAttempt
from stellwerk.scheduling.model import Demand, Option, Part, Pool
from stellwerk.scheduling.policy.elastic import CALM
from stellwerk.scheduling.spending import spent

GIB = 2**30


def elastic(least: int, most: int, **more: object) -> Option:
    return dataclasses.replace(tpu(least), minimum=least, maximum=most, **more)  # type: ignore[arg-type]


def job(least: int, most: int, **more: object) -> Demand:
    """A workload that goes on when its size changes."""
    return dataclasses.replace(demand("e", elastic(least, most), **more), kind="job")


def groups(site: Site, key: str) -> int:
    return len({grant.group for grant in site.state.workloads[key].attempts[-1].grants})


def resizes(site: Site) -> list[ResizeAttempt]:
    return [order for order in site.orders if isinstance(order, ResizeAttempt)]


def test_it_starts_with_as_many_slices_as_the_memory_holds() -> None:
    site = Site(slices(4, footprint=GIB), memory=3 * GIB)
    site.obey()
    site.submit(job(1, 4))
    site.obey()
    assert groups(site, "e") == 3


def test_it_gives_memory_to_who_waits_for_memory_and_takes_it_back() -> None:
    site = Site(slices(4, footprint=GIB), memory=3 * GIB)
    site.obey()
    site.submit(job(1, 4))
    site.obey()
    site.submit(demand("other", tpu(2)))
    (order,) = resizes(site)
    assert len(order.grants) == 1 and site.phase("other") == "waiting"
    site.obey()
    assert (site.phase("other"), groups(site, "e")) == ("running", 1)
    site.finish("other")
    assert groups(site, "e") == 3


def test_memory_is_given_to_another_pool_too() -> None:
    site = Site(slices(2, footprint=GIB), nodes(1, footprint=GIB), memory=2 * GIB)
    site.obey()
    site.submit(job(1, 2))
    site.obey()
    assert groups(site, "e") == 2
    site.submit(demand("gpus", gpus(8)))
    site.obey()
    assert (site.phase("gpus"), groups(site, "e")) == ("running", 1)
    site.finish("gpus")
    assert groups(site, "e") == 2


def test_nobody_shrinks_for_what_would_not_be_enough() -> None:
    site = Site(slices(4))
    site.obey()
    site.submit(demand("rigid", tpu(2)), job(1, 4))
    site.obey()
    assert groups(site, "e") == 2
    site.submit(demand("big", tpu(4)))
    assert not resizes(site) and site.phase("big") == "waiting"
    site.submit(demand("small", tpu(1), priority=10))
    assert [len(order.grants) for order in resizes(site)] == [1]


def test_work_of_higher_priority_keeps_its_slices() -> None:
    site = Site(slices(2))
    site.obey()
    site.submit(job(1, 2, priority=1))
    site.obey()
    site.submit(demand("other", tpu(1)))
    assert not resizes(site)


def test_it_can_be_stopped_while_it_is_resized() -> None:
    site = Site(slices(2))
    site.obey()
    site.submit(job(1, 2))
    site.obey()
    site.submit(demand("other", tpu(1)))
    (order,) = resizes(site)
    site.tell(ev.StopRequested(site.now, "e"))
    assert any(isinstance(each, StopAttempt) for each in site.orders)
    site.tell(ev.AttemptEnded(site.now, "e", 1, "stopped", "stopped-by-user"))
    site.tell(ev.AttemptResized(site.now, "e", 1, order.resize))
    assert site.phase("other") == "starting"
    assert site.state.workloads["e"].outcome == "stopped"


def test_slices_of_cubes_come_and_go_whole() -> None:
    pod = Pool("pod", "tpu-v5p", "4x4x16", None, 64, 16, maximum=4, minimum=4, layout="optical")
    site = Site(pod)
    site.obey()
    part = Part("main", "tpu-v5p", "4x4x8", 128)
    site.submit(demand("e", Option("e", (part,), minimum=1, maximum=2)))
    site.obey()
    assert (groups(site, "e"), len(site.state.workloads["e"].attempts[0].grants)) == (2, 4)
    site.submit(demand("cube", tpu(1, "4x4x4", "tpu-v5p")))
    (order,) = resizes(site)
    assert len(order.grants) == 2
    site.obey()
    assert (site.phase("cube"), groups(site, "e")) == ("running", 1)


def test_parts_of_units_are_counted_by_what_they_take_of_the_memory() -> None:
    pool = slices(1, layout="subslices", footprint=5 * GIB, fixed=GIB)
    assert [pool.memory_of(chips) for chips in (4, 8, 16)] == [2 * GIB, 3 * GIB, 5 * GIB]
    site = Site(pool, memory=5 * GIB)
    site.obey()
    for name in "abc":
        site.submit(demand(name, tpu(1, "2x2")))
    site.obey()
    assert [site.phase(name) for name in "abc"] == ["running", "running", "waiting"]
    assert site.codes("c") == [["capacity"]]
    site.finish("a")
    assert site.phase("c") == "running"


def test_a_limit_to_its_cost_counts_what_it_held_at_each_time() -> None:
    site = Site(slices(2, price=1.0))
    site.obey()
    site.submit(job(1, 2, limits=Limits(cost=64.0)), demand("x", tpu(1)))
    site.obey()
    assert (groups(site, "e"), site.phase("x")) == (1, "running")
    site.now = 3600.0
    site.finish("x")
    assert groups(site, "e") == 2
    attempt = site.state.workloads["e"].attempts[0]
    assert spent(site.state, attempt) == 16.0
    site.pass_time(3600.0 + 1799.0)
    assert site.phase("e") == "running"
    site.pass_time(1.0)
    assert site.state.workloads["e"].cause == "cost-limit"


def test_a_unit_that_will_be_taken_away_is_left_where_enough_remains() -> None:
    site = Site(slices(3))
    site.obey()
    site.submit(job(1, 2), demand("other", tpu(1)))
    site.obey()
    site.tell(ev.DrainNoticed(0.0, "v6e-0", 1, 30.0))
    (order,) = resizes(site)
    assert (site.phase("e"), [grant.unit for grant in order.grants], order.grace) == ("running", ["v6e-1"], 25.0)
    site.obey()
    assert site.state.units["v6e-0"].incarnation == 2
    assert (groups(site, "e"), len(site.state.workloads["e"].attempts)) == (2, 1)


def test_a_unit_that_cannot_be_spared_or_left_in_time_ends_the_attempt() -> None:
    for least, deadline in ((2, 30.0), (1, 4.0)):
        site = Site(slices(2))
        site.obey()
        site.submit(job(least, 2))
        site.obey()
        site.tell(ev.DrainNoticed(0.0, "v6e-0", 1, deadline))
        assert not resizes(site) and site.phase("e") == "stopping"
        assert site.state.workloads["e"].stop_cause == "infrastructure"


def test_work_that_begins_anew_for_every_size_is_not_grown_again_for_a_while() -> None:
    site = Site(slices(4))
    site.obey()
    site.submit(demand("rigid", tpu(2)), demand("e", elastic(1, 4)))
    site.obey()
    site.now = 5.0
    site.finish("rigid")
    assert groups(site, "e") == 4, "the first growth is at once"
    for number in range(2):
        site.now += 10.0
        site.submit(demand(f"short{number}", tpu(1)))
        site.obey()
        assert groups(site, "e") == 3 - number
    shrunk = site.now
    for number in range(2):
        site.now += 10.0
        site.finish(f"short{number}")
    assert groups(site, "e") == 2 and site.state.wake_at == shrunk + CALM
    site.now = shrunk + CALM
    site.tell(ev.Woke(site.now))
    site.obey()
    assert groups(site, "e") == 4
