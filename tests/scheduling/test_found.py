"""Faults that random seeds found (`fuzz.py`), each as a small case."""

from __future__ import annotations

from dataclasses import replace

from world import Queue, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import ProvisionUnit
from stellwerk.scheduling.model import NO_LIMITS, Demand, Fleet, Limits, Option, Part, Pool
from stellwerk.scheduling.placement.ends import Ends
from stellwerk.scheduling.placement.index import make
from stellwerk.scheduling.state import UnitState

LEARNER = Part("learner", "tpu-v6e", "4x4", 16)
CRITIC = Part("critic", "tpu-v6e", "4x4", 16)
ACTOR = Part("actor", "h100", None, 8)


def test_an_overrun_is_foreseen_alike_whenever_it_is_looked_at() -> None:
    often, once = Ends(), Ends()
    for ends in (often, once):
        ends.hold("w", (), 551.1, 581.1)
    for now in (600.0, 700.5, 1000.1, 2000.7):
        often.content(now)
    assert often.content(3812.3) == once.content(3812.3)


def test_nothing_is_granted_of_split_units_when_all_are_kept() -> None:
    pool = slices(2, layout="subslices")
    index = make(pool)
    for number in range(2):
        index.put(UnitState(f"v6e-{number}", "v6e", 1, "up", 16, 4, 0.0))
    need = index.need(Part("main", "tpu-v6e", "2x4", 8))
    assert need is not None
    assert (index.fit(need, -1), index.fits(need, -1), index.whole_free(-1)) == (None, False, 0)
    assert (index.whole_free(), index.whole_free(1)) == (2, 1)


def test_a_load_is_heard_when_the_pool_is_no_longer_declared() -> None:
    site = Site(nodes(2), nodes(1, "other"))
    serving = Demand("s", "s", "serve", (replace(gpus(1), minimum=1, maximum=12),))
    site.submit(serving)
    site.obey()
    pool = site.state.workloads["s"].attempts[0].grants[0].pool
    left = tuple(each for each in site.state.pools.values() if each.name != pool)
    site.tell(ev.FleetChanged(1.0, Fleet(left)))
    site.tell(ev.LoadReported(2.0, "s", 5.0))
    assert site.state.workloads["s"].load == 5.0


def test_parts_that_fit_one_by_one_and_never_together_are_refused_at_once() -> None:
    site = Site(slices(1), nodes(1))
    site.submit(demand("w", Option("roles", (LEARNER, CRITIC))))
    workload = site.state.workloads["w"]
    assert (workload.phase, workload.cause) == ("ended", "impossible")
    assert "together" in workload.message
    site.submit(demand("x", Option("roles", (LEARNER, ACTOR))))
    site.obey()
    assert site.phase("x") == "running"


def test_a_part_moves_on_to_its_next_pool_for_the_sake_of_a_later_part() -> None:
    """The first part may stand on either pool, the second only on the one that the first would take."""
    one, two = nodes(1), Pool("big", "h100", None, "a4", 8, 1, 1, 1)
    site = Site(one, two)
    pinned = Part("learner", "h100", None, 8, machine="a3-highgpu-8g")
    site.submit(demand("w", Option("roles", (ACTOR, pinned))))
    site.obey()
    assert {grant.role: grant.pool for grant in site.state.workloads["w"].attempts[0].grants} == {
        "actor": "big",
        "learner": "h100",
    }


def test_cubes_that_are_enough_and_scattered_get_more_beside_them() -> None:
    pod = Pool("pod", "tpu-v5p", "4x4x4", "ct5p-hightpu-4t", 64, 16, 8, 0, layout="torus")
    site = Site(pod)
    site.submit(demand("a", Option("a", (Part("main", "tpu-v5p", "4x4x4", 64, 4),))))
    site.obey()
    site.submit(demand("b", Option("b", (Part("main", "tpu-v5p", "4x4x4", 64, 2),))))
    site.obey()
    for key in ("a", "b"):
        site.finish(key)
    for unit in ("pod-1", "pod-2"):
        site.tell(ev.UnitGone(site.now, unit, 1))
    assert sorted(site.state.units) == ["pod-0", "pod-3", "pod-4", "pod-5"]
    site.submit(demand("c", Option("c", (Part("main", "tpu-v5p", "4x8x8", 256),))))
    assert any(isinstance(order, ProvisionUnit) for order in site.orders)
    site.obey()
    assert site.phase("c") == "running"


def test_a_queue_of_its_own_policy_is_given_reasons_where_another_lane_is_not_its_own() -> None:
    """A queue with `sjf` in a fleet that may preempt under another policy passes nobody, and is told so."""
    queues = (Queue("a"), Queue("b", policy="sjf"))
    site = Site(slices(1), nodes(1))
    site.tell(ev.FleetChanged(0.0, Fleet((slices(1), nodes(1)), queues, policy="backfill", preempt=True)))
    site.obey()
    site.submit(demand("r", tpu(1), queue="a", runtime=400.0))
    site.submit(demand("g", gpus(8), queue="a", runtime=400.0, priority=100))
    site.obey()
    site.submit(demand("h", gpus(8), queue="a", runtime=400.0, priority=100))
    both = (tpu(1, patience=0.0), gpus(1))
    site.submit(demand("w", *both, queue="b", runtime=30.0))
    site.finish("g")
    assert site.phase("h") == "running"
    assert all(site.state.workloads["w"].reasons) and len(site.state.workloads["w"].reasons) == 2


