"""Costs of interruption: nothing is worked twice for free, and nothing is lost that was saved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.simulation.costs import Checkpoints, Costs, RestartCosts, best_interval

SPANS = st.integers(0, 10_000)
CHECKPOINTS = st.builds(Checkpoints, st.none() | st.integers(1, 500), st.integers(0, 50))


def test_restart_costs_by_chips():
    assert [RestartCosts().of(chips) for chips in (1, 2, 8, 9, 4096)] == [7.0, 30.0, 30.0, 60.0, 60.0]
    assert RestartCosts((), 5.0).of(1) == 5.0


def test_by_hand():
    costs = Costs(checkpoints=Checkpoints(every=100.0, cost=10.0))
    assert costs.span(250, 8, resumed=False) == 270
    assert costs.span(250, 8, resumed=True) == 300
    assert costs.span(200, 1, resumed=False) == 210  # the last stretch ends the workload and is not saved
    assert costs.kept(109, 1, resumed=False) == 0
    assert costs.kept(110, 1, resumed=False) == 100
    assert costs.kept(250, 8, resumed=True) == 200
    assert costs.kept(260, 1, resumed=False, notice=30) == 210
    assert costs.kept(260, 1, resumed=False, notice=5) == 200
    assert Costs().kept(500, 1, resumed=False) == 0
    assert Costs().kept(500, 1, resumed=True, notice=1) == 492


@given(CHECKPOINTS, SPANS)
def test_the_work_of_a_span_is_the_span_of_the_work(checkpoints: Checkpoints, work: int):
    assert checkpoints.done(checkpoints.span(work)) == work


@given(CHECKPOINTS, SPANS, SPANS, st.integers(1, 64), st.booleans(), st.integers(0, 300))
def test_what_is_kept(checkpoints: Checkpoints, elapsed: int, more: int, chips: int, resumed: bool, notice: int):
    costs = Costs(checkpoints=checkpoints)
    kept = costs.kept(elapsed, chips, resumed, notice)
    assert 0 <= costs.kept(elapsed, chips, resumed) <= kept <= elapsed
    assert kept <= costs.kept(elapsed + more, chips, resumed, notice)
    assert costs.span(kept, chips, resumed) <= elapsed + costs.overhead(chips, resumed)


@pytest.mark.parametrize(("every", "cost"), [(0, 0), (-1, 0), (10, -1)])
def test_impossible_checkpoints(every: float, cost: float):
    with pytest.raises(ValueError, match="positive time apart"):
        Checkpoints(every, cost)


def test_best_interval():
    assert best_interval(mtbf=86_400, cost=12) == pytest.approx(1440)
