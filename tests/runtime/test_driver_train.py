"""Kind `train` with `module:function`: the loop under Ray Train, its reports, its failure, the next attempt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stellwerk.runtime.context import VARIABLE

LOOP = """
import pathlib, tempfile
import ray.train

def loop():
    last = ray.train.get_checkpoint()
    start = int(pathlib.Path(last.path, "step").read_text()) if last else 0
    for step in range(start + 1, 4):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "step").write_text(str(step))
            ray.train.report({"step": step, "loss": 1 / step}, checkpoint=ray.train.Checkpoint.from_directory(folder))
        if step == 2 and start == 0:
            raise ValueError("a bad batch")
"""


def drive(folder: Path, attempt: int) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    reports, outcome = folder / f"reports-{attempt}", folder / f"outcome-{attempt}"
    context = {
        "name": "w",
        "attempt": attempt,
        "kind": "train",
        "units": [],
        "accelerator": "cpu",
        "topology": None,
        "slices": 1,
        "hosts": 1,
        "chips": 1,
        "chips_per_host": 1,
        "emulated": True,
        "option": "cpu:1",
        "checkpoint_dir": str(folder / "checkpoints"),
        "drain_file": str(folder / "drain"),
        "reports_file": str(reports),
    }
    env = os.environ | {VARIABLE: json.dumps(context), "RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "stellwerk.runtime.driver", "--outcome", str(outcome), "--", "work:loop"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in reports.read_text().splitlines()] if reports.exists() else []
    assert outcome.exists(), done.stderr
    return done.returncode, json.loads(outcome.read_text()), lines


@pytest.mark.ray
def test_a_failed_loop_is_resumed_by_the_next_attempt(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(LOOP)
    code, outcome, first = drive(tmp_path, 1)
    assert (code, outcome["cause"], outcome["message"]) == (1, "user-error", "ValueError: a bad batch")
    assert [line["step"] for line in first] == [1, 2]
    assert Path(first[-1]["checkpoint"], "step").read_text() == "2"

    code, outcome, second = drive(tmp_path, 2)
    assert (code, outcome["cause"]) == (0, None)
    assert [(line["step"], line["metrics"]["loss"]) for line in second] == [(3, pytest.approx(1 / 3))]
