"""Limits: below every real schedule (an exact optimum), and exactly what their relaxations allow."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.simulation.limits import limits, utilization_limit
from stellwerk.simulation.traces import Job

Rows = list[tuple[int, int, int]]

CHIPS = 4
SMALL = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(1, CHIPS)), min_size=1, max_size=5)
LARGER = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=25)


def jobs_of(rows: Rows) -> list[Job]:
    """Jobs of (submit, duration, chips), the first submit at 0."""
    first = min(submit for submit, _, _ in rows)
    return [Job(str(i), "u", "q", float(s - first), float(d), c) for i, (s, d, c) in enumerate(rows)]


def test_by_hand():
    found = limits([Job("a", "u", "q", 0, 10, 2), Job("b", "u", "q", 4, 2, 4), Job("c", "u", "q", 4, 6, 1)], 4)
    # Squashed: a works 0-4 and has 1 s left, which is done at 5, then c (1.5 s) at 6.5, b (2 s) at 8.5.
    assert found.completion_s == pytest.approx(max((5 + 2.5 + 4.5) / 3, 6.0))
    # Jointly: 5, 6.5, 8.5 against 6, 10, 10 with unlimited chips.
    assert found.joint_completion_s == pytest.approx((26 - 8) / 3)
    assert found.utilization == pytest.approx(0.5)
    assert (found.makespan_s, found.staggered_makespan_s) == (10.0, 10.0)


def test_one_window_of_nothing():
    burst = [Job("a", "u", "q", 0, 10, 3), Job("b", "u", "q", 0, 10, 2)]
    assert utilization_limit(burst[:1], 4) == 0.75
    assert utilization_limit(burst, 4) == 1.0
    with pytest.raises(ValueError, match="at least one job"):
        limits([], 4)


@settings(max_examples=60, deadline=None)
@given(LARGER, st.integers(1, 12))
def test_fluid_rule_is_the_greatest_flow(rows: Rows, chips: int):
    """Most work in the window is a maximum flow: job -> interval between submits -> chips of that interval."""
    graph = pytest.importorskip("ortools.graph.python.max_flow")
    jobs = jobs_of(rows)
    window = max(int(job.submit) for job in jobs)
    if window == 0:
        return
    times = sorted({int(job.submit) for job in jobs})
    flow = graph.SimpleMaxFlow()
    source, sink = 0, 1
    for place, (begin, end) in enumerate(pairwise(times), len(jobs) + 2):
        flow.add_arc_with_capacity(place, sink, chips * (end - begin))
        for index, job in enumerate(jobs, 2):
            if job.submit <= begin:
                flow.add_arc_with_capacity(index, place, min(job.chips, chips) * (end - begin))
    for index, job in enumerate(jobs, 2):
        flow.add_arc_with_capacity(source, index, job.chips * int(job.duration))
    assert flow.solve(source, sink) == flow.OPTIMAL
    expected = flow.optimal_flow() / (chips * window)
    found = utilization_limit(jobs, chips)
    assert found >= expected - 1e-9
    if all(job.chips <= chips for job in jobs):
        assert found == pytest.approx(expected, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(SMALL)
def test_no_schedule_beats_the_limits(rows: Rows):
    """CP-SAT finds the best schedule without preemption, for each goal; none is beyond its limit."""
    jobs = jobs_of(rows)
    found = limits(jobs, CHIPS)
    completion, makespan, busy = (best(jobs, goal) for goal in ("completion", "makespan", "busy"))
    assert completion / len(jobs) >= found.joint_completion_s - 1e-9
    assert found.joint_completion_s >= found.completion_s - 1e-9
    assert makespan >= found.staggered_makespan_s - 1e-9
    assert found.staggered_makespan_s >= found.makespan_s - 1e-9
    window = max(job.submit for job in jobs)
    if window:
        assert busy / (CHIPS * window) <= found.utilization + 1e-9


def best(jobs: list[Job], goal: str) -> float:
    """The exact optimum of one goal: sum of completions, makespan, or chip-seconds busy in the arrival window."""
    cp = pytest.importorskip("ortools.sat.python.cp_model")
    model = cp.CpModel()
    window = int(max(job.submit for job in jobs))
    horizon = window + int(sum(job.duration for job in jobs))
    starts = [model.new_int_var(int(job.submit), horizon, f"start-{job.name}") for job in jobs]
    ends = [start + int(job.duration) for start, job in zip(starts, jobs, strict=True)]
    spans = [
        model.new_fixed_size_interval_var(start, int(job.duration), job.name)
        for start, job in zip(starts, jobs, strict=True)
    ]
    model.add_cumulative(spans, [job.chips for job in jobs], CHIPS)
    if goal == "completion":
        model.minimize(sum(ends) - int(sum(job.submit for job in jobs)))
    elif goal == "makespan":
        last = model.new_int_var(0, 2 * horizon, "last")
        model.add_max_equality(last, ends)
        model.minimize(last)
    else:
        parts = []
        for start, job in zip(starts, jobs, strict=True):
            part = model.new_int_var(0, int(job.duration), f"part-{job.name}")
            late = model.new_int_var(0, horizon, f"late-{job.name}")
            model.add_max_equality(late, [window - start, 0])
            model.add(part <= late)
            parts.append(job.chips * part)
        model.maximize(sum(parts))
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp.OPTIMAL
    return solver.objective_value


def test_squashed_area_is_reached_by_jobs_as_wide_as_the_fleet():
    """Whole-fleet jobs submitted together, shortest first, are their own relaxation: the bounds are exact."""
    rows = [(0, duration, CHIPS) for duration in (5, 2, 9)]
    orders = permutations([duration for _, duration, _ in rows])
    exact = min(sum(sum(order[: i + 1]) for i in range(3)) for order in orders) / 3
    found = limits(jobs_of(rows), CHIPS)
    assert found.completion_s == pytest.approx(exact)
    assert found.makespan_s == 16.0
