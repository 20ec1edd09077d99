"""Generated demand: the figures it was asked for, the same for the same seed, and the published scenarios."""

from collections import Counter
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.simulation.generate import POD_WEIGHTS, SCENARIOS, generate, kueue_baseline, pod_queue
from stellwerk.simulation.mix import Mix
from stellwerk.spec import load_fleet, parse_option

DAY = 86_400.0


def test_figures_of_a_mix():
    mix = Mix(jobs=20_000, span=10 * DAY, sizes={1: 3.0, 8: 1.0}, wave=0.8, median=600.0, accelerator="h100")
    trace = generate(mix, seed=3)
    sizes = Counter(job.chips for job in trace.jobs)
    assert sizes[8] / 20_000 == pytest.approx(0.25, abs=0.01)
    assert median(job.duration for job in trace.jobs) == pytest.approx(600, rel=0.05)
    assert Counter(job.queue for job in trace.jobs)["prod"] / 20_000 == pytest.approx(0.25, abs=0.01)
    assert len({job.user for job in trace.jobs}) == 16
    first_half = sum(job.submit % DAY < DAY / 2 for job in trace.jobs) / 20_000
    assert first_half == pytest.approx(0.5 + 0.8 / 3.14159, abs=0.01)
    assert 0 < 10 * DAY - trace.window < 600
    assert {job.accelerator for job in trace.jobs} == {"h100"}
    ratios = [job.estimate / job.duration for job in trace.jobs if job.estimate]
    assert min(ratios) >= 0.99 and max(ratios) <= 5.01 and sum(ratios) / len(ratios) == pytest.approx(3, abs=0.05)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.floats(1, 30 * DAY), st.floats(0, 1), st.integers(0, 2**63))
def test_any_mix_gives_a_trace(jobs: int, span: float, wave: float, seed: int):
    mix = Mix(jobs=jobs, span=span, wave=wave, estimates=None)
    trace = generate(mix, seed)
    submits = [job.submit for job in trace.jobs]
    assert len(submits) == jobs and submits == sorted(submits) and trace.window <= span
    assert all(job.duration > 0 and job.estimate is None for job in trace.jobs)
    assert trace == generate(mix, seed)


def test_seeds_differ():
    mix = Mix(jobs=50, span=DAY)
    assert generate(mix, 1) != generate(mix, 2)


def test_kueue_baseline():
    scenario = kueue_baseline()
    fleet = load_fleet(scenario.fleet)
    jobs = scenario.trace.jobs
    assert (len(jobs), len(fleet.queues), len(fleet.pools)) == (15_000, 30, 5)
    work = Counter[str]()
    for job in jobs:
        work[job.queue] += round(job.chips * job.duration * 1000)
    assert set(work.values()) == {1_320_000}
    assert scenario.trace.chip_seconds / sum(pool.units.max for pool in fleet.pools) == pytest.approx(66.0)
    assert Counter(job.priority for job in jobs) == {50: 10_500, 100: 3_000, 200: 1_500}
    assert scenario.trace.window == pytest.approx(49 * 1.2)


def test_pod_queue():
    scenario = pod_queue(seed=1)
    assert (scenario.window, load_fleet(scenario.fleet).pools[0].chips) == (50, 4096)
    cubes = Counter(job.chips // 64 for job in scenario.trace.jobs)
    for size, weight in POD_WEIGHTS.items():
        assert cubes[size] / 2000 == pytest.approx(weight / 100, abs=0.03)
    for option in {job.option for job in scenario.trace.jobs}:
        assert parse_option(option or "").chips == next(j.chips for j in scenario.trace.jobs if j.option == option)
    assert pod_queue(1) == scenario


def test_scenarios_are_named():
    assert all(make(0).name == name for name, make in SCENARIOS.items())
