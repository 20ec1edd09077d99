"""Lost hosts, lost units and preemption: a whole new attempt on whole new units, at no cost of the user's retries."""

from __future__ import annotations

from typing import Any

import pytest
from end_to_end_home import Home

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

FLEET = """
pools:
  - {name: pair, accelerator: tpu-v6e, topology: 2x4, machine: ct6e-standard-4t, units: 1}
  - {name: spot, accelerator: tpu-v6e, topology: 2x2, machine: ct6e-standard-4t, market: spot, units: 1}
"""
RESUMES = """
import json, os, ray, stellwerk, sys
from gate import wait_for_gate
ray.init()
me = stellwerk.current()
saved = me.checkpoint_dir / "step"
step = int(saved.read_text()) if saved.exists() else 0
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps({"attempt": me.attempt, "step": step}) + "\\n")
saved.write_text(str(step + 1))
me.report(step + 1, checkpoint=str(saved))
wait_for_gate(stop=me.should_stop)
if me.should_stop():
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(json.dumps({"attempt": me.attempt, "told": True}) + "\\n")
    sys.exit(75)
"""


def test_killed_hosts_killed_units_and_preemption(home: Home) -> None:
    home.up(FLEET)
    home.submit("spot", RESUMES, "tpu-v6e:2x2@spot")
    _saved(home, "spot", attempt=1)
    assert home.good("chaos", "preempt", "spot") == "gave notice to spot-0\n"
    home.submit("gang", RESUMES, "tpu-v6e:2x4", retries=1)

    _saved(home, "gang", attempt=1)
    assert home.good("chaos", "kill-host", "gang", "--host", "0") == "killed host 0 of pair-0\n"
    _saved(home, "gang", attempt=2)
    assert _incarnation(home, "pair") == 2
    assert home.good("chaos", "kill-unit", "gang") == "killed pair-0\n"
    _saved(home, "gang", attempt=3)
    assert _incarnation(home, "pair") == 3
    home.open_gate("gang")
    healed = home.ended("gang")
    assert (healed["outcome"], healed["retries_left"]) == ("succeeded", 1)
    assert [one["cause"] for one in healed["attempts"]] == ["infrastructure", "infrastructure", None]
    begun = [note for note in home.notes("gang") if "step" in note]
    assert begun == [{"attempt": number, "step": number - 1} for number in (1, 2, 3)]

    _saved(home, "spot", attempt=2)
    assert _incarnation(home, "spot") == 2
    home.open_gate("spot")
    healed = home.ended("spot")
    assert (healed["outcome"], healed["retries_left"]) == ("succeeded", 0)
    assert [(one["cause"], one["exit_code"]) for one in healed["attempts"]] == [("infrastructure", 75), (None, 0)]
    assert home.notes("spot") == [{"attempt": 1, "step": 0}, {"attempt": 1, "told": True}, {"attempt": 2, "step": 1}]


def _saved(home: Home, name: str, attempt: int) -> None:
    """Wait until an attempt runs and has reported its checkpoint."""
    home.until(
        name,
        lambda found: (found["state"], found["attempt"], found["checkpoint_step"]) == ("running", attempt, attempt),
    )


def _incarnation(home: Home, pool: str) -> Any:
    pools = {one["name"]: one for one in home.json("fleet", "show")["pools"]}
    (unit,) = pools[pool]["units"]
    assert (unit["state"], unit["hosts_up"]) == ("up", unit["hosts"])
    return unit["incarnation"]
