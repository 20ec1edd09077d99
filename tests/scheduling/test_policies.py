"""Policies, case by case: who passes whom, who is stopped for whom, which option is left, how large things are."""

from __future__ import annotations

import dataclasses

import pytest
from world import Queue, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import ProvisionUnit, ReleaseUnit, ResizeAttempt, StopAttempt
from stellwerk.scheduling.forecast import History, forecast
from stellwerk.scheduling.model import Demand, Fleet, Layout, Option, Part, PolicyName, Pool
from stellwerk.scheduling.policy import rules
from stellwerk.scheduling.policy.queues import PATIENCE


def site_of(
    *pools: Pool, policy: PolicyName = "default", preempt: bool = False, queues: tuple[Queue, ...] = ()
) -> Site:
    site = Site(*pools, queues=queues)
    site.tell(ev.FleetChanged(0.0, Fleet(pools, queues, policy=policy, preempt=preempt)))
    site.obey()
    return site


def timed(key: str, chips: int, runtime: float, **more: object) -> Demand:
    return demand(key, gpus(chips), runtime=runtime, **more)


def test_short_work_passes_a_blocked_one_and_does_not_delay_it() -> None:
    site = site_of(nodes(2))
    site.submit(timed("running", 8, 100.0))
    site.submit(timed("big", 16, 50.0), timed("long", 8, 101.0), timed("short", 8, 99.0))
    assert [site.phase(key) for key in ("big", "long", "short")] == ["waiting", "waiting", "starting"]
    assert site.state.workloads["big"].promise == 100.0
    reason = site.scheduler.reasons("long")[0][0]
    assert reason.code in ("capacity", "reserved")


def test_fifo_lets_nobody_pass() -> None:
    site = site_of(nodes(2), policy="fifo")
    site.submit(timed("running", 8, 100.0), timed("big", 16, 50.0), timed("short", 8, 1.0))
    assert site.phase("short") == "waiting"


def test_sjf_serves_the_shortest_and_may_stop_the_longest() -> None:
    site = site_of(nodes(1), policy="sjf")
    site.submit(timed("running", 8, 100.0), timed("long", 8, 90.0), timed("short", 8, 10.0))
    site.obey()
    site.finish("running")
    assert (site.phase("short"), site.phase("long")) == ("running", "waiting")
    site = site_of(nodes(1), policy="sjf", preempt=True)
    site.submit(timed("long", 8, 1000.0))
    site.obey()
    site.submit(timed("short", 8, 10.0))
    assert StopAttempt("long", 1, "preempted", 30.0) in site.orders
    site.obey()
    assert (site.phase("short"), site.phase("long")) == ("running", "waiting")
    site.finish("short")
    assert site.phase("long") == "running"
    assert site.state.workloads["long"].setbacks == 0


def test_sjf_stops_others_in_all_pools_that_several_roles_want() -> None:
    site = site_of(slices(1), nodes(1), policy="sjf", preempt=True)
    site.submit(demand("s", tpu(1), runtime=5000.0), timed("g", 8, 5000.0))
    site.obey()
    roles = Option("roles", (Part("learner", "tpu-v6e", "4x4", 16), Part("actor", "h100", None, 8)))
    site.submit(demand("w", roles, runtime=10.0))
    assert sorted(order.workload for order in site.orders if isinstance(order, StopAttempt)) == ["g", "s"]
    site.submit(demand("t", tpu(1), runtime=400.0), timed("h", 8, 400.0))
    assert (site.phase("t"), site.phase("h")) == ("waiting", "waiting")
    site.obey()
    assert (site.phase("w"), site.phase("s"), site.phase("g")) == ("running", "waiting", "waiting")
    site.finish("w")
    assert (site.phase("t"), site.phase("h")) == ("running", "running")


@pytest.mark.parametrize("layout", ["subslices", "torus", "optical"])
def test_sjf_stops_others_on_split_units_and_in_pods(layout: Layout) -> None:
    if layout == "subslices":
        pool, long, short = slices(1, layout=layout), tpu(1), Part("main", "tpu-v6e", "2x4", 8)
    else:
        pool = Pool("pod", "tpu-v5p", "4x4x4", "ct5p-hightpu-4t", 64, 16, 8, 8, layout=layout)
        long, short = Option("8x8x8", (Part("main", "tpu-v5p", "8x8x8", 512),)), Part("main", "tpu-v5p", "4x4x8", 128)
    site = site_of(pool, policy="sjf", preempt=True)
    site.submit(demand("long", long, runtime=5000.0))
    site.obey()
    site.submit(*(demand(f"short{number}", Option("short", (short,)), runtime=10.0) for number in range(2)))
    site.obey()
    assert [site.phase(key) for key in ("long", "short0", "short1")] == ["waiting", "running", "running"]
    site.finish("short0")
    site.finish("short1")
    assert site.phase("long") == "running"


