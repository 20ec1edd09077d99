"""Replays of small traces: what must hold of every one, and figures that can be worked out by hand."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduling.model import PolicyName
from stellwerk.simulation.failures import Failures, load_failures
from stellwerk.simulation.outcome import Outcome, busy_share, distribution, quantile
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.report import write_comparison, write_report
from stellwerk.simulation.submissions import Estimates
from stellwerk.simulation.traces.model import Job, Trace, make_trace
from stellwerk.spec import load_fleet

POLICIES: tuple[PolicyName, ...] = ("fifo", "sjf", "backfill", "default")
UNIT = 4


def fleet(units: Any = 2, **more: Any) -> Any:
    pool = {"name": "nodes", "accelerator": "p100", "chips": UNIT, "units": units, **more.pop("pool", {})}
    return load_fleet({"accelerators": {"p100": {"price": 2.0}}, "pools": [pool], **more})


def trace(*rows: tuple[float, float, int], **more: Any) -> Trace:
    """Jobs of (submit, duration, chips), named by their place."""
    return make_trace("small", [Job(f"j{i}", "ann", "default", *row, **more) for i, row in enumerate(rows)])


def times(outcome: Outcome) -> list[tuple[float | None, float | None]]:
    return [(job.start, job.end) for job in outcome.jobs]


ROWS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 8, 12])), min_size=1, max_size=25
)
FAILURES = {
    "hosts": {"mtbf": "200s", "mttr": "20s"},
    "spot": {"every": "300s", "notice": "5s"},
    "stock_outs": {"every": "200s", "last": "30s"},
    "checkpoints": {"every": "5s", "cost": "1s"},
    "restart": {"more": "2s"},
}


def crowding(outcome: Outcome) -> Iterator[tuple[str, int]]:
    """The most chips of each unit that were held at one time."""
    changes: dict[str, list[tuple[float, int, int]]] = {}
    for span in outcome.spans:
        for grant in span.grants:
            if span.ended > span.began:
                changes.setdefault(grant.unit, []).append((span.began, 1, grant.chips))
                changes[grant.unit].append((span.ended, 0, -grant.chips))
    for unit, each in changes.items():
        held = most = 0
        for _, _, chips in sorted(each):
            held += chips
            most = max(most, held)
        assert held == 0
        yield unit, most


def check(outcome: Outcome, trace: Trace) -> None:
    """What holds of every replay on three units of four chips."""
    assert [job.demand.name for job in outcome.jobs] == [job.name for job in trace.jobs]
    for unit, most in crowding(outcome):
        assert most <= UNIT, unit
    for span in outcome.spans:
        assert span.chips == span.job.demand.options[0].chips
        assert span.ended >= span.began >= span.job.at
    attempts = Counter(span.job.demand.key for span in outcome.spans)
    for job in outcome.jobs:
        own = [span for span in outcome.spans if span.job is job]
        assert attempts[job.demand.key] == len(own) >= 1
        assert job.start == own[0].began
        assert job.end == own[-1].ended
        assert all(one.ended <= other.began for one, other in pairwise(own))
        held = sum(span.ended - span.began for span in own)
        assert job.busy == pytest.approx(held)
        assert held - sum(span.overhead for span in own) >= job.duration - 1e-6
    assert 0 <= outcome.utilization <= 1 + 1e-9


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, policy=st.sampled_from(POLICIES), preempt=st.booleans(), seed=st.integers(0, 3))
def test_every_workload_ends_once_and_no_unit_is_overfull(
    rows: list[tuple[float, float, int]], policy: PolicyName, preempt: bool, seed: int
) -> None:
    demand = trace(*rows)
    how = Settings(policy, preempt, Estimates.parse("1-3"), seed=seed)
    outcome = replay(fleet(3), demand, how)
    check(outcome, demand)
    assert preempt or outcome.preemptions == 0
    assert len(outcome.spans) == len(rows) + outcome.preemptions
    if outcome.limits is not None and outcome.window > 0:
        assert outcome.utilization <= outcome.limits.utilization + 1e-6
        assert outcome.ended >= outcome.limits.staggered_makespan_s - 1e-6
        assert distribution(outcome.completions)["mean"] >= outcome.limits.joint_completion_s - 1e-6  # type: ignore[operator]


@settings(max_examples=25, deadline=None)
@given(
    rows=ROWS, policy=st.sampled_from(POLICIES), market=st.sampled_from(["on-demand", "spot"]), seed=st.integers(0, 9)
)
def test_it_all_holds_with_failures_and_units_that_come_and_go(
    rows: list[tuple[float, float, int]], policy: PolicyName, market: str, seed: int
) -> None:
    demand = trace(*rows)
    pool = {"market": market, "provision": "7s", "idle": "5s"}
    failures: Failures = load_failures(FAILURES)
    outcome = replay(fleet({"min": 1, "max": 3}, pool=pool), demand, Settings(policy, failures=failures, seed=seed))
    check(outcome, demand)
    for uses in outcome.uses.values():
        assert all(seconds >= 0 for seconds in uses.values())
        assert sum(uses.values()) <= 3 * outcome.ended + 1e-6


@pytest.mark.parametrize("failures", [None, FAILURES], ids=["whole", "failing"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_gives_the_same_replay(policy: PolicyName, failures: dict[str, Any] | None) -> None:
    rng = random.Random(7)
    demand = trace(*((rng.randrange(200), rng.randrange(1, 90), rng.choice([1, 2, 4, 8])) for _ in range(120)))
    how = Settings(policy, True, Estimates.parse("1-5"), load_failures(failures) if failures else None, seed=3)
    one, other = (replay(fleet(3), demand, how) for _ in range(2))
    assert times(one) == times(other)
    assert [span.grants for span in one.spans] == [span.grants for span in other.spans]
    drop = {"wall_s", "workloads_per_s"}
    assert [{k: v for k, v in o.summary().items() if k not in drop} for o in (one, other)] == [
        {k: v for k, v in one.summary().items() if k not in drop}
    ] * 2


@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_fifo_starts_in_the_order_of_submission(rows: list[tuple[float, float, int]]) -> None:
    starts = [job.start for job in replay(fleet(3), trace(*rows), Settings("fifo")).jobs]
    assert starts == sorted(starts)  # type: ignore[type-var]


# Two units of four chips; each case by hand.
BLOCKED = ((0, 10, 4), (1, 10, 8), (2, 5, 4), (3, 20, 4))


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("fifo", [0, 10, 20, 20]),  # the second needs both units, and nothing passes it
        ("backfill", [0, 10, 2, 20]),  # 5 s fit before 10, 20 s do not
        ("default", [0, 10, 2, 20]),
        ("sjf", [0, 10, 2, 20]),
    ],
)
def test_policies_by_hand(policy: PolicyName, starts: list[float]) -> None:
    outcome = replay(fleet(), trace(*BLOCKED), Settings(policy))
    assert [job.start for job in outcome.jobs] == starts


def test_figures_by_hand() -> None:
    outcome = replay(fleet(1), trace((0, 10, 4), (5, 10, 4)), Settings("fifo"))
    found = outcome.summary()
    assert (found["workloads"], found["finished"], found["makespan_s"]) == (2, 2, 20)
    assert found["wait_s"] == {"mean": 2.5, "p50": 2.5, "p90": 4.5, "p99": 4.95, "max": 5}
    assert found["completion_s"]["mean"] == 12.5
    assert found["utilization"] == found["limits"]["utilization"] == 1
    assert found["limits"]["makespan_s"] == 20
    assert found["cost"] == pytest.approx(20 / 3600 * 4 * 2.0)
    assert outcome.uses["nodes"]["busy"] == 20


def test_restarts_are_charged() -> None:
    """A short workload stops a long one, which then pays 30 s for its 4 chips."""
    outcome = replay(fleet(1), trace((0, 1000, 4), (100, 10, 4)), Settings("sjf", preempt=True))
    assert times(outcome) == [(0, 1040), (100, 110)]
    assert (outcome.preemptions, outcome.jobs[0].busy) == (1, 1030)
    assert outcome.uses["nodes"]["starting"] == 30
    assert outcome.uses["nodes"]["busy"] == 1010


def test_estimates() -> None:
    demand = trace((0, 100, 1), (0, 100, 1), estimate=300.0)

    def runtimes(text: str, seed: int = 0) -> list[float | None]:
        outcome = replay(fleet(), demand, Settings(estimates=Estimates.parse(text), seed=seed))
        return [job.demand.runtime for job in outcome.jobs]

    assert runtimes("exact") == [100, 100]
    assert runtimes("user") == [300, 300]
    assert all(100 <= value <= 500 for value in runtimes("1-5") if value is not None)
    assert runtimes("1-5") == runtimes("1-5") != runtimes("1-5", seed=1)
    for wrong in ("", "5-1", "0-2", "guess", "1-"):
        with pytest.raises(ValueError, match="allowed: exact, user"):
            Estimates.parse(wrong)


def test_queues_of_the_fleet_take_work_by_queue_or_user() -> None:
    jobs = [Job("a", "ann", "vc", 0, 1, 1), Job("b", "bob", "lab", 0, 1, 1), Job("c", "eve", "vc", 0, 1, 1)]
    queues = {"lab": {}, "ann": {}}
    outcome = replay(fleet(queues=queues), make_trace("t", jobs))
    assert [job.demand.queue for job in outcome.jobs] == ["ann", "lab", "default"]
    assert len(outcome.done) == 3
    assert [job.demand.queue for job in replay(fleet(), make_trace("t", jobs)).jobs] == ["default"] * 3


def test_what_can_never_run_is_counted_but_never_ends() -> None:
    outcome = replay(fleet(), trace((0, 10, 64), (0, 10, 4)))
    found = outcome.summary()
    assert (found["workloads"], found["finished"], found["wait_s"]["max"]) == (2, 1, 0)
    assert found["limits"]["makespan_s"] == 10


def test_tpus_take_whole_slices() -> None:
    declared = load_fleet({"pools": [{"name": "v6e", "accelerator": "tpu-v6e", "topology": "4x4", "units": 3}]})
    jobs = [Job("a", "u", "q", 0, 5, 20), Job("b", "u", "q", 0, 5, 16, option="v6e:4x4")]
    outcome = replay(declared, make_trace("t", jobs))
    assert [span.chips for span in outcome.spans] == [32, 16]
    assert [job.demand.options[0].short for job in outcome.jobs] == ["tpu-v6e:4x4*2", "tpu-v6e:4x4"]


def test_several_accelerators_have_limits_together() -> None:
    pools = [{"name": name, "accelerator": name, "chips": 4, "units": 1} for name in ("h100", "l4")]
    declared = load_fleet({"pools": pools})
    jobs = [Job("a", "u", "q", 0, 10, 4, accelerator="h100"), Job("b", "u", "q", 10, 10, 2, accelerator="l4")]
    found = replay(declared, make_trace("t", jobs)).summary()
    assert found["utilization"] == found["limits"]["utilization"] == 0.5
    assert found["limits"]["completion_s"] == 10
    with pytest.raises(ValueError, match="h100, l4"):
        replay(declared, trace((0, 1, 1)))


def test_pools_start_at_their_minimum_and_grow() -> None:
    outcome = replay(fleet({"min": 1, "max": 2}, pool={"provision": "60s", "idle": "10s"}), trace((0, 100, 8)))
    assert times(outcome) == [(60, 160)]
    assert outcome.uses["nodes"] == {"busy": 200, "starting": 0, "idle": 60, "broken": 0, "provisioning": 60}
    assert outcome.cost == pytest.approx(260 / 3600 * 4 * 2.0)


def test_a_lost_host_costs_the_work_since_the_checkpoint() -> None:
    failures = load_failures({"hosts": {"mtbf": "500s", "mttr": "50s"}, "checkpoints": {"every": "20s", "cost": "1s"}})
    outcome = replay(fleet(1), trace((0, 1000, 4)), Settings(failures=failures, seed=1))
    job = outcome.jobs[0]
    assert job.end is not None
    assert outcome.failed["hosts"] == len(outcome.spans) - 1 > 0
    assert outcome.uses["nodes"]["broken"] > 0
    assert job.busy > 1000 + 1000 // 20 - 2


def test_the_files_of_a_report(tmp_path: Path) -> None:
    demand = trace(*BLOCKED)
    one = replay(fleet(), demand, Settings("fifo"))
    write_report(one, tmp_path / "one")
    with (tmp_path / "one" / "workloads.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["name", "queue", "submit_s", "start_s", "end_s", "chips", "attempts", "busy_s", "pool"]
    assert list(rows[1].values()) == ["j1", "default", "1", "10", "20", "8", "1", "10", "nodes"]
    assert json.loads((tmp_path / "one" / "summary.json").read_text()) == one.summary()
    drawn = sorted(file.stem for file in (tmp_path / "one").glob("*.svg"))
    assert drawn == ["completions", "cost", "units", "utilization", "waits"]
    for file in (tmp_path / "one").glob("*.svg"):
        assert ElementTree.parse(file).getroot().tag.endswith("svg")
    page = (tmp_path / "one" / "report.html").read_text()
    assert page.count("<svg") == 5
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    write_comparison([("fifo", one), ("default", replay(fleet(), demand))], tmp_path / "both")
    both = json.loads((tmp_path / "both" / "summary.json").read_text())
    assert [each["name"] for each in both] == ["fifo", "default"]
    assert (tmp_path / "both" / "default" / "workloads.csv").exists()


def test_busy_share_adds_up() -> None:
    outcome = replay(fleet(3), trace(*((i, 17 + i % 5, 1 + i % 8) for i in range(40))))
    shares = busy_share(outcome, 37)
    held = sum(span.chips * (span.ended - span.began) for span in outcome.spans)
    assert sum(share for _, share in shares) / 37 * outcome.ended * outcome.chips == pytest.approx(held)
    assert all(-1e-9 <= share <= 1 + 1e-9 for _, share in shares)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_quantiles_are_between_the_least_and_the_most(values: list[float]) -> None:
    ordered = sorted(values)
    assert quantile(ordered, 0) == ordered[0]
    assert quantile(ordered, 1) == ordered[-1]
    assert ordered[0] <= quantile(ordered, 0.5) <= ordered[-1]
