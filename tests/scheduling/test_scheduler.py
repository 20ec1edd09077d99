"""What the scheduler decides, case by case."""

from __future__ import annotations

import pytest
from world import Limits, Queue, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import RecycleUnit, StartAttempt, StopAttempt
from stellwerk.scheduling.model import Option, Part


def test_crossed_multislice_one_runs_and_the_other_holds_nothing() -> None:
    """T5: two workloads of two slices each, submitted at once, on two slices."""
    site = Site(slices(2))
    site.obey()
    site.submit(demand("a", tpu(2)), demand("b", tpu(2)))
    site.obey()
    assert (site.phase("a"), site.phase("b")) == ("running", "waiting")
    assert site.codes("b") == [["capacity"]]
    site.finish("a")
    assert (site.phase("a"), site.phase("b")) == ("ended", "running")


def test_host_lost_while_running_costs_no_retry_and_waits_for_the_new_incarnation() -> None:
    """T7: the whole gang stops; the next attempt stands on incarnation 2 and knows the checkpoint."""
    site = Site(slices(2))
    site.obey()
    site.submit(demand("a", tpu(2)))
    site.obey()
    site.tell(ev.CheckpointReported(200.0, "a", 1, "file:///checkpoints/200", 200))
    orders = site.tell(ev.HostChanged(300.0, "v6e-1", 1, 2, up=False))
    assert StopAttempt("a", 1, "infrastructure", 0.0) in orders
    site.orders.clear()
    site.running.pop("a")
    orders = site.tell(ev.AttemptEnded(310.0, "a", 1, "stopped", "infrastructure"))
    assert RecycleUnit("v6e", "v6e-1", 2) in orders
    assert site.codes("a") == [["broken"]]
    orders = site.tell(ev.UnitAppeared(600.0, "v6e", "v6e-1", 2))
    start = next(order for order in orders if isinstance(order, StartAttempt))
    assert start.attempt == 2
    assert [(grant.unit, grant.incarnation) for grant in start.grants] == [("v6e-0", 1), ("v6e-1", 2)]
    workload = site.state.workloads["a"]
    assert (workload.failures, workload.checkpoint_step) == (0, 200)


def test_late_news_of_an_old_incarnation_is_ignored() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu()))
    site.obey()
    site.tell(ev.HostChanged(1.0, "v6e-0", 1, 0, up=False))
    site.obey()
    assert site.state.units["v6e-0"].incarnation == 2
    assert site.phase("a") == "running"
    site.tell(ev.HostChanged(2.0, "v6e-0", 1, 1, up=False))
    site.tell(ev.AttemptEnded(2.0, "a", 1, "failed", "user-error"))
    assert site.phase("a") == "running"


def test_order_is_priority_then_age_and_nobody_overtakes_in_a_pool() -> None:
    site = Site(slices(2))
    site.obey()
    site.submit(demand("first", tpu()))
    site.obey()
    site.submit(demand("big", tpu(2)), demand("small", tpu()), demand("urgent", tpu(2), priority=100))
    site.obey()
    assert [site.phase(key) for key in ("big", "small", "urgent")] == ["waiting"] * 3
    assert site.codes("small") == [["reserved"]]
    site.finish("first")
    assert [site.phase(key) for key in ("big", "small", "urgent")] == ["waiting", "waiting", "running"]
    site.finish("urgent")
    assert site.phase("big") == "running"


def test_a_later_option_opens_when_patience_is_used_up() -> None:
    site = Site(slices(1), nodes(2))
    site.obey()
    site.submit(demand("holder", tpu()))
    site.obey()
    site.submit(demand("a", tpu(patience=30.0), gpus(16)))
    site.obey()
    assert site.codes("a") == [["capacity"], ["limit"]]
    site.pass_time(29.0)
    assert site.phase("a") == "waiting"
    site.pass_time(2.0)
    assert site.phase("a") == "running"
    assert site.state.workloads["a"].attempts[0].units == ("h100-0", "h100-1")


def test_an_option_that_never_can_be_met_costs_no_patience() -> None:
    site = Site(nodes(1))
    site.obey()
    site.submit(demand("a", tpu(), gpus(8)))
    site.obey()
    assert site.phase("a") == "running"


def test_impossible_everywhere_ends_the_workload_with_the_figure() -> None:
    site = Site(slices(2))
    site.obey()
    site.submit(demand("a", tpu(3)))
    workload = site.state.workloads["a"]
    assert (workload.outcome, workload.cause) == ("failed", "impossible")
    assert "3 units" in workload.message and "at most 2" in workload.message