@pytest.mark.parametrize(
    ("runtime", "shorter", "old"), [(1000.0, 500.0, rules.STRETCH * 1000.0), (None, 100_000.0, rules.UNKNOWN)]
)
def test_what_is_old_comes_before_all_that_is_younger(runtime: float | None, shorter: float, old: float) -> None:
    """Shorter work keeps coming; after a long time (a month without an estimate) the long one runs to its end."""
    site = site_of(nodes(1), policy="sjf", preempt=True)
    site.submit(timed("short0", 8, shorter))
    site.submit(demand("long", gpus(8), runtime=runtime))
    site.obey()
    for number in range(1, 60):
        site.submit(timed(f"short{number}", 8, shorter))
        site.obey()
        site.pass_time(shorter)
        if site.phase("long") != "waiting":
            break
        site.finish(next(iter(site.running)))
    assert site.phase("long") == "running"
    assert old <= site.now <= old + shorter
    site.submit(timed("tiny", 8, 1.0))
    assert site.phase("tiny") == "waiting"


def test_preemption_stops_the_cheapest_of_lower_priority_and_no_more_than_is_needed() -> None:
    site = site_of(nodes(3), preempt=True)
    site.submit(*(timed(key, 8, 1000.0) for key in "abc"))
    site.obey()
    site.now = 500.0
    site.tell(ev.CheckpointReported(500.0, "b", 1, "file:///b"))
    site.submit(timed("urgent", 8, 10.0, priority=100))
    assert [order.workload for order in site.orders if isinstance(order, StopAttempt)] == ["b"]
    site.obey()
    assert (site.phase("urgent"), site.phase("b")) == ("running", "waiting")
    assert site.state.workloads["b"].worked == 500.0


def test_a_queue_borrows_what_others_leave_and_gives_it_back() -> None:
    queues = (Queue("a", (("h100", 8),)), Queue("b", (("h100", 8),)))
    site = site_of(nodes(2), preempt=True, queues=queues)
    site.submit(*(timed(key, 8, 1000.0, queue="a") for key in ("a1", "a2")))
    site.obey()
    assert site.phase("a2") == "running"
    site.submit(timed("b1", 8, 10.0, queue="b"))
    site.obey()
    phases = {key: site.phase(key) for key in ("a1", "a2", "b1")}
    assert phases["b1"] == "running" and sorted(phases.values()) == ["running", "running", "waiting"]


def test_a_queue_that_does_not_lend_keeps_its_quota_free() -> None:
    queues = (Queue("a", (("h100", 8),)), Queue("b", (("h100", 8),), lend=0))
    site = site_of(nodes(2), queues=queues)
    site.submit(*(timed(key, 8, 1000.0, queue="a") for key in ("a1", "a2")))
    assert (site.phase("a2"), site.codes("a2")) == ("waiting", [["quota"]])


def test_nobody_waits_for_one_that_its_queue_can_never_hold_any_more() -> None:
    site = Site(nodes(2), queues=(Queue("a", (("h100", 16),)),))
    site.obey()
    site.submit(demand("large", gpus(16), queue="a", retries=1))
    site.obey()
    site.tell(ev.FleetChanged(site.now, Fleet(site.state.fleet.pools, (Queue("a", (("h100", 8),)),))))
    site.finish("large", "failed", "user-error")
    assert site.codes("large") == [["impossible"]]
    site.pass_time(10 * PATIENCE)
    site.submit(demand("small", gpus(8), queue="a"))
    site.obey()
    assert site.phase("small") == "running"


