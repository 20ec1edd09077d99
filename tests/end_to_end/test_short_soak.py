"""A few random kills, by the same command as the long soak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from end_to_end_home import Home

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def test_nothing_is_lost_doubled_or_left_behind(home: Home) -> None:
    out = home.folder / "soak.json"
    command = [sys.executable, str(SOAK), "--kills", "6", "--workloads", "2", "--seed", "6", "--out", str(out)]
    env = home.env | {"STEPS": "20", "TMPDIR": str(home.folder)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert sum(result["kills"].values()) == 6
    assert result["problems"] == []