@pytest.mark.parametrize(
    ("chips", "held"), [(2, [("h100-2", 2)]), (8, [("h100-0", 8)]), (12, [("h100-0", 8), ("h100-2", 4)])]
)
def test_gpus_take_whole_units_and_a_cell_for_what_is_left(chips: int, held: list[tuple[str, int]]) -> None:
    site = Site(nodes(3))
    site.obey()
    site.submit(demand("a", gpus(chips)))
    grants = site.state.workloads["a"].attempts[0].grants
    assert [(grant.unit, grant.chips) for grant in grants] == held


def test_a_cell_beside_whole_units_needs_a_wholly_free_unit() -> None:
    site = Site(nodes(2))
    site.obey()
    site.submit(demand("small", gpus(1)), demand("big", gpus(12)))
    assert site.phase("big") == "waiting"
    site.submit(demand("other", gpus(2)))
    assert site.codes("other") == [["reserved"]]


def test_cells_leave_the_least_free() -> None:
    site = Site(nodes(2))
    site.obey()
    site.submit(demand("a", gpus(6)), demand("b", gpus(4)), demand("c", gpus(2)))
    assert site.state.workloads["c"].attempts[0].units == ("h100-1",)


def test_of_equally_full_units_the_one_that_was_idle_last_is_cut() -> None:
    site = Site(nodes(3))
    site.obey()
    site.submit(demand("a", gpus(8)), demand("b", gpus(8)), demand("c", gpus(8)))
    site.obey()
    for key, at in (("b", 1.0), ("c", 2.0), ("a", 3.0)):
        site.now = at
        site.finish(key)
    site.submit(demand("d", gpus(5)), demand("e", gpus(5)), demand("f", gpus(5)), demand("g", gpus(1)))
    assert site.state.workloads["g"].attempts[0].units == ("h100-0",)


def test_roles_are_placed_together_or_not_at_all() -> None:
    both = Option("learner+generator", (Part("learner", "tpu-v6e", "4x4", 16), Part("generator", "h100", None, 4, 4)))
    site = Site(slices(1), nodes(1))
    site.obey()
    site.submit(demand("a", both))
    assert site.state.workloads["a"].cause == "impossible"
    site = Site(slices(1), nodes(2))
    site.obey()
    site.submit(demand("blocker", gpus(2)), demand("b", both))
    assert site.phase("b") == "waiting"
    assert site.state.units["v6e-0"].held == {}
    site.obey()
    site.finish("blocker")
    assert site.phase("b") == "running"


def test_a_users_failure_uses_retries_and_infrastructure_does_not() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu(), retries=1))
    site.obey()
    for _ in range(3):
        site.finish("a", "failed", "infrastructure")
        site.pass_time(60.0)
    site.finish("a", "failed", "user-error")
    assert site.phase("a") == "running"
    site.finish("a", "failed", "user-error")
    workload = site.state.workloads["a"]
    assert (workload.outcome, workload.cause, len(workload.attempts)) == ("failed", "user-error", 5)


def test_infrastructure_failures_without_progress_do_not_go_on_for_ever() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu()))
    site.obey()
    while site.phase("a") == "running":
        site.finish("a", "failed", "infrastructure")
        site.pass_time(60.0)
    assert site.state.workloads["a"].cause == "infrastructure"


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (Limits(run=100.0), "run-limit"),
        (Limits(cost=10.0), "cost-limit"),
    ],
)
def test_limits_end_a_running_workload(limits: Limits, cause: str) -> None:
    site = Site(slices(1, price=2.0))
    site.obey()
    site.submit(demand("a", tpu(), limits=limits))
    site.obey()
    site.pass_time(99.0)
    assert site.phase("a") == "running"
    site.pass_time(2000.0)
    workload = site.state.workloads["a"]
    assert (workload.outcome, workload.cause) == ("failed", cause)


def test_wait_limit_and_start_limit() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu()), demand("b", tpu(), limits=Limits(wait=50.0)))
    site.obey()
    site.pass_time(51.0)
    assert site.state.workloads["b"].cause == "wait-limit"
    site.finish("a")
    site.submit(demand("c", tpu(), limits=Limits(start=20.0)))
    site.orders.clear()
    site.running["c"] = 1
    site.pass_time(21.0)
    assert site.state.workloads["c"].cause == "start-limit"


