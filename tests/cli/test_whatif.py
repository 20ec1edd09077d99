"""`stellwerk whatif` on logs that are made here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))
from recorded_log import EPOCH, demand, events_of, pool, told, until, written

from stellwerk.scheduling.events import Woke
from stellwerk.scheduling.model import Fleet, Queue

FLEET = Fleet((pool(1, provision=60.0),), (Queue("default"), Queue("research", (("p100", 4),))))
DECLARED = {"accelerators": {"p100": {}}, "pools": []}
FIGURES = {
    "chips", "utilization", "wait_s", "completion_s", "started", "ended", "preemptions", "cost",
}  # fmt: skip
JOB = """\
name: train
kind: job
entrypoint: [python, train.py]
options: ["p100:4"]
runtime: 10m
"""


def log(home: Path, durations: list[float]) -> None:
    """The log of workloads one after the other, 700 s after the last but one began."""
    jobs = [(600.0 * i, took, demand(f"w{i}", 4, 2400.0)) for i, took in enumerate(durations)]
    events, _ = events_of(FLEET, jobs)
    now = sum(durations[:-2]) + 700.0
    written(home, [*until(events, now), Woke(EPOCH + now)], DECLARED)


@pytest.fixture(autouse=True)
def files(environment: None, tmp_path: Path, home: Path) -> None:
    """A log of twelve workloads that take half of what was said; one of them still runs and one waits."""
    log(home, [1200.0] * 12)
    (tmp_path / "train.yaml").write_text(JOB)


def test_a_change_beside_what_is(cli: Any, golden: Callable[[str, str], None]) -> None:
    done = cli("whatif", "w3", "--add", "nodes=+1", "--submit", "train.yaml*2")
    assert (done.code, done.err) == (0, "")
    golden("whatif.txt", done.out)


def test_json_has_the_keys_that_are_promised(cli: Any) -> None:
    found = json.loads(cli("whatif", "--add", "nodes=+1", "--json").out)
    assert set(found) == {
        "since", "now", "samples", "replayed", "drawn", "changes", "as_it_is", "with_the_change", "workloads_since",
        "workloads", "notes",
    }  # fmt: skip
    assert set(found["as_it_is"]) == set(found["with_the_change"]) == FIGURES
    assert found["changes"] == ["nodes: 1 -> 2 units"]
    assert (found["since"], found["workloads_since"]) == ("2023-11-14T22:13:20Z", found["now"])
    assert found["with_the_change"]["wait_s"]["mean"] < found["as_it_is"]["wait_s"]["mean"]
    (waiting,) = [each for each in found["workloads"] if each["state"] == "waiting"]
    assert set(waiting) == {"name", "state", "submitted", "as_it_is", "with_the_change"}
    assert set(waiting["as_it_is"]) == {"start", "finish"}
    assert waiting["with_the_change"]["start"] == {"p50": "2023-11-15T01:46:00Z", "p90": "2023-11-15T01:46:00Z"}
    assert waiting["as_it_is"]["start"]["p50"] > waiting["with_the_change"]["start"]["p50"]


def test_no_change_is_no_difference(cli: Any) -> None:
    found = json.loads(cli("whatif", "--json").out)
    assert found["as_it_is"] == found["with_the_change"]
    assert found["workloads"] and all(each["as_it_is"] == each["with_the_change"] for each in found["workloads"])
    assert found["changes"] == ["nothing is changed"]


def test_what_is_only_submitted_comes_now(cli: Any) -> None:
    found = json.loads(cli("whatif", "--submit", "train.yaml", "--submit", "train.yaml", "--json").out)
    assert found["since"] == found["now"]
    new = [each for each in found["workloads"] if each["as_it_is"] is None]
    assert [each["name"] for each in new] == ["train", "train-2"]
    assert new[0]["with_the_change"]["start"]["p50"] < new[1]["with_the_change"]["start"]["p50"]


def test_since_seed_and_samples(cli: Any, home: Path) -> None:
    def ask(*args: str) -> Any:
        return json.loads(cli("whatif", "--add", "nodes=2", "--json", *args).out)

    assert ask("--since", "2023-11-14T23:00:00Z")["since"] == "2023-11-14T23:00:00Z"
    assert ask("--since", "30m")["since"] == "2023-11-15T01:15:00Z"
    assert ask("--since", "now")["since"] == ask()["now"] == "2023-11-15T01:45:00Z"
    (home / "log.db").unlink()
    log(home, [600.0 + 100.0 * i for i in range(12)])
    assert ask("--samples", "3", "--seed", "1") == ask("--samples", "3", "--seed", "1")
    assert ask("--samples", "3", "--seed", "1") != ask("--samples", "3", "--seed", "2")


def test_quota_policy_and_preemption(cli: Any) -> None:
    args = ("--quota", "research:p100=+4", "--quota", "default:p100=0", "--policy", "sjf", "--preempt", "--json")
    assert json.loads(cli("whatif", *args).out)["changes"] == [
        "default: no -> 0 chips of p100",
        "research: 4 -> 8 chips of p100",
        "policy sjf instead of default",
        "the policy preempts",
    ]


def test_another_log(cli: Any, home: Path, tmp_path: Path) -> None:
    here = cli("whatif", "--add", "nodes=2").out
    moved = home.rename(tmp_path / "elsewhere")
    assert cli("whatif", "--add", "nodes=2", "--home", str(moved)).out == here
    assert cli("whatif", "--add", "nodes=2", "--log", str(moved / "log.db")).out == here


def test_nothing_known_is_said(cli: Any, home: Path) -> None:
    (home / "log.db").unlink()
    written(home, told((0, FLEET), (0, "nodes-0"), (0, demand("a")), (0, ("a", 1)), (5, demand("b"))), DECLARED)
    done = cli("whatif", "--add", "nodes=2")
    assert "note: nothing is known of how long 2 workloads would run, so no end; --assume 1h says how long" in done.out
    assert "note:" not in cli("whatif", "--add", "nodes=2", "--assume", "1h").out


def test_without_a_log_or_with_an_empty_one(cli: Any, home: Path, tmp_path: Path) -> None:
    (home / "log.db").unlink()
    done = cli("whatif", "--add", "nodes=2")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == f"stellwerk: {home}: there is no event log here; it begins with the first `stellwerk run` or `up`\n"
    )
    written(home, [])
    assert cli("whatif").err == f"stellwerk: {home}: the event log is empty; there is nothing to replay\n"
    (home / "log.db").unlink()
    written(home, [*told((0, FLEET), (0, "nodes-0")), Woke(EPOCH + 60)], DECLARED)
    done = cli("whatif")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"stellwerk: {home}: there is no workload in the event log; there is nothing to replay\n"
    found = json.loads(cli("whatif", "--submit", "train.yaml", "--json").out)
    assert found["workloads"][0]["with_the_change"]["start"]["p50"] == "2023-11-14T22:14:20Z"


def test_without_a_declared_fleet_a_submission_brings_its_pool(cli: Any, home: Path) -> None:
    (home / "log.db").unlink()
    written(home, told((0, FLEET), (0, "nodes-0"), (0, demand("a", runtime=60.0))))
    Path("cpu.yaml").write_text(JOB.replace("p100:4", "cpu:1"))
    found = json.loads(cli("whatif", "--submit", "cpu.yaml", "--json").out)
    new = found["workloads"][-1]
    assert new["with_the_change"]["start"]["p50"] == found["now"]
    assert found["with_the_change"]["chips"] > found["as_it_is"]["chips"]


WRONG = [
    (("--add", "nodes"), '--add: "nodes" changes no pool; write for example POOL=+2, POOL=-1 or POOL=4'),
    (("--add", "node=+1"), '--add: the fleet has no pool "node"; it has nodes; did you mean nodes?'),
    (("--add", "nodes=-2"), "--add: nodes has 1 units; -2 leaves -1"),
    (("--quota", "reserch:p100=8"), '--quota: the fleet has no queue "reserch"; it has default or research; did you'),
    (("--policy", "ffio"), "no such policy: ffio; allowed: fifo, sjf, backfill, default; did you mean fifo?"),
    (("--submit", "none.yaml"), "none.yaml: error["),
    (("--submit", "train.yaml*0"), "--submit train.yaml*0: nothing is submitted no times; allowed are 1 to 9999"),
    (("--since", "yore"), "--since: 'yore' is no time; allowed: now, start, 2026-01-31T12:00Z, 30m, 2h, 7d"),
    (("--assume", "long"), '--assume: "long" is not a duration'),
    (("--samples", "0"), "--samples is 0; it must be 1 to 10000"),
    (("--seed", "-1"), "--seed is -1; it must be 0 or more"),
    (("--log", "a", "--home", "b"), "--home and --log both name a log; give one of them"),
    (("--log", "none.db"), "none.db: error[no-such-file]: there is no event log here"),
    (("--log", "train.yaml"), "train.yaml: error[unreadable]: the event log cannot be read"),
    (("w33",), "no workload is named w33; did you mean w3?"),
]


@pytest.mark.parametrize(("args", "found"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_wrong_input_is_told_and_is_code_2(cli: Any, args: tuple[str, ...], found: str) -> None:
    done = cli("whatif", *args)
    assert (done.code, done.out) == (2, "")
    assert found in done.err
