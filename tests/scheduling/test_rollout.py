"""T14: a version of a service is replaced where there is no spare hardware, and turned back half way."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import Queue, Site, gpus, nodes

from stellwerk.scheduling.model import Demand
from stellwerk.scheduling.policy.rollout import Rollout, Step, ways


def serving(site: Site, groups: int, queue: str = "default") -> None:
    """A service on so many GPUs, that follows its load."""
    option = dataclasses.replace(gpus(1), minimum=groups, maximum=8)
    site.submit(Demand("svc", "svc", "serve", (option,), queue=queue))
    site.obey()


def test_without_spare_gpus_the_old_version_shrinks_first() -> None:
    site = Site(nodes(1))
    site.obey()
    serving(site, 8)
    beside, stepwise = ways(site.scheduler.book, site.state.workloads["svc"], "B", source="A", step=2)
    assert beside.reason is not None
    assert (beside.reason.code, beside.reason.message) == ("capacity", "needs 8 more chips of h100, 0 free")
    assert (stepwise.reason, stepwise.serving) == (None, 6)
    rollout, seen = stepwise.rollout, list[tuple[int, int]]()
    while (step := rollout.next()) is not None and len(seen) < 2:
        assert step.deadline > 0
        rollout = rollout.done(step)
        seen.append((rollout.old, rollout.new))
    assert seen == [(6, 0), (6, 2)]
    back = rollout.towards("A")
    assert (back.source, back.target) == ("B", "A")
    with pytest.raises(ValueError, match="finish that, or turn back"):
        rollout.towards("C")
    assert back.next() == Step("stop", "B", 2)
    back = back.done(Step("stop", "B", 2))
    assert back.next() == Step("start", "A", 2)
    back = back.done(Step("start", "A", 2))
    assert (back.next(), back.old, back.new) == (None, 0, 8)
    again = back.towards("C")
    assert (again.source, again.old, again.new) == ("A", 8, 0)


def test_with_spare_gpus_nothing_stops_serving() -> None:
    site = Site(nodes(2))
    site.obey()
    serving(site, 8)
    beside, stepwise = ways(site.scheduler.book, site.state.workloads["svc"], "B", step=2)
    assert (beside.reason, beside.serving, beside.rollout.next()) == (None, 8, Step("start", "B", 8))
    assert (stepwise.serving, stepwise.rollout.next()) == (8, Step("start", "B", 2))


def test_what_a_quota_keeps_is_not_spare() -> None:
    site = Site(nodes(2), queues=(Queue("q", (("h100", 10),)),))
    site.obey()
    serving(site, 8, "q")
    beside, stepwise = ways(site.scheduler.book, site.state.workloads["svc"], "B", step=4)
    assert beside.reason is not None and beside.reason.message == "needs 8 more chips of h100, 2 free"
    assert stepwise.rollout.spare == 2


def test_what_does_not_run_is_not_rolled_out() -> None:
    site = Site(nodes(1, minimum=0))
    serving(site, 8)
    site.submit(Demand("late", "late", "serve", (gpus(8),)))
    with pytest.raises(ValueError, match="does not run"):
        ways(site.scheduler.book, site.state.workloads["late"], "B")


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 20), st.lists(st.sampled_from("ABC"), max_size=30))
def test_use_never_exceeds_what_there_is_and_it_ends(size: int, spare: int, step: int, wishes: list[str]) -> None:
    rollout = Rollout("A", "B", size, size, 0, spare, min(step, size))
    for wish in wishes:
        if wish == "C" and rollout.old and rollout.new:
            continue
        rollout = rollout.towards(wish) if wish in (rollout.source, rollout.target) or wish == "C" else rollout
        if (step_now := rollout.next()) is not None:
            assert step_now.groups > 0 and step_now.version in (rollout.source, rollout.target)
            rollout = rollout.done(step_now)
        assert rollout.old >= 0 and 0 <= rollout.new <= size and rollout.old + rollout.new <= size + spare
    steps = 0
    while (step_now := rollout.next()) is not None:
        rollout, steps = rollout.done(step_now), steps + 1
        assert rollout.old + rollout.new <= size + spare
        assert steps <= 4 * size + 4
    assert (rollout.old, rollout.new) == (0, size)