def test_queues_are_served_by_the_share_they_use_over_their_weight() -> None:
    site = site_of(nodes(3), queues=(Queue("a"), Queue("b"), Queue("c", weight=2.0)))
    site.submit(*(timed(f"{queue}{number}", 4, 100.0, queue=queue) for queue in "abc" for number in range(8)))
    site.obey()
    for _ in range(6):
        site.now += 100.0
        for key in sorted(site.running):
            site.finish(key)
    used = {queue: sum(len(site.state.workloads[f"{queue}{n}"].attempts) for n in range(8)) for queue in "abc"}
    assert used["c"] >= used["a"] - 1 and abs(used["a"] - used["b"]) <= 1


@pytest.mark.parametrize(
    ("ends", "queue", "runtime", "passes"),
    [
        (1000.0, "over", 5000.0, False),
        (1000.0, "over", 1000.0, True),
        (1000.0, "other", 5000.0, True),
        (4000.0, "over", 5000.0, True),
    ],
)
def test_who_has_more_than_its_share_does_not_pass_for_long_if_the_wait_is_short(
    ends: float, queue: str, runtime: float, passes: bool
) -> None:
    site = site_of(nodes(4), queues=(Queue("over"), Queue("under"), Queue("other")))
    for key in ("one", "two", "three"):
        site.submit(timed(key, 8, ends, queue="over"))
    site.obey()
    site.submit(timed("large", 16, 100.0, queue="under"), timed("small", 8, runtime, queue=queue))
    assert site.state.workloads["large"].promise == ends
    assert (site.phase("small") == "starting") == passes
    if not passes:
        assert [each.code for each in site.scheduler.reasons("small")[0]] == ["reserved"]
        site.finish("one")
        assert [site.phase(key) for key in ("large", "small")] == ["running", "waiting"]
        site.finish("two")
        assert site.phase("small") == "running"


def test_who_passes_again_as_the_first_catches_up_is_seen_in_all_pools() -> None:
    pools = (nodes(4), dataclasses.replace(nodes(1, "others", chips=20), accelerator="a100"))
    site = site_of(*pools, queues=(Queue("over"), Queue("under")))
    site.submit(*(timed(key, 8, 1000.0, queue="over") for key in ("one", "two", "three")))
    site.obey()
    site.submit(timed("large", 16, 100.0, queue="under"), timed("small", 8, 5000.0, queue="over"))
    assert site.phase("small") == "waiting"
    site.submit(demand("elsewhere", gpus(14, "a100"), runtime=100.0, queue="under"))
    assert [site.phase(key) for key in ("elsewhere", "large", "small")] == ["starting", "waiting", "starting"]


def test_a_class_chain_leaves_refused_options_and_gives_partial_units_back() -> None:
    """T12: spot refused by quota, on-demand stocked out after a part, the third option takes it all."""

    def pool(name: str, accelerator: str, market: str, units: int) -> Pool:
        return Pool(name, accelerator, None, name, 1, 1, units, market=market)  # type: ignore[arg-type]

    def option(short: str, accelerator: str, machine: str, patience: float | None = None) -> Option:
        return Option(short, (Part("main", accelerator, None, 16, machine=machine),), patience=patience)

    pools = (
        pool("spot", "h100", "spot", 16),
        pool("od", "h100", "on-demand", 16),
        pool("a100", "a100", "on-demand", 16),
    )
    site = site_of(*pools)
    chain = (option("spot", "h100", "spot"), option("od", "h100", "od", 300.0), option("a100", "a100", "a100"))
    site.submit(demand("w", *chain))
    first = next(order for order in site.orders if isinstance(order, ProvisionUnit))
    site.orders.clear()
    site.tell(ev.ProvisionRefused(0.0, "spot", first.unit, 1, "quota"))
    ordered = [order for order in site.orders if isinstance(order, ProvisionUnit)]
    assert len(ordered) == 16 and {order.pool for order in ordered} == {"od"}
    assert sum(isinstance(order, ReleaseUnit) for order in site.orders) == 15
    site.orders = [order for order in site.orders if isinstance(order, ReleaseUnit)]
    site.obey()
    site.now = 5.0
    for order in ordered[:9]:
        site.tell(ev.UnitAppeared(5.0, order.pool, order.unit, order.incarnation))
    site.tell(ev.ProvisionRefused(5.0, "od", ordered[9].unit, 1, "stock-out"))
    site.orders.clear()
    while site.state.wake_at is not None and site.now < 300.0:
        site.now = site.state.wake_at
        site.tell(ev.Woke(site.now))
    site.obey()
    workload = site.state.workloads["w"]
    assert site.phase("w") == "running"
    assert {grant.pool for grant in workload.attempts[0].grants} == {"a100"}
    assert [(each.option, each.code) for each in workload.departures] == [(0, "quota"), (1, "limit")]
    assert not [unit for unit in site.state.units.values() if unit.pool == "od"]


