"""Every way of ending has its own outcome, cause, message and exit code."""

from __future__ import annotations

import signal

import pytest
from end_to_end_home import Home, finish, told

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

CPUS = """
pools:
  - {name: cpus, accelerator: cpu, chips: 1, units: 2}
"""
RAISES_THEN_EXITS = """
import stellwerk
if stellwerk.current().attempt == 1:
    raise ValueError("bad batch")
raise SystemExit(5)
"""
RUNS_OUT_OF_MEMORY = """
import ray, stellwerk
ray.init()

@ray.remote(num_cpus=1)
def too_much():
    raise MemoryError("no room for the activations")

if stellwerk.current().attempt == 1:
    ray.get(too_much.remote())
raise ray.exceptions.OutOfMemoryError("a worker was killed: the node was running low on memory")
"""
HANGS = """
from gate import wait_for_gate
wait_for_gate()
"""
STOPS_WHEN_TOLD = """
import json, os, stellwerk, sys
from gate import wait_for_gate
me = stellwerk.current()
wait_for_gate(stop=me.should_stop)
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps({"told": me.should_stop(), "has_time": me.stop_deadline() is not None}) + "\\n")
print("saved and left", flush=True)
sys.exit(75)
"""


def test_failures_of_the_users_code(home: Home) -> None:
    home.up(CPUS)
    following = [
        home.start("run", home.declare("raises", RAISES_THEN_EXITS, "cpu:1", retries=1), "--yes"),
        home.start("run", home.declare("grows", RUNS_OUT_OF_MEMORY, "cpu:1", retries=1), "--yes"),
    ]
    raises, grows = [finish(process) for process in following]
    assert (raises.code, grows.code) == (1, 1)
    assert "failed: user-error (exit code 5)" in raises.err.splitlines()[-1]
    assert "ValueError: bad batch" in raises.out, "the first attempt's traceback is in the log"
    assert "failed: out-of-memory (" in grows.err.splitlines()[-1]

    shown = home.json("show", "raises")
    assert (shown["outcome"], shown["cause"], shown["exit_code"]) == ("failed", "user-error", 5)
    assert shown["retries_left"] == 0
    assert [(one["cause"], one["exit_code"], one["message"]) for one in shown["attempts"]] == [
        ("user-error", 1, "ValueError: bad batch"),
        ("user-error", 5, "exit code 5"),
    ]
    shown = home.json("show", "grows")
    assert (shown["outcome"], shown["cause"], shown["retries_left"]) == ("failed", "out-of-memory", 0)
    assert [one["cause"] for one in shown["attempts"]] == ["out-of-memory", "out-of-memory"]
    assert "no room for the activations" in shown["attempts"][0]["message"]
    assert "OutOfMemoryError" in shown["attempts"][1]["message"]


def test_limits_ctrl_c_and_stop(home: Home) -> None:
    home.up(CPUS)
    hangs = home.start("run", home.declare("hangs", HANGS, "cpu:1", limits={"run": "1s"}, retries=3), "--yes")
    polite = home.start("run", home.declare("polite", STOPS_WHEN_TOLD, "cpu:1"), "--yes")
    for process in (hangs, polite):
        told(process, "attempt 1 is starting")
    late = home.stellwerk("run", home.declare("late", HANGS, "cpu:1", limits={"wait": "1s"}), "--yes")
    assert late.code == 1
    assert (
        "failed: wait-limit (waited 1 s without starting: needs 1 unit of cpus, 0 of 2 free"
        in late.err.splitlines()[-1]
    )
    assert home.json("show", "late")["attempts"] == []

    told(polite, "attempt 1 is running")
    polite.send_signal(signal.SIGINT)
    left = finish(polite)
    assert left.code == 130
    assert left.err.splitlines()[-1] == "polite: is left as it is; stop it with: stellwerk stop polite"
    assert home.json("show", "polite")["state"] == "running"
    assert home.good("stop", "polite", "--grace", "60") == "polite stopped\n"
    assert home.notes("polite") == [{"told": True, "has_time": True}]
    assert "saved and left" in home.good("logs", "polite")
    stopped = home.json("show", "polite")
    assert (stopped["outcome"], stopped["cause"], stopped["exit_code"]) == ("stopped", "stopped-by-user", 75)
    assert stopped["message"] == "stopped on request"

    hung = finish(hangs)
    assert hung.code == 1
    assert "failed: run-limit" in hung.err.splitlines()[-1]
    shown = home.json("show", "hangs")
    assert (shown["outcome"], shown["cause"], shown["retries_left"]) == ("failed", "run-limit", 3)
    assert len(shown["attempts"]) == 1
