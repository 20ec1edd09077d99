"""`stellwerk size` on traces that are made here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FLEET = """\
accelerators: {p100: {price: 1.46}}
pools:
  - {name: philly, accelerator: p100, chips: 8, units: 2}   # what we have
"""
TRACE = "job_id,submit_time,num_gpu,duration,user,vc\n" + "".join(
    f"{i},{i * 30},{(1, 4, 8, 16)[i % 4]},{(60, 600, 90, 240)[i % 4]},ann,vc-{i % 2}\n" for i in range(12)
)


@pytest.fixture(autouse=True)
def files(environment: None, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "trace.csv").write_text(TRACE)


def size(cli: Any, goal: str, *args: str) -> Any:
    return cli("size", "--fleet", "fleet.yaml", "--trace", "trace.csv", "--goal", goal, *args)


def test_the_cheapest_fleet(cli: Any, golden: Callable[[str, str], None]) -> None:
    done = size(cli, "p90 wait < 5m and utilization > 50%", "--out", "out")
    assert (done.code, done.err) == (0, "")
    golden("size.txt", done.out)
    assert Path("out/fleet.yaml").read_text() == FLEET.replace("units: 2", "units: 4")
    assert (
        json.loads(cli("simulate", "--fleet", "out/fleet.yaml", "--trace", "trace.csv", "--json").out)["wait_s"]["p90"]
        < 300
    )


def test_json_has_the_keys_that_are_promised(cli: Any) -> None:
    done = size(cli, "max wait < 1m", "--policy", "fifo", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert set(found) == {"goal", "met", "fleet", "gives", "figures", "next_smaller", "nearest", "bounds", "candidates"}
    assert set(found["fleet"]) == {"pools", "chips", "price_per_hour"}
    assert found["fleet"]["price_per_hour"] == pytest.approx(found["fleet"]["chips"] * 1.46)
    assert found["gives"][0]["met"] and found["met"] and found["gives"][0]["value"] < 60
    (smaller,) = found["next_smaller"]
    assert smaller["pools"][0]["units"] == found["fleet"]["pools"][0]["units"] - 1
    assert not smaller["met"] and smaller["gives"][0]["short"] == smaller["gives"][0]["value"] - 60
    assert set(found["bounds"]) == {"philly"}


def test_no_fleet_is_code_1(cli: Any, golden: Callable[[str, str], None]) -> None:
    done = size(cli, "max wait < 1s", "--pool", "philly=2..3", "--out", "out")
    assert (done.code, done.err) == (1, "")
    golden("size-none.txt", done.out)
    assert not Path("out/fleet.yaml").exists() and Path("out/summary.json").exists()
    assert json.loads(size(cli, "max wait < 1s", "--pool", "philly=2", "--json").out)["fleet"] is None


def test_a_utilization_that_cannot_be_reached(cli: Any) -> None:
    done = size(cli, "max wait < 1s and utilization > 99%")
    assert done.code == 1
    assert "The nearest, philly 7, misses utilization > 99%: " in done.out
    assert "widened" not in done.out


WRONG = [
    (
        ("p90 wiat < 5m",),
        '--goal:1:5: error[goal]: "wiat" is not a measure; allowed are wait or completion; did you mean',
    ),
    (("max wait < 5m for vc-3",), "the trace has no work for vc-3; allowed is default"),
    (("max wait < 5m", "--pool", "phily=1..4"), '--pool: the fleet has no pool "phily"; it has philly; did you mean'),
    (("max wait < 5m", "--pool", "philly=4..1"), "--pool: philly=4..1: the least is more than the most"),
    (("max wait < 5m", "--pool", "philly=a"), '--pool: "philly=a" bounds no pool; write for example NAME=2..16, or'),
    (("max wait < 5m", "--policy", "x"), "no such policy: x; allowed: fifo, sjf, backfill, default"),
    (("max wait < 5m", "--estimates", "x"), "'x' are no estimates"),
    (("max wait < 5m", "--seed", "-1"), "--seed is -1"),
    (("max wait < 5m", "--out", "trace.csv"), "trace.csv: this is not a folder"),
    (("max wait < 5m", "--trace", "none.csv"), "none.csv: error[no-such-file]"),
    (("max wait < 5m", "--fleet", "none.yaml"), "none.yaml: error["),
    (("max wait < 5m", "--failures", "none.yaml"), "none.yaml: error["),
]


@pytest.mark.parametrize(("args", "found"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_wrong_input_is_told_and_is_code_2(cli: Any, args: tuple[str, ...], found: str) -> None:
    done = size(cli, *args)
    assert (done.code, done.out) == (2, "")
    assert found in done.err