def test_queues_with_orders_of_different_kinds_take_turns_by_share() -> None:
    """Under `fifo` a queue ordered by runtime would else come after every other for ever."""
    queues = (Queue("a"), Queue("b", policy="sjf"))
    site = Site(nodes(1))
    site.tell(ev.FleetChanged(0.0, Fleet((nodes(1),), queues, policy="fifo")))
    site.obey()
    for number in range(3):
        site.submit(*(demand(f"{queue}{number}", gpus(8), queue=queue, runtime=100.0) for queue in "ab"))
    for _ in range(4):
        site.obey()
        site.now += 100.0
        for key in sorted(site.running):
            site.finish(key)
    ended = {queue: sum(site.phase(f"{queue}{number}") == "ended" for number in range(3)) for queue in "ab"}
    assert ended == {"a": 2, "b": 2}


def test_what_a_role_lacks_is_made_once_the_other_role_has_its_units() -> None:
    """When the nodes were asked for last the slices were in use; nothing else asked for them again."""
    site = Site(slices(1), nodes(2, minimum=0, idle=20.0))
    site.obey()
    site.submit(demand("s", tpu(1), runtime=100.0))
    site.obey()
    site.submit(demand("w", Option("roles", (LEARNER, replace(ACTOR, count=2))), runtime=10.0))
    assert not any(isinstance(order, ProvisionUnit) for order in site.orders)
    site.finish("s")
    assert site.phase("w") == "running"


def test_an_owner_that_borrows_other_hardware_claims_nothing() -> None:
    """Two such owners, each of what the other borrowed, would wait for each other."""
    queues = (Queue("a", (("h100", 8), ("tpu-v6e", 16))), Queue("b", (("h100", 8), ("tpu-v6e", 16))))
    fleet = Fleet((slices(2), nodes(2)), queues, preempt=True)
    site = Site(slices(2), nodes(2))
    site.tell(ev.FleetChanged(0.0, fleet))
    site.obey()
    site.submit(demand("x", tpu(2), queue="a", runtime=100.0), demand("y", gpus(16), queue="b", runtime=100.0))
    site.obey()
    wide = Option("wide", (replace(LEARNER, count=1), replace(ACTOR, count=2)))
    site.submit(demand("u", wide, queue="a", runtime=10.0), demand("v", wide, queue="b", runtime=10.0))
    site.obey()
    assert (site.phase("x"), site.phase("y")) == ("running", "running")
    site.finish("x")
    site.finish("y")
    for _ in range(2):
        for key in sorted(site.running):
            site.finish(key)
    assert (site.phase("u"), site.phase("v")) == ("ended", "ended")


def test_who_waits_for_a_claim_is_asked_again_when_the_claim_is_over() -> None:
    """A borrower with several options is in its lane's order, and not among those who are parked."""
    queues = (Queue("a", (("tpu-v6e", 32),)), Queue("b", (("tpu-v6e", 0),)))
    site = Site(slices(2))
    site.tell(ev.FleetChanged(0.0, Fleet((slices(2),), queues, preempt=True)))
    site.obey()
    twice = (tpu(1, patience=5.0), tpu(2))
    site.submit(demand("x", *twice, queue="b", runtime=100.0), demand("y", *twice, queue="b", runtime=100.0))
    site.obey()
    assert (site.phase("x"), site.phase("y")) == ("running", "running")
    site.submit(demand("o", tpu(1), queue="a", runtime=100.0))
    site.obey()
    phases = sorted(site.phase(key) for key in ("x", "y"))
    assert (site.phase("o"), phases) == ("running", ["running", "waiting"])
    site.finish("o")
    assert (site.phase("x"), site.phase("y")) == ("running", "running")


def test_several_roles_pass_smaller_work_that_cannot_start_where_it_waits() -> None:
    """Under `sjf` with preemption who is blocked blocks nobody, also not in a pool that is not being served."""
    site = Site(slices(2), nodes(1, minimum=0, provision=50.0))
    site.tell(ev.FleetChanged(0.0, Fleet((slices(2), nodes(1, minimum=0)), policy="sjf", preempt=True)))
    site.obey()
    site.tell(ev.HostChanged(0.0, "v6e-1", 1, 0, False))
    site.submit(demand("pair", tpu(2), runtime=5.0))
    site.submit(demand("roles", Option("roles", (ACTOR, LEARNER)), runtime=400.0))
    node = next(order for order in site.orders if isinstance(order, ProvisionUnit))
    site.tell(ev.UnitAppeared(1.0, node.pool, node.unit, node.incarnation))
    assert (site.phase("pair"), site.phase("roles")) == ("waiting", "starting")


def test_who_has_started_is_not_waited_for_any_more_whatever_object_its_limits_are() -> None:
    for limits in (NO_LIMITS, Limits()):
        site = Site(nodes(1), queues=(Queue("a", (("h100", 8),)),))
        site.obey()
        site.submit(demand("first", gpus(8), queue="a"), demand("second", gpus(8), queue="a", limits=limits))
        assert ("workload", "second") in site.scheduler.book.timers.due
        site.obey()
        site.tell(ev.AttemptEnded(site.now, "first", 1, "succeeded"))
        assert site.phase("second") == "starting"
        assert ("workload", "second") not in site.scheduler.book.timers.due


def test_units_are_made_for_those_who_wait_in_the_order_in_which_they_are_served() -> None:
    """Made in order of age they were counted for the older, who was kept from them by the shorter."""
    pool = slices(4, minimum=0, maximum=4)
    site = Site(pool)
    site.tell(ev.FleetChanged(0.0, Fleet((pool,), policy="sjf")))
    site.submit(demand("running", tpu(2), runtime=50.0))
    site.obey()
    site.submit(demand("longer", tpu(3), runtime=400.0), demand("shorter", tpu(4), runtime=100.0))
    site.finish("running")
    assert (site.phase("longer"), site.phase("shorter")) == ("waiting", "running")
    site.finish("shorter")
    assert site.phase("longer") == "running"
