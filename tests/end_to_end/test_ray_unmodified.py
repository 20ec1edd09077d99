"""Ray's own trainer and slice groups on emulated slices, with no word of Stellwerk in the code that uses them."""

from __future__ import annotations

from typing import Any

import pytest
from end_to_end_home import Home

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

TRAINS = """
import json, os
import ray, ray.util.state
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.jax import JaxTrainer

SLICES, TOPOLOGY, WORKERS = {slices}, "{topology}", 2

def note(**what):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(json.dumps(what) + "\\n")

def loop():
    import jax, jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from ray import train

    mesh = Mesh(jax.devices(), ("data",))
    rows = jax.make_array_from_callback((8,), NamedSharding(mesh, PartitionSpec("data")), lambda index: jnp.ones(1))
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows)
    figures = {{"devices": jax.device_count(), "local": jax.local_device_count(), "processes": jax.process_count()}}
    train.report(figures)
    if jax.process_index() == 0:
        note(trained=figures | {{"total": float(total)}})

def groups():
    from ray.util.tpu import slice_placement_group
    group = slice_placement_group(
        topology=TOPOLOGY, accelerator_version="v6e", num_slices=SLICES, chips_per_vm=4
    )
    ray.get(group.placement_group.ready(), timeout=120)
    count = group.placement_group.bundle_count
    group.shutdown()
    return count

ray.init(log_to_driver=False)
note(hosts=groups())
scaling = ScalingConfig(
    use_tpu=True,
    topology=TOPOLOGY,
    accelerator_type="TPU-V6E",
    num_workers=WORKERS,
    resources_per_worker={{"TPU": 4}},
)
JaxTrainer(loop, scaling_config=scaling, run_config=RunConfig(storage_path=os.environ["STORAGE"])).fit()
note(nodes=len(ray.util.state.list_nodes()))
"""


@pytest.mark.parametrize(
    ("option", "topology", "slices"),
    [
        pytest.param({"accelerator": "tpu-v6e", "topology": "2x4", "machine": "ct6e-standard-4t"}, "2x4", 1, id="2x4"),
        pytest.param("tpu-v6e:2x2*2", "2x2", 2, id="2x2*2"),
    ],
)
def test_one_mesh_over_two_hosts(home: Home, option: Any, topology: str, slices: int) -> None:
    pytest.importorskip("jax")
    home.up()
    script = TRAINS.format(topology=topology, slices=slices)
    home.submit("train", script, option, env={"STORAGE": str(home.folder / "storage")})
    ended = home.ended("train")
    assert (ended["outcome"], ended["hosts"], ended["emulated"]) == ("succeeded", 2, True), home.log("train")
    trained = {"devices": 8, "local": 4, "processes": 2, "total": 8.0}
    assert home.notes("train") == [{"hosts": 2}, {"trained": trained}, {"nodes": 3}]
