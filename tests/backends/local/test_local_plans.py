"""What hosts are started with, what attempts are told, what the machine can carry."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.backends.local import capacity, detect
from stellwerk.backends.local.folder import AttemptFolder, attempt_folder, make_run_dir, network
from stellwerk.backends.local.follow import HostLog, Reports
from stellwerk.backends.local.hosts import held_units, plan_hosts
from stellwerk.backends.local.outcomes import driver_ending, stop_ending
from stellwerk.backends.local.planning import make_plan, marker
from stellwerk.backends.protocol import Launch
from stellwerk.hardware import accelerators, host_environment, shape
from stellwerk.scheduling.commands import StartAttempt
from stellwerk.scheduling.model import Fleet, Grant, Option, Part, Pool

V6E = Part("main", "tpu-v6e", "4x4", 16, count=2, machine="ct6e-standard-4t")


def _fleet(*parts: Part) -> Fleet:
    return Fleet(capacity.default_fleet(parts))


def _pools(fleet: Fleet) -> dict[str, Pool]:
    return {pool.name: pool for pool in fleet.pools}


def _grants(pool: Pool, count: int) -> tuple[Grant, ...]:
    return tuple(Grant("main", n, pool.name, f"{pool.name}-{n}", 1, pool.chips, pool.hosts) for n in range(count))


def _launch(part: Part, count: int, kind: str = "job", **declaration: object) -> Launch:
    fleet = _fleet(part)
    command = StartAttempt("k1", 2, 0, _grants(fleet.pools[0], count))
    return Launch(command, "name", kind, Option("short", (part,)), declaration, fleet)


def _value(arguments: list[str], name: str) -> str:
    return next(argument.split("=", 1)[1] for argument in arguments if argument.startswith(f"--{name}="))


def test_tpu_hosts_have_the_environment_of_the_real_ones():
    fleet = _fleet(V6E)
    hosts = plan_hosts(held_units(_grants(fleet.pools[0], 2), _pools(fleet)), "127.3.4.1")
    units = [f"tpu-v6e-4x4-ct6e-standard-4t-{number}" for number in (0, 1)]
    assert [host.name for host in hosts] == [f"{unit}-host-{index}" for unit in units for index in range(4)]
    assert [host.address for host in hosts] == [f"127.3.4.{n}" for n in range(2, 10)]
    reading = shape("tpu-v6e", "4x4")
    second = [host.address for host in hosts[4:]]
    real = host_environment(reading, hosts[5].unit, 1, second)
    assert real.items() <= hosts[5].env.items()
    assert hosts[5].env["JAX_PLATFORMS"] == "cpu"
    assert hosts[5].env["JAX_NUM_CPU_DEVICES"] == "4"
    assert json.loads(_value(hosts[5].args, "resources")) == {"TPU": 4}
    assert _value(hosts[5].args, "num-cpus") == "180"


def test_gpu_hosts_name_their_type_and_share_a_machine_by_cells():
    pool = Pool("p", "h100", None, "a3-highgpu-8g", 8, 1, 4, emulated=True)
    cells = [Grant("a", 0, "p", "p-0", 3, 2, 1), Grant("b", 0, "p", "p-0", 3, 1, 1)]
    grants = [*cells, Grant("b", 1, "p", "p-1", 1, 8, 1)]
    first, second = plan_hosts(held_units(grants, {"p": pool}), "127.1.1.1")
    assert (first.unit, first.incarnation, first.devices, second.devices) == ("p-0", 3, 3, 8)
    assert _value(first.args, "num-gpus") == "3"
    assert json.loads(_value(first.args, "resources")) == {"accelerator_type:H100": 1}
    assert "ray.io/accelerator-type=H100" in _value(first.args, "labels")
    assert "TPU_NAME" not in first.env


def test_cpu_hosts_have_exactly_the_cpus():
    fleet = _fleet(Part("main", "cpu", None, 2))
    (host,) = plan_hosts(held_units(_grants(fleet.pools[0], 1), _pools(fleet)), "127.1.1.1")
    assert _value(host.args, "num-cpus") == "2"
    assert _value(host.args, "num-gpus") == "0"
    assert host.env["JAX_NUM_CPU_DEVICES"] == "2"


@pytest.mark.parametrize("chip", [chip for chip in accelerators() if chip.kind == "tpu"], ids=lambda chip: chip.name)
def test_every_tpu_shape_can_be_planned(chip):
    for reading in chip.shapes[:12]:
        pool = Pool("p", chip.name, reading.topology, reading.machine, reading.chips, reading.hosts, 1, emulated=True)
        grant = Grant("main", 0, "p", "p-0", 1, reading.chips, reading.hosts)
        hosts = plan_hosts(held_units([grant], {"p": pool}), "127.1.1.1")
        assert sum(host.devices for host in hosts) == reading.chips
        assert len({host.address for host in hosts}) == reading.hosts


def test_a_plan_tells_the_attempt_who_it_is(tmp_path: Path):
    folder = attempt_folder(tmp_path, "k1", 2)
    launch = _launch(V6E, 2, "train", entrypoint="m:f", args=["x"], framework="torch",
                     env={"EPOCHS": "3", "RAY_AUTH_MODE": "disabled"})  # fmt: skip
    plan = make_plan(tmp_path, folder, launch, {})
    try:
        context = json.loads(plan["protected"]["STELLWERK_CONTEXT"])
        assert (context["slices"], context["hosts"], context["chips"], context["chips_per_host"]) == (2, 8, 32, 4)
        assert (context["name"], context["attempt"], context["kind"], context["emulated"]) == ("name", 2, "train", True)
        assert Path(context["checkpoint_dir"]).is_dir()
        assert plan["entrypoint"][-5:] == ["--framework", "torch", "--", "m:f", "x"]
        assert plan["protected"]["RAY_AUTH_MODE"] == "token"
        assert plan["marker"] == marker(tmp_path, "k1", 2)
        folder.create(plan)
        assert folder.plan() == plan
        assert (folder.path / "plan.json").stat().st_mode & 0o777 == 0o600
        assert Path(plan["run_dir"]).stat().st_mode & 0o777 == 0o700
        assert len(plan["run_dir"]) < 20
    finally:
        os.rmdir(plan["run_dir"])


def test_real_gpus_are_not_given_twice(tmp_path: Path):
    pool = Pool("h100-here", "h100", None, None, 8, 1, 1, emulated=False)
    command = StartAttempt("k", 1, 0, (Grant("main", 0, pool.name, "h100-here-0", 1, 3, 1),))
    part = Part("main", "h100", None, 3)
    launch = Launch(command, "n", "cluster", Option("h100:3", (part,)), {}, Fleet((pool,)))
    plan = make_plan(tmp_path, attempt_folder(tmp_path, "k", 1), launch, {"h100-here-0": {0, 1, 4}})
    try:
        assert plan["gpus"] == {"h100-here-0": [2, 3, 5]}
        assert plan["hosts"][0]["env"]["CUDA_VISIBLE_DEVICES"] == "2,3,5"
        assert "JAX_PLATFORMS" not in plan["hosts"][0]["env"]
        assert plan["entrypoint"] is None
    finally:
        os.rmdir(plan["run_dir"])


def test_two_homes_have_nothing_in_common(tmp_path: Path):
    one, two = marker(tmp_path / "a", "k", 1), marker(tmp_path / "b", "k", 1)
    assert one != two
    assert network(one) != network(two)
    folders = make_run_dir(one), make_run_dir(two)
    assert folders[0] != folders[1]
    for folder in folders:
        folder.rmdir()


def test_a_run_folder_that_somebody_else_made_is_not_used(tmp_path: Path):
    mark = marker(tmp_path, "k", 1)
    wanted = make_run_dir(mark)
    wanted.chmod(0o755)
    other = make_run_dir(mark)
    assert other != wanted
    wanted.rmdir()
    other.rmdir()


def test_the_default_fleet_has_a_pool_per_hardware():
    asked = [V6E, V6E, Part("m", "tpu-v6e", "2x2", 4), Part("m", "h100", None, 16), Part("m", "h100", None, 2),
             Part("m", "cpu", None, 2), Part("m", "nothing", None, 1), Part("m", "tpu-v6e", "3x3", 9),
             Part("m", "h100", None, 8, market="spot")]  # fmt: skip
    pools = capacity.default_fleet(asked)
    names = ["tpu-v6e-4x4-ct6e-standard-4t", "tpu-v6e-2x2", "h100-8", "h100-2", "cpu-2", "h100-8-spot"]
    assert [pool.name for pool in pools] == names
    assert all(pool.maximum == capacity.machine_memory() // pool.footprint for pool in pools)
    assert all(pool.emulated for pool in pools if pool.accelerator != "cpu")
    assert pools[0].price and pools[0].price > 0


@given(st.integers(1, 64), st.integers(1, 8))
def test_a_footprint_grows_with_hosts_and_chips(hosts: int, chips: int):
    size = capacity.footprint("tpu-v6e", hosts, hosts * chips)
    assert size < capacity.footprint("tpu-v6e", hosts + 1, hosts * chips + chips)


def test_device_files_are_looked_for(tmp_path: Path):
    assert not detect.has_devices(tmp_path)
    (tmp_path / "dev/vfio").mkdir(parents=True)
    (tmp_path / "dev/vfio/vfio").touch()
    assert not detect.has_devices(tmp_path)
    (tmp_path / "dev/vfio/0").touch()
    assert detect.has_devices(tmp_path)


@pytest.mark.parametrize(
    ("code", "oom", "outcome", "cause", "exit_code"),
    [
        (0, False, "succeeded", None, 0),
        (3, False, "failed", "user-error", 3),
        (-9, False, "failed", "infrastructure", None),
        (-15, True, "failed", "infrastructure", None),
        (-9, True, "failed", "out-of-memory", None),
        (-11, True, "failed", "user-error", 139),
    ],
)
def test_a_driver_without_a_word_is_judged_by_its_exit(tmp_path, code, oom, outcome, cause, exit_code):
    ending = driver_ending(tmp_path / "none", code, oom)
    assert (ending.outcome, ending.cause, ending.exit_code) == (outcome, cause, exit_code)


def test_the_drivers_own_word_counts(tmp_path: Path):
    file = tmp_path / "outcome.json"
    file.write_text('{"exit_code": 1, "cause": "out-of-memory", "message": "too large", "exception": "MemoryError"}')
    ending = driver_ending(file, -9, False)
    assert (ending.outcome, ending.cause, ending.message) == ("failed", "out-of-memory", "too large")
    assert stop_ending("run-limit", ending).to_json()["outcome"] == "stopped"


def test_worker_output_is_gathered_and_shown_to_the_driver(tmp_path: Path):
    source, head, target = tmp_path / "host", tmp_path / "head", tmp_path / "host.log"
    source.mkdir()
    head.mkdir()
    log = HostLog(source, target, head)
    (source / "worker-1.out").write_text(":job_id:01000000\n:actor_name:A\nfirst\nhal")
    (source / "raylet.out").write_text("no\n")
    log.poll()
    with (source / "worker-1.out").open("a") as file:
        file.write("f\n")
    log.poll()
    assert target.read_text() == "first\nhalf\n"
    assert (head / "worker-1.out").read_text().endswith("half\n")


def test_reports_that_are_none_are_passed_over(tmp_path: Path):
    file = tmp_path / "reports.jsonl"
    reports = Reports(file)
    assert reports.poll() == []
    file.write_text('{"step": 1}\nnonsense\n[1]\n{"step": 2, "checkpoint": "c"}\n{"st')
    assert [report["step"] for report in reports.poll()] == [1, 2]
    assert reports.poll() == []


def test_acknowledged_records_are_remembered(tmp_path: Path):
    folder = AttemptFolder(tmp_path / "k" / "attempt-3")
    folder.path.mkdir(parents=True)
    assert (folder.workload, folder.attempt, folder.acked(), folder.kept()) == ("k", 3, 0, False)
    folder.ack(7)
    assert folder.acked() == 7
