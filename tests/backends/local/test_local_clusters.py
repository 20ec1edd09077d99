"""Attempts on real Ray clusters of this machine: what runs inside, what is told, what is left (nothing)."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from local_world import KEY, World, world

from stellwerk.backends.local.folder import attempt_folder
from stellwerk.backends.local.journal import read
from stellwerk.scheduling.commands import ProvisionUnit, RecycleUnit, ReleaseUnit, ResizeAttempt
from stellwerk.scheduling.events import (
    AttemptEnded,
    AttemptResized,
    AttemptStarted,
    CheckpointReported,
    DrainNoticed,
    HostChanged,
    UnitAppeared,
    UnitGone,
)
from stellwerk.scheduling.model import Part

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

ONE_SLICE = """
import os, ray, stellwerk
ray.init()
assert os.environ["RAY_AUTH_MODE"] == "token"

@ray.remote(num_cpus=1, resources={"TPU": 4})
def devices():
    import jax
    print("on the host")
    return jax.device_count(), stellwerk.current().units, os.environ["EPOCHS"]

count, units, epochs = ray.get(devices.remote())
assert (count, epochs) == (4, "7"), (count, epochs)
me = stellwerk.current()
assert me.units == units and me.hosts == 1 and me.emulated
me.report(step=5, checkpoint=str(me.checkpoint_dir / "5"))
with open("output.txt", "w") as file:
    file.write("kept")
print("driver is done")
"""

TWO_HOSTS = """
import json, os, ray, time, stellwerk
from ray.util.tpu import slice_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
ray.init()
group = slice_placement_group(topology="2x4", accelerator_version="v6e", chips_per_vm=4)
ray.get(group.placement_group.ready(), timeout=120)

@ray.remote(num_cpus=1, resources={"TPU": 4})
def host():
    names = "TPU_NAME TPU_WORKER_ID TPU_WORKER_HOSTNAMES TPU_TOPOLOGY TPU_ACCELERATOR_TYPE JAX_NUM_CPU_DEVICES"
    return {name: os.environ[name] for name in names.split()} | {"address": ray.util.get_node_ip_address()}

def run(bundle):
    strategy = PlacementGroupSchedulingStrategy(group.placement_group, placement_group_bundle_index=bundle)
    return host.options(scheduling_strategy=strategy).remote()

nodes = [{"resources": node["Resources"], "labels": node["Labels"]} for node in ray.nodes() if node["Alive"]]
print("FOUND " + json.dumps({"hosts": ray.get([run(0), run(1)]), "nodes": nodes}), flush=True)
stellwerk.current().report(step=1, checkpoint="here")
time.sleep(600)
"""

FAILS = """
import ray
ray.init()
raise RuntimeError("no such luck")
"""

RESTARTS = """
import ray, stellwerk, sys, time
ray.init()
me = stellwerk.current()
count = sum(1 for node in ray.nodes() if node["Alive"] and "TPU" in node["Resources"])
print(f"FOUND {me.attempt} {me.slices} {me.hosts} {count} {' '.join(me.units)}", flush=True)
me.report(step=me.slices, checkpoint=f"at-{me.slices}")
while me.slices < 2 and not me.should_stop():
    time.sleep(0.05)
sys.exit(75 if me.slices < 2 else 0)
"""

LEAVES_SLOWLY = """
import os, pathlib, ray, stellwerk, time
ray.init()
me = stellwerk.current()
me.report(step=me.slices, checkpoint="begun")
while not me.leaving():
    time.sleep(0.05)
me.report(step=0, checkpoint="told")
while not pathlib.Path(os.environ["GATE"]).exists():
    time.sleep(0.05)
me.let_go()
while stellwerk.current().slices > 1:
    time.sleep(0.05)