def test_units_of_a_demand_that_gave_up_go_back_at_once() -> None:
    """T9: one unit is ordered once, and given back when the start budget is used up."""
    site = Site(slices(2, minimum=0, provision=540.0))
    site.submit(demand("a", tpu(), limits=dataclasses.replace(demand("x").limits, wait=1200.0)))
    assert [type(order) for order in site.orders if not hasattr(order, "at")] == [ProvisionUnit]
    site.orders.clear()
    site.now = 1200.0
    site.tell(ev.Woke(1200.0))
    assert site.state.workloads["a"].cause == "wait-limit"
    assert any(isinstance(order, ReleaseUnit) for order in site.orders)


def test_elastic_work_takes_what_is_free_and_gives_it_back_in_whole_groups() -> None:
    site = site_of(slices(4))
    elastic = dataclasses.replace(tpu(1), minimum=1, maximum=4)
    site.submit(dataclasses.replace(demand("e", elastic), kind="job"))
    site.obey()
    assert len(site.state.workloads["e"].attempts[0].grants) == 4
    site.submit(demand("other", tpu(2)))
    order = next(order for order in site.orders if isinstance(order, ResizeAttempt))
    assert len(order.grants) == 2 and site.phase("other") == "waiting"
    site.tell(ev.AttemptResized(site.now, "e", 1, order.resize))
    site.obey()
    assert site.phase("other") == "running"
    site.finish("other")
    assert len(site.state.workloads["e"].attempts[0].grants) == 4


def test_a_serving_workload_follows_its_load_and_never_uses_more_than_there_is() -> None:
    """T14, as far as it is the core's: old leaves first, what it leaves is had once it is left."""
    site = site_of(nodes(1))
    serve = dataclasses.replace(gpus(1), minimum=1, maximum=8)
    site.submit(Demand("a", "a", "serve", (serve,)), Demand("b", "b", "serve", (serve,)))
    site.obey()
    site.tell(ev.LoadReported(1.0, "a", 6.5))
    site.obey()
    assert len(site.state.workloads["a"].attempts[0].grants) == 7
    site.tell(ev.LoadReported(2.0, "a", 2.0))
    site.now = 2.0
    site.pass_time(301.0)
    assert len(site.state.workloads["a"].attempts[0].grants) == 2


def test_the_cheapest_change_is_named() -> None:
    site = site_of(nodes(2, price=2.0), queues=(Queue("a", (("h100", 8),)),))
    site.submit(timed("one", 8, 100.0, queue="a"), timed("x", 8, 9.0, queue="a"))
    change = site.scheduler.cheapest_change("x")
    assert change is not None
    assert (change.kind, change.subject, change.amount) == ("quota", "h100", 8)
    site = site_of(nodes(2, price=2.0))
    site.submit(timed("one", 8, 100.0), timed("two", 8, 100.0), timed("x", 8, 9.0))
    change = site.scheduler.cheapest_change("x")
    assert change is not None
    assert (change.kind, change.subject, change.amount, change.price_per_hour) == ("units", "h100", 1, 16.0)


@pytest.mark.parametrize("known", [False, True])
def test_a_forecast_runs_the_same_core_forward_and_changes_nothing(known: bool) -> None:
    site = site_of(nodes(1))
    site.submit(timed("one", 8, 100.0), timed("two", 8, 100.0))
    site.obey()
    history = History()
    for _ in range(20 if known else 0):
        history.learn(timed("z", 8, 100.0), 0, 100.0)
    before = repr(site.state)
    found = forecast(site.scheduler, history, submit=[timed("three", 8, 100.0)], samples=9)
    assert repr(site.state) == before
    assert found == forecast(site.scheduler, history, submit=[timed("three", 8, 100.0)], samples=9)
    two, three = found["two"], found["three"]
    assert two.start_p50 is not None and three.start_p50 is not None and two.start_p50 < three.start_p50
    if known:
        assert (two.start_p90, three.start_p90, three.finish_p90) == (100.0, 200.0, 300.0)
