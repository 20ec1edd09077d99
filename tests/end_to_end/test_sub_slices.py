"""Two jobs share a unit: each sees a slice of its own, with the devices of its part alone."""

from __future__ import annotations

import pytest
from end_to_end_home import Home

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

FLEET = """
pools:
  - {name: shared, accelerator: tpu-v6e, topology: 2x4, machine: ct6e-standard-4t, layout: subslices, units: 1}
"""
LOOKS = """
import json, os, ray, stellwerk
from gate import wait_for_gate
ray.init()

@ray.remote(num_cpus=1, resources={"TPU": 4})
def look():
    import jax
    names = ("TPU_NAME", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID")
    return {name: os.environ[name] for name in names} | {"devices": jax.device_count()}

me = stellwerk.current()
size = {"units": me.units, "topology": me.topology, "slices": me.slices, "hosts": me.hosts, "chips": me.chips}
tpus = [node for node in ray.nodes() if "TPU" in node["Resources"]]
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps({**ray.get(look.remote()), **size, "nodes": len(tpus)}) + "\\n")
me.report(1)
wait_for_gate()
"""


def test_two_jobs_on_the_halves_of_one_unit(home: Home) -> None:
    home.up(FLEET)
    for name in "ab":
        home.submit(name, LOOKS, "tpu-v6e:2x2")
    for name in "ab":
        home.running(name)
    (pool,) = home.json("fleet", "show")["pools"]
    (unit,) = pool["units"]
    assert sorted((held["place"], held["chips"]) for held in unit["placements"]) == [("0,0/2x2", 4), ("0,2/2x2", 4)]
    assert (pool["layout"], pool["free_chips"], unit["free_chips"], unit["hosts_up"]) == ("subslices", 0, 0, 2)
    places = {held["workload"]: held["place"] for held in unit["placements"]}
    for name in "ab":
        home.until(name, lambda _, name=name: bool(home.notes(name)))
        (seen,) = home.notes(name)
        origin = places[name].partition("/")[0].replace(",", "-")
        assert seen == {
            "TPU_NAME": f"shared-0-at-{origin}", "TPU_TOPOLOGY": "2x2", "TPU_ACCELERATOR_TYPE": "v6e-4",
            "TPU_WORKER_ID": "0", "devices": 4, "units": ["shared-0"], "topology": "2x2", "slices": 1, "hosts": 1,
            "chips": 4, "nodes": 1,
        }  # fmt: skip
    assert "a (" in home.good("fleet", "show") and "2x4" in home.good("fleet", "show")
    for name in "ab":
        home.open_gate(name)
        assert home.ended(name)["outcome"] == "succeeded"
