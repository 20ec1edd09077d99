"""`stellwerk simulate` on traces that are made here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FLEET = """\
accelerators: {p100: {memory: 16GiB, price: 1.46}}
pools:
  - {name: philly, accelerator: p100, chips: 8, units: 2}
"""
TRACE = "job_id,submit_time,num_gpu,duration,user,vc\n" + "".join(
    f"{i},{i * 30},{(1, 4, 8, 16)[i % 4]},{(60, 600, 90, 240)[i % 4]},ann,vc-{i % 2}\n" for i in range(12)
)
KEYS = {
    "workloads", "finished", "utilization", "makespan_s", "wait_s", "completion_s", "preemptions", "cost", "wall_s",
    "workloads_per_s", "limits",
}  # fmt: skip
SPREAD = ["mean", "p50", "p90", "p99", "max"]


@pytest.fixture(autouse=True)
def files(environment: None, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "trace.csv").write_text(TRACE)


def simulate(cli: Any, *args: str) -> Any:
    return cli("simulate", "--fleet", "fleet.yaml", "--trace", "trace.csv", *args)


def timeless(text: str) -> str:
    return re.sub(r"( +)\d+\.\d\d s", lambda found: " " * (len(found[0]) - 3) + "T s", text)


def test_json_has_the_keys_that_are_promised(cli: Any) -> None:
    done = simulate(cli, "--json")
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert set(found) >= KEYS
    assert list(found["wait_s"]) == list(found["completion_s"]) == SPREAD
    assert set(found["limits"]) >= {"utilization", "completion_s", "makespan_s"}
    assert (found["workloads"], found["finished"], found["preemptions"]) == (12, 12, 0)
    assert 0 < found["utilization"] <= found["limits"]["utilization"]
    assert found["wait_s"]["mean"] > 0


def test_figures_for_people(cli: Any, golden: Callable[[str, str], None]) -> None:
    done = simulate(cli, "--policy", "fifo")
    assert (done.code, done.err) == (0, "")
    golden("simulate.txt", timeless(done.out))


def test_policies_side_by_side(cli: Any, golden: Callable[[str, str], None]) -> None:
    done = simulate(cli, "--policy", "fifo", "--policy", "sjf", "--preempt", "--out", "out")
    assert (done.code, done.err) == (0, "")
    golden("simulate-two.txt", timeless(done.out))
    told = json.loads(Path("out/summary.json").read_text())
    assert [each["name"] for each in told] == ["fifo", "sjf"]
    assert Path("out/sjf/workloads.csv").read_text().count("\n") == 13
    assert Path("out/report.html").stat().st_size > 1000


def test_fleets_side_by_side(cli: Any) -> None:
    Path("large.yaml").write_text(FLEET.replace("units: 2", "units: 9"))
    done = cli("simulate", "--fleet", "fleet.yaml", "--fleet", "large.yaml", "--trace", "trace.csv", "--json")
    small, large = json.loads(done.out)
    assert (small["name"], large["name"]) == ("fleet", "large")
    assert large["wait_s"]["max"] == 0 < small["wait_s"]["max"]


def test_failures_and_seeds(cli: Any) -> None:
    Path("breaks.yaml").write_text("hosts: {mtbf: 200s, mttr: 30s}\n")
    first, again, other = (
        json.loads(simulate(cli, "--failures", "breaks.yaml", "--seed", seed, "--json").out) for seed in "778"
    )
    for each in (first, again, other):
        del each["wall_s"], each["workloads_per_s"]
    assert first == again != other
    assert first["failed"]["hosts"] > 0


def test_the_best_time_between_checkpoints_stands_beside_the_declared_one(cli: Any) -> None:
    Path("breaks.yaml").write_text("hosts: {mtbf: 200s, mttr: 30s}\ncheckpoints: {every: 60s, cost: 1s}\n")
    done = simulate(cli, "--failures", "breaks.yaml")
    assert done.code == 0
    assert re.search(r"^time between checkpoints \(best\) +1m 00s \(\d+s\)$", done.out, re.MULTILINE)
    assert "time between" not in simulate(cli).out


WRONG = [
    (("--policy", "fiffo"), "no such policy: fiffo; allowed: fifo, sjf, backfill, default; did you mean fifo?"),
    (("--estimates", "2-1"), "'2-1' are no estimates; allowed: exact, user, or a range of factors as in 1-5"),
    (("--accelerator", "h100"), "--accelerator: fleet.yaml has no h100; it has p100"),
    (("--seed", "-1"), "--seed is -1; it must be 0 or more"),
    (("--out", "trace.csv"), "trace.csv: this is not a folder"),
    (("--trace", "none.csv"), "none.csv: error[no-such-file]: there is no such file"),
    (("--fleet", "none.yaml"), "none.yaml: error["),
    (("--failures", "none.yaml"), "none.yaml: error["),
]


@pytest.mark.parametrize(("args", "told"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_wrong_input_is_told_and_is_code_2(cli: Any, args: tuple[str, ...], told: str) -> None:
    done = simulate(cli, *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_trace_that_only_counts_needs_to_know_what(cli: Any) -> None:
    more = "  - {name: other, accelerator: h100, chips: 8, units: 1}\n"
    Path("fleet.yaml").write_text(FLEET + more)
    done = simulate(cli)
    assert done.code == 2
    assert "trace.csv: it only counts chips, and fleet.yaml has p100, h100; say which with --accelerator" in done.err
    assert json.loads(simulate(cli, "--accelerator", "h100", "--json").out)["pools"][0]["busy_s"] == 0


def test_an_empty_trace(cli: Any) -> None:
    Path("trace.csv").write_text(TRACE.splitlines()[0] + "\n")
    done = simulate(cli)
    assert (done.code, done.err) == (2, "stellwerk: trace.csv: there is no workload in it\n")


def test_forecasts(cli: Any) -> None:
    done = simulate(cli, "--forecast", "--estimates", "1-5", "--out", "out")
    assert (done.code, done.err) == (0, "")
    assert "started within 10 minutes of it" in done.out
    head, *rows = Path("out/forecasts.csv").read_text().splitlines()
    assert head == "name,at_s,p50_s,p90_s,start_s"
    assert {row.split(",")[0] for row in rows} == {str(number) for number in range(12)}
    told = json.loads(Path("out/summary.json").read_text())["forecast"]
    assert told["all"]["starts"] == 12 > told["waited"]["starts"] > 0
    assert set(told["waited"]["error_s"]) == {"under 10 min", "under 1 h", "under 6 h", "under 1 d", "more"}


DOCS = Path(__file__).parents[2] / "docs" / "simulation.md"
PLANNING = Path(__file__).parents[2] / "examples" / "planning"


def documented(name: str) -> str:
    """The block of the documentation that begins with this file name."""
    (block,) = re.findall(rf"^```yaml\n# {re.escape(name)}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return block


def test_generated_demand_as_documented(cli: Any) -> None:
    Path("fleet.yaml").write_text(documented("fleet.yaml"))
    Path("demand.yaml").write_text(documented("demand.yaml"))
    args = ("simulate", "--fleet", "fleet.yaml", "--trace", "demand.yaml", "--estimates", "user", "--json")
    first, again, other = (json.loads(cli(*args, "--seed", seed).out) for seed in "778")
    assert (first["workloads"], first["finished"], first["trace"]) == (2000, 2000, "demand.yaml")
    assert first["wait_s"] == again["wait_s"] and first["completion_s"] == again["completion_s"]
    assert first["completion_s"] != other["completion_s"]


def test_the_example_to_plan_with(cli: Any) -> None:
    files = ("--fleet", str(PLANNING / "fleet.yaml"), "--trace", str(PLANNING / "demand.yaml"))
    done = cli("simulate", *files, "--json")
    told = json.loads(done.out)
    assert (done.code, done.err, told["finished"]) == (0, "", 600)
    done = cli("size", *files, "--goal", "p90 wait < 30m", "--pool", "nodes=3..11", "--json")
    assert (done.code, json.loads(done.out)["met"]) == (0, True)


@pytest.mark.parametrize("command", [("simulate",), ("size", "--goal", "p90 wait < 1h")])
def test_wrong_demand_is_told_and_is_code_2(cli: Any, command: tuple[str, ...]) -> None:
    Path("demand.yaml").write_text("generate:\n  jobs: 20\n  spann: 1d\n")
    done = cli(*command, "--fleet", "fleet.yaml", "--trace", "demand.yaml")
    assert (done.code, done.out) == (2, "")
    assert 'demand.yaml:3:3: error[unknown-key]: unknown key "spann"' in done.err
    assert "did you mean span?" in done.err
    Path("demand.yaml").write_text("generate: {jobs: 20, span: 1d}\n")
    done = cli(*command, "--fleet", "fleet.yaml", "--trace", "demand.yaml", "--seed", "-1")
    assert (done.code, done.err) == (2, "stellwerk: --seed is -1; it must be 0 or more\n")
