"""The benchmarks' own arithmetic, and small runs of them: fairness, no starvation, Kueue's generator, a large fleet."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks import fairness, kueue, scale


def test_jains_index() -> None:
    assert fairness.jain([2.0, 2.0, 2.0]) == 1.0
    assert fairness.jain([1.0, 0.0, 0.0]) == pytest.approx(1 / 3)


def test_tenants_get_their_shares_while_the_fleet_is_full() -> None:
    found = fairness.shares("small middle large", "none", False, 1, days=4.0)
    assert found.index >= fairness.FLOOR
    assert sum(found.share.values()) == pytest.approx(1.0)


def test_every_delay_is_within_its_bound() -> None:
    nearest, counts, beyond = fairness.starvation(range(100, 140))
    assert not beyond
    assert sum(counts.values()) > 500 and all(each.delay <= each.bound for each in nearest)


@pytest.mark.parametrize("seed", [64, 1401])
def test_owners_and_borrowers_do_not_wait_for_each_other_in_a_circle(seed: int) -> None:
    """In these every class was parked for the sake of another, and the fleet stood idle."""
    found = fairness.delays(fairness.random_case(seed), validate=True)
    assert all(each.delay < math.inf for each in found)


def test_a_bound_counts_only_those_who_may_come_before() -> None:
    case = next(case for seed in range(100) if (case := fairness.random_case(seed)).label == "backfill")
    first = min(case.jobs, key=lambda job: (-job.demand.priority, job.at))
    later = replace(case, jobs=(*case.jobs, replace(case.jobs[-1], at=case.jobs[-1].at + 1e6)))
    assert fairness.bound(later, first) == fairness.bound(case, first)
    assert fairness.bound(later, later.jobs[-1]) > fairness.bound(case, first)


def test_kueues_generator() -> None:
    assert len(kueue.jobs(True)) == 15_000
    found = kueue.run("default", True, True, share=0.04)
    assert (found.workloads, found.unfinished) == (600, 0)
    assert 0 < found.decisions <= found.calls
    slow = replace(found, makespan_s=kueue.MOST_MAKESPAN + 1, decisions_per_s=1.0)
    assert len(kueue.missed([slow])) == 2


def test_decisions_on_a_fleet_are_measured(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    for name, value in (("POOLS", 3), ("UNITS", 4), ("QUEUES", 6), ("COHORTS", 2)):
        monkeypatch.setattr(scale, name, value)
    few, many = scale.run(20, False, 40), scale.run(60, True, 40)
    assert few.started > 0 and few.median_ms <= few.p99_ms <= few.most_ms
    results = [replace(few, waiting=1000, median_ms=0.1), replace(many, waiting=100_000, median_ms=0.15)]
    grown, logarithm = scale.growth(results)
    assert (grown, logarithm) == (pytest.approx(1.5), pytest.approx(5 / 3))
    assert "growth" not in " ".join(scale.missed(results))
    assert "growth" in " ".join(scale.missed([results[0], replace(results[1], median_ms=0.2)]))
    assert scale.plot(results).startswith("<svg") and "log n" in scale.plot(results)
