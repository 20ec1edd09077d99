"""An elastic job gives a slice to somebody who waits, and takes it back; its controller is killed in between."""

from __future__ import annotations

from typing import Any

import pytest
from end_to_end_home import Home

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

FLEET = """
pools:
  - {name: pair, accelerator: tpu-v6e, topology: 2x2, machine: ct6e-standard-4t, units: 2}
"""
FOLLOWS = """
import json, os, pathlib, ray, stellwerk, time
ray.init()

def slices():
    alive = [node for node in ray.nodes() if node["Alive"]]
    return sorted(node["Labels"]["ray.io/tpu-slice-name"] for node in alive if "TPU" in node["Resources"])

@ray.remote(num_cpus=1, resources={"TPU": 4})
def look():
    me = stellwerk.current()
    return os.environ["TPU_NAME"], list(me.units), me.should_stop()

seen, left = None, False
while not pathlib.Path(os.environ["GATE"]).exists():
    me = stellwerk.current()
    if me.leaving() and not left:
        found = ray.get([look.options(label_selector={"ray.io/tpu-slice-name": name}).remote() for name in slices()])
        told = {name: stop for name, _, stop in found}
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(json.dumps({"leaving": me.leaving(), "told": told, "driver": me.should_stop()}) + "\\n")
        left = True
        me.let_go()
    if not me.leaving() and me.units != seen and sorted(me.units) == slices():
        seen, left = me.units, False
        with open(os.environ["NOTES"], "a") as notes:
            size = {"units": me.units, "slices": me.slices, "hosts": me.hosts, "chips": me.chips}
            notes.write(json.dumps(size) + "\\n")
        me.report(me.slices)
    time.sleep(0.1)
"""
WAITS = """
from gate import wait_for_gate
wait_for_gate()
"""


def test_an_elastic_job_shrinks_for_another_and_grows_again(home: Home) -> None:
    home.up(FLEET)
    home.submit("elastic", FOLLOWS, "tpu-v6e:2x2*1..2")
    both = home.running("elastic")
    assert (both["units"], both["hosts"], both["chips"]) == (["pair-0", "pair-1"], 2, 8)
    _sizes(home, [2])

    home.submit("other", WAITS, "tpu-v6e:2x2")
    other = home.running("other")
    one = home.until("elastic", lambda found: found["chips"] == 4)
    assert sorted([*one["units"], *other["units"]]) == ["pair-0", "pair-1"]
    _sizes(home, [2, 1])
    (pool,) = home.json("fleet", "show")["pools"]
    held = {unit["name"]: [each["workload"] for each in unit["placements"]] for unit in pool["units"]}
    assert held == {"pair-0": ["elastic"], "pair-1": ["other"]}
    assert (pool["free_chips"], pool["largest_free"]) == (0, None)

    home.kill_controller()
    home.up()
    home.open_gate("other")
    assert home.ended("other")["outcome"] == "succeeded"
    home.until("elastic", lambda found: found["chips"] == 8)
    _sizes(home, [2, 1, 2])
    home.open_gate("elastic")
    ended = home.ended("elastic")
    assert (ended["outcome"], [one["number"] for one in ended["attempts"]]) == ("succeeded", [1])
    (notice,) = [note for note in home.notes("elastic") if "leaving" in note]
    assert notice == {"leaving": ["pair-1"], "told": {"pair-0": False, "pair-1": True}, "driver": False}


def _sizes(home: Home, wanted: list[int]) -> None:
    """Wait until the job has seen these numbers of slices, one after another."""

    def seen(_: Any) -> bool:
        notes = [note for note in home.notes("elastic") if "units" in note]
        assert all(note["slices"] == note["hosts"] == len(note["units"]) == note["chips"] // 4 for note in notes)
        return [note["slices"] for note in notes] == wanted

    home.until("elastic", seen)