me.report(step=stellwerk.current().slices, checkpoint="left")
time.sleep(600)
"""

V6E_2X2 = Part("main", "tpu-v6e", "2x2", 4)
V6E_2X4 = Part("main", "tpu-v6e", "2x4", 8, machine="ct6e-standard-4t")
CPU = Part("main", "cpu", None, 1)


def _script(home: Path, text: str) -> str:
    (home / "code").mkdir()
    (home / "code" / "script.py").write_text(text)
    return "script.py"


def test_a_job_on_one_slice(tmp_path: Path):
    async def job() -> None:
        async with world(tmp_path) as one:
            one.launch(V6E_2X2, [_script(tmp_path, ONE_SLICE)], env={"EPOCHS": "7", "RAY_AUTH_MODE": "disabled"})
            end = await one.until(AttemptEnded)
            assert (end.outcome, end.cause, end.exit_code) == ("succeeded", None, 0), one.log("driver")
            kinds = [type(event) for event in one.events]
            assert kinds == [AttemptStarted, CheckpointReported, AttemptEnded]
            assert one.events[1].step == 5
            assert "driver is done" in one.log("driver")
            assert "on the host" in one.log("tpu-v6e-2x2-0-host-0")
            assert (attempt_folder(tmp_path, KEY, 1).work / "output.txt").read_text() == "kept"
            assert [path.name for path in (tmp_path / "code").iterdir()] == ["script.py"]
            one.assert_nothing_left()

    asyncio.run(job())


def test_two_hosts_look_real_and_one_is_killed(tmp_path: Path):
    async def job() -> None:
        async with world(tmp_path) as one:
            (grant,) = one.launch(V6E_2X4, [_script(tmp_path, TWO_HOSTS)])
            await one.until(CheckpointReported)
            _check_hosts(one.log("driver"), grant.unit)
            one.backend.chaos("kill-host", grant.unit, 1, 1)
            lost = await one.until(HostChanged)
            assert (lost.unit, lost.incarnation, lost.host, lost.up) == (grant.unit, 1, 1, False)
            one.backend.execute(RecycleUnit(grant.pool, grant.unit, 2))
            one.stop("infrastructure")
            end = await one.until(AttemptEnded)
            assert (end.outcome, end.cause) == ("stopped", "infrastructure")
            appeared = await one.until(UnitAppeared)
            assert (appeared.unit, appeared.incarnation) == (grant.unit, 2)
            assert one.events.index(appeared) > one.events.index(end)
            one.assert_nothing_left()

    asyncio.run(job())


def _check_hosts(log: str, unit: str) -> None:
    found = json.loads(next(line for line in log.splitlines() if line.startswith("FOUND ")).removeprefix("FOUND "))
    hosts = sorted(found["hosts"], key=lambda host: host["TPU_WORKER_ID"])
    addresses = [host["address"] for host in hosts]
    assert [host["TPU_WORKER_ID"] for host in hosts] == ["0", "1"]
    assert hosts[0]["TPU_WORKER_HOSTNAMES"] == ",".join(addresses)
    assert len(set(addresses)) == 2
    real = {"TPU_NAME": unit, "TPU_TOPOLOGY": "2x4", "TPU_ACCELERATOR_TYPE": "v6e-8", "JAX_NUM_CPU_DEVICES": "4"}
    assert all(real.items() <= host.items() for host in hosts)
    nodes = sorted((node for node in found["nodes"] if "TPU" in node["resources"]),
                   key=lambda node: node["labels"]["ray.io/tpu-worker-id"])  # fmt: skip
    labels = {"ray.io/tpu-slice-name": unit, "ray.io/tpu-topology": "2x4", "ray.io/tpu-pod-type": "v6e-8",
              "ray.io/accelerator-type": "TPU-V6E", "ray.io/market-type": "on-demand"}  # fmt: skip
    assert all(labels.items() <= node["labels"].items() for node in nodes)
    assert all(node["resources"]["TPU"] == 4 and node["resources"][unit] == 1 for node in nodes)
    assert [node["resources"].get("TPU-v6e-8-head") for node in nodes] == [1, None]
    (head,) = [node for node in found["nodes"] if "TPU" not in node["resources"]]
    assert "CPU" not in head["resources"]


def test_a_training_is_started_anew_in_its_attempt_when_it_grows(tmp_path: Path):
    async def job() -> None:
        async with world(tmp_path) as one:
            (grant,) = one.launch(V6E_2X2, [_script(tmp_path, RESTARTS)], kind="train")
            await one.until(CheckpointReported)
            other = replace(grant, group=1, unit=grant.unit.replace("-0", "-1"))
            order = ResizeAttempt(KEY, 1, 1, (grant, other))
            one.backend.execute(order)
            one.backend.execute(order)
            end = await one.until(AttemptEnded)
            assert (end.outcome, end.exit_code) == ("succeeded", 0), one.log("driver")
            assert [event.resize for event in one.events if isinstance(event, AttemptResized)] == [1]
            assert [event.step for event in one.events if isinstance(event, CheckpointReported)] == [1, 2]
            found = [line for line in one.log("driver").splitlines() if line.startswith("FOUND")]
            assert found == [f"FOUND 1 1 1 1 {grant.unit}", f"FOUND 1 2 2 2 {grant.unit} {other.unit}"]
            one.assert_nothing_left()

    asyncio.run(job())


def test_a_resize_goes_on_while_no_controller_is_there_and_is_told_once(tmp_path: Path):
    try:
        order = asyncio.run(_resize_part_one(tmp_path))
        (tmp_path / "gate").touch()
        asyncio.run(_resize_part_two(tmp_path, order))
    finally:
        World(tmp_path).bury()


async def _resize_part_one(home: Path) -> ResizeAttempt:
    one = World(home)
    await one.backend.open(one.report)
    gate = {"GATE": str(home / "gate")}
    grants = one.launch(replace(V6E_2X2, count=2), [_script(home, LEAVES_SLOWLY)], env=gate)
    await one.until(CheckpointReported)
    order = ResizeAttempt(KEY, 1, 1, grants[1:])
    one.backend.execute(order)
    await one.until(CheckpointReported, lambda event: event.uri == "told")
    await one.backend.close()
    return order


async def _resize_part_two(home: Path, order: ResizeAttempt) -> None:
    one = World(home)
    try:
        assert [(found.workload, found.attempt) for found in await one.backend.open(one.report)] == [(KEY, 1)]
        one.backend.execute(order)
        one.backend.execute(ReleaseUnit("gone-0", 1))
        await one.until(UnitGone)
        await one.until(CheckpointReported, lambda event: event.uri == "left")
        (resized,) = [event for event in one.events if isinstance(event, AttemptResized)]
        assert resized.resize == 1
        one.backend.execute(ReleaseUnit("tpu-v6e-2x2-0", 1))
        assert (await one.until(UnitGone, lambda event: event.unit == "tpu-v6e-2x2-0")).incarnation == 1
        assert not any(isinstance(event, AttemptEnded) for event in one.events)
        one.backend.execute(
            ResizeAttempt(KEY, 1, 2, (order.grants[0], replace(order.grants[0], group=1, unit="other-0")))
        )
        one.stop(grace=0.0)
        end = await one.until(AttemptEnded)
        assert (end.outcome, end.cause) == ("stopped", "stopped-by-user")
        one.assert_nothing_left()
    finally:
        await one.backend.close()


def test_a_users_exception_is_the_users(tmp_path: Path):
    async def job() -> None:
        async with world(tmp_path) as one:
            one.launch(CPU, [_script(tmp_path, FAILS)])
            end = await one.until(AttemptEnded)
            assert (end.outcome, end.cause, end.exit_code) == ("failed", "user-error", 1)
            assert "no such luck" in end.message
            one.assert_nothing_left()

    asyncio.run(job())


def test_a_cluster_outlives_its_controller_but_not_its_keeper(tmp_path: Path):
    try:
        asyncio.run(_cluster_part_one(tmp_path))
        asyncio.run(_cluster_part_two(tmp_path))
    finally:
        World(tmp_path).bury()


async def _cluster_part_one(home: Path) -> None:
    one = World(home)
    await one.backend.open(one.report)
    one.launch(CPU, [], kind="cluster")
    await one.until(AttemptStarted)
    argv = ["python", "-c", "import ray; ray.init(); print(ray.cluster_resources()['CPU']); raise SystemExit(4)"]
    first = one.backend.command(KEY, 1, argv, {}, str(home))
    second = one.backend.command(KEY, 1, ["no-such-program"], {}, str(home))
    async with asyncio.timeout(120):
        while one.backend.command_result(KEY, 1, first) is None:
            await asyncio.sleep(0.05)
    assert one.backend.command_result(KEY, 1, first) == 4, one.log(f"command-{first}")
    assert one.backend.command_result(KEY, 1, second) == 127
    assert "1.0" in one.log(f"command-{first}")
    await one.backend.close()


async def _cluster_part_two(home: Path) -> None:
    one = World(home)
    try:
        live = await one.backend.open(one.report)
        assert [(found.workload, found.attempt) for found in live] == [(KEY, 1)]
        assert len(one.living()) > 4
        keeper = read(attempt_folder(home, KEY, 1).journal)[0]["pid"]
        os.kill(keeper, signal.SIGKILL)
        end = await one.until(AttemptEnded)
        assert (end.outcome, end.cause) == ("failed", "infrastructure")
        assert [type(event) for event in one.events] == [AttemptEnded]
        assert one.living() == []
        one.assert_nothing_left()
    finally:
        await one.backend.close()
    again = World(home)
    assert await again.backend.open(again.report) == []
    await again.backend.close()


def test_units_appear_and_go_at_once(tmp_path: Path):
    async def job() -> None:
        async with world(tmp_path) as one:
            one.backend.execute(ProvisionUnit("p", "p-0", 1))
            await one.until(UnitAppeared)
            one.backend.chaos("kill-host", "p-0", 1, 0)
            await one.until(HostChanged)
            one.backend.execute(RecycleUnit("p", "p-0", 2))
            await one.until(UnitAppeared, lambda event: event.incarnation == 2)
            one.backend.chaos("preempt", "p-0", 2, None)
            await one.until(DrainNoticed)
            one.backend.execute(ReleaseUnit("p-0", 2))
            await one.until(UnitGone)
            one.stop()
            end = await one.until(AttemptEnded)
            assert (end.outcome, end.cause) == ("stopped", "stopped-by-user")

    asyncio.run(job())