def test_stop_while_waiting_and_while_running() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu()), demand("b", tpu()))
    site.obey()
    site.tell(ev.StopRequested(site.now, "b"))
    site.tell(ev.StopRequested(site.now, "a", grace=5.0))
    assert StopAttempt("a", 1, "stopped-by-user", 5.0) in site.orders
    site.obey()
    assert {site.state.workloads[key].outcome for key in "ab"} == {"stopped"}


def test_units_are_made_from_zero_once_and_given_back_when_idle() -> None:
    """T9, as far as it is the core's: 0 -> 1 once, the demand kept while the unit comes, back to 0 later."""
    site = Site(slices(2, minimum=0, provision=540.0, idle=600.0))
    site.submit(demand("a", tpu()))
    assert len(site.orders) == 1
    assert site.codes("a") == [["provisioning"]]
    site.pass_time(540.0)
    assert len(site.state.units) == 1
    site.obey()
    assert site.phase("a") == "running"
    site.finish("a")
    site.pass_time(601.0)
    assert not site.state.units


def test_a_gang_that_cannot_be_completed_provisions_nothing() -> None:
    site = Site(slices(3, minimum=0))
    site.submit(demand("a", tpu(2)))
    site.obey()
    site.submit(demand("b", tpu(2)))
    site.obey()
    assert len(site.state.units) == 2
    assert site.codes("b") == [["capacity"]]


def test_refused_pools_cool_down_and_the_reason_says_so() -> None:
    site = Site(slices(1, minimum=0))
    site.submit(demand("a", tpu()))
    site.orders.clear()
    site.tell(ev.ProvisionRefused(1.0, "v6e", "v6e-0", 1, "stock-out", "no capacity in zone"))
    assert site.codes("a") == [["stock-out"]]
    site.pass_time(302.0)
    assert site.phase("a") == "running"


def test_a_drained_unit_leaves_after_its_holder_and_is_replaced() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu()))
    site.obey()
    orders = site.tell(ev.DrainNoticed(10.0, "v6e-0", 1, deadline=40.0))
    assert StopAttempt("a", 1, "infrastructure", 30.0) in orders
    site.obey()
    assert site.state.units["v6e-0"].incarnation == 2
    assert site.state.workloads["a"].attempts[-1].grants[0].incarnation == 2


def test_quota_caps_a_queue_and_a_queue_must_exist() -> None:
    site = Site(slices(2), queues=(Queue("research", (("tpu-v6e", 16),)),))
    site.obey()
    site.submit(*(demand(key, tpu(), queue="research") for key in "ab"), demand("c", tpu(), queue="nobody"))
    assert (site.phase("a"), site.codes("b")) == ("starting", [["quota"]])
    assert site.state.workloads["c"].cause == "impossible"
    site.submit(demand("d", tpu(2), queue="research"))
    assert site.state.workloads["d"].cause == "impossible"


def test_memory_of_the_machine_that_plays_the_units_is_shared() -> None:
    gib = 2**30
    site = Site(slices(4, footprint=2 * gib), nodes(4, footprint=gib), memory=5 * gib)
    site.obey()
    site.submit(demand("a", tpu(2)), demand("b", tpu(1)), demand("c", gpus(8)), demand("d", tpu(3)))
    assert site.codes("b") == [["capacity"]]
    assert "memory" in site.state.workloads["b"].reasons[0][0].message
    assert site.codes("c") == [["reserved"]]
    assert site.state.workloads["d"].cause == "impossible"
    site.obey()
    site.finish("a")
    assert (site.phase("b"), site.phase("c")) == ("running", "running")


def test_evaluate_changes_nothing_and_tells_now_later_never() -> None:
    site = Site(slices(2, price=2.7), nodes(2, minimum=0, provision=100.0))
    site.obey()
    site.submit(demand("a", tpu(1)))
    site.obey()
    before = repr(site.state)
    verdicts = site.scheduler.evaluate(demand("z", tpu(1), tpu(2), tpu(3), gpus(16)), 5.0)
    assert [verdict.verdict for verdict in verdicts] == ["now", "later", "never", "later"]
    assert [verdict.reasons[0].code for verdict in verdicts[1:]] == ["capacity", "impossible", "provisioning"]
    assert verdicts[0].price_per_hour == pytest.approx(16 * 2.7)
    assert (verdicts[1].units, verdicts[1].hosts, verdicts[1].chips) == (2, 8, 32)
    assert verdicts[3].start == 105.0
    assert repr(site.state) == before
