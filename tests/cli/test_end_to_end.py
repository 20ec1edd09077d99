"""A user's morning on the real controller and the local backend: run, look, stop, read the bill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ray


@pytest.fixture
def controller(process: Any, home: Path) -> Iterator[Any]:
    """The command line with a controller that is taken down in the end, whatever happened."""
    assert process("up").code == 0
    yield process
    assert process("down", "--stop-workloads").code == 0
    assert not (home / "controller.json").exists()
    assert process("status").code == 3


@pytest.mark.timeout(600)
def test_run_is_followed_and_its_exit_code_is_the_workloads(controller: Any, tmp_path: Path) -> None:
    (tmp_path / "ok.py").write_text("print('the log line')\n")
    (tmp_path / "bad.py").write_text("raise SystemExit(7)\n")

    done = controller("run", "--accelerator", "cpu:1", "--name", "good", "--", "python", "ok.py")
    assert (done.code, done.out.splitlines()[-1]) == (0, "the log line"), done
    assert "good: succeeded after" in done.err.splitlines()[-1]

    done = controller("run", "--accelerator", "cpu:1", "--name", "bad", "--", "python", "bad.py")
    assert done.code == 1, done
    assert "failed: user-error" in done.err.splitlines()[-1]
    assert "7" in done.err.splitlines()[-1]

    history = json.loads(controller("history", "--json").out)
    assert [(one["name"], one["outcome"], one["cause"]) for one in history] == [
        ("bad", "failed", "user-error"),
        ("good", "succeeded", None),
    ]
    assert json.loads(controller("ls", "--json").out) == []
    assert controller("logs", "good").out.splitlines()[-1] == "the log line"
    bill = json.loads(controller("cost", "--by", "attempt", "--json").out)
    assert {"good/1", "bad/1"} <= {row["key"] for row in bill}
    assert controller("show", "good").code == 0
    assert controller("show", "nobody").code == 2


@pytest.mark.timeout(600)
def test_a_detached_workload_is_shown_explained_and_stopped(controller: Any, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(1000)\n")
    args = ("run", "--accelerator", "cpu:1", "--name", "long", "--detach", "--", "python", "long.py")
    assert controller(*args).code == 0
    assert controller(*args).code == 2, "the name is in use"
    listed = json.loads(controller("ls", "--json").out)
    assert [(one["name"], one["kind"], one["option"]) for one in listed] == [("long", "job", "cpu:1")]
    assert json.loads(controller("why", "long", "--json").out)["name"] == "long"
    assert controller("stop", "long").out == "long stopped\n"
    assert json.loads(controller("show", "long", "--json").out)["cause"] == "stopped-by-user"
    assert {"pools", "queues"} <= set(json.loads(controller("fleet", "show", "--json").out))
