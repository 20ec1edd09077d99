"""Whole slices or nothing: three workloads that want all of a fleet take turns, also over a killed controller."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from end_to_end_home import Home

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

TWO_SLICES = """
pools:
  - {name: trillium, accelerator: tpu-v6e, topology: 2x2, machine: ct6e-standard-4t, units: 2}
"""
COUNT_SLICES = """
import json, os, ray, stellwerk
from gate import wait_for_gate
ray.init()
me = stellwerk.current()
names = {node["Labels"]["ray.io/tpu-slice-name"] for node in ray.nodes() if "TPU" in node["Resources"]}
assert names == set(me.units) and me.slices == 2, names
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps({"attempt": me.attempt, "pid": os.getpid()}) + "\\n")
wait_for_gate()
"""


def test_three_workloads_of_two_slices_on_two_slices_and_a_killed_controller(home: Home) -> None:
    first_controller = home.up(TWO_SLICES)
    for name in "abc":
        home.submit(name, COUNT_SLICES, "tpu-v6e:2x2*2")
    held = home.running("a")
    assert len(held["units"]) == 2
    _check_who_waits_and_why(home)

    home.until("a", lambda found: home.notes("a"))
    home.kill_controller()
    assert home.stellwerk("status").code == 3
    assert home.up() != first_controller
    _check_adopted(home, held)
    _check_who_waits_and_why(home)

    for name in "abc":
        home.running(name)
        home.open_gate(name)
        assert home.ended(name)["outcome"] == "succeeded"
    _check_turns(home)


def _check_who_waits_and_why(home: Home) -> None:
    for name in "bc":
        waiting = home.json("show", name)
        assert (waiting["state"], waiting["units"], waiting["attempts"]) == ("waiting", [], [])
    assert [unit["workloads"] for unit in home.json("fleet", "show")["pools"][0]["units"]] == [["a"], ["a"]]
    second, third = _only_reason(home.json("why", "b")), _only_reason(home.json("why", "c"))
    assert (second["code"], second["needed"], second["free"]) == ("capacity", 2, 0)
    assert second["message"].endswith("in use by a")
    assert (third["code"], third["free"]) == ("capacity", 0)
    plan = home.json("plan", str(home.folder / "c" / "workload.yaml"))
    assert (plan["chosen"], plan["options"][0]["verdict"]) == (0, "later")


def _only_reason(why: Any) -> Any:
    (option,) = why["options"]
    (reason,) = option["reasons"]
    return reason


def _check_adopted(home: Home, before: Any) -> None:
    found = home.json("show", "a")
    assert (found["state"], found["attempt"], found["units"]) == ("running", 1, before["units"])
    (note,) = home.notes("a")
    assert note["pid"] in home.processes()


def _check_turns(home: Home) -> None:
    shown = [home.json("show", name) for name in "abc"]
    assert [len(one["attempts"]) for one in shown] == [1, 1, 1]
    assert [len(home.notes(name)) for name in "abc"] == [1, 1, 1], "no attempt ran twice"
    attempts = [one["attempts"][0] for one in shown]
    for earlier, later in pairwise(attempts):
        assert earlier["granted"] < earlier["started"] < earlier["finished"] <= later["granted"]
    bill = {row["key"]: row for row in home.json("cost", "--by", "attempt")}
    assert all(bill[f"{name}/1"]["chip_hours"] > 0 for name in "abc")
