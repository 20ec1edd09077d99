"""What `fleet show` says: what is free, the largest that still fits, fragmentation, where parts of units lie."""

from __future__ import annotations

from typing import Any

from controller_world import SmallMachine, job

from stellwerk import spec
from stellwerk.cli.fleet import _POOLS, _QUEUES, _UNITS  # pyright: ignore[reportPrivateUsage]
from stellwerk.controller import planning, views
from stellwerk.controller.intake import demand, fleet
from stellwerk.scheduling.commands import ProvisionUnit, StartAttempt
from stellwerk.scheduling.events import AttemptEnded, AttemptStarted, FleetChanged, Submitted, UnitAppeared
from stellwerk.scheduling.scheduler import Scheduler

SHARED = {"name": "shared", "accelerator": "tpu-v6e", "topology": "4x4", "layout": "subslices", "units": 2}
POD = {"name": "pod", "accelerator": "tpu-v5p", "topology": "4x4x16", "layout": "torus", "units": 4}
NODES = {"name": "nodes", "accelerator": "h100", "chips": 8, "units": 2}


def scheduler_of(*pools: dict[str, Any], **more: Any) -> Scheduler:
    declared = spec.load_fleet({"pools": list(pools), **more})
    scheduler = Scheduler(validate=True)
    for command in scheduler.handle(FleetChanged(0.0, fleet(declared, SmallMachine(memory=None)))):
        if isinstance(command, ProvisionUnit):
            scheduler.handle(UnitAppeared(0.0, command.pool, command.unit, command.incarnation))
    return scheduler


def run(scheduler: Scheduler, name: str, option: Any) -> None:
    for command in scheduler.handle(Submitted(0.0, demand(job(name, option), name, name))):
        if isinstance(command, StartAttempt):
            scheduler.handle(AttemptStarted(0.0, command.workload, command.attempt))


def shown(scheduler: Scheduler, pool: str) -> dict[str, Any]:
    return next(each for each in views.fleet(scheduler)["pools"] if each["name"] == pool)


def test_parts_of_units_have_their_place_and_the_rest_its_largest_shape() -> None:
    scheduler = scheduler_of(SHARED)
    assert (shown(scheduler, "shared")["free_chips"], shown(scheduler, "shared")["fragmentation"]) == (32, 0.0)
    assert shown(scheduler, "shared")["largest_free"] == {"chips": 16, "shape": "4x4"}
    for name in ("a", "b", "c", "d", "e"):
        run(scheduler, name, "tpu-v6e:2x2")
    for name in ("a", "c", "d"):
        scheduler.handle(AttemptEnded(1.0, name, 1, "succeeded"))
    found = shown(scheduler, "shared")
    assert (found["layout"], found["free_chips"]) == ("subslices", 24)
    assert found["largest_free"] == {"chips": 8, "shape": "2x4"}
    assert found["fragmentation"] == 0.5
    first, second = found["units"]
    assert [(each["workload"], each["chips"]) for each in first["placements"]] == [("b", 4)]
    assert first["placements"][0]["place"].endswith("/2x2") and second["placements"][0]["workload"] == "e"
    assert (first["free_chips"], second["free_chips"]) == (12, 12)
    row = {"pool": "shared", **first}
    assert [column.show(row) for column in _UNITS][-1] == f"b ({first['placements'][0]['place']})"
    assert [column.show(found) for column in _POOLS][-2:] == ["24", "2x4 (50% fragmented)"]


def test_a_unit_held_whole_has_no_place_and_a_full_pool_no_shape() -> None:
    scheduler = scheduler_of({**SHARED, "layout": "units", "units": 1})
    run(scheduler, "a", "tpu-v6e:4x4")
    found = shown(scheduler, "shared")
    assert found["units"][0]["placements"] == [{"workload": "a", "place": None, "chips": 16}]
    assert (found["largest_free"], found["fragmentation"], found["free_chips"]) == (None, 0.0, 0)
    assert [column.show(found) for column in _POOLS][-1] == "nothing"


def test_cubes_of_a_pod_say_of_which_box_they_are() -> None:
    scheduler = scheduler_of(POD)
    run(scheduler, "a", "tpu-v5p:4x4x8")
    found = shown(scheduler, "pod")
    assert found["largest_free"] == {"chips": 128, "shape": "4x4x8"}
    assert [unit["placements"][0]["place"] for unit in found["units"] if unit["placements"]] == ["0,0,0/4x4x8"] * 2
    assert found["topology"] == "4x4x16" and found["units"][0]["chips"] == 64


def test_gpu_nodes_are_fragmented_by_what_is_left_on_each() -> None:
    scheduler = scheduler_of(NODES)
    run(scheduler, "a", "h100:5")
    run(scheduler, "b", "h100:6")
    found = shown(scheduler, "nodes")
    assert (found["free_chips"], found["largest_free"]["chips"], found["fragmentation"]) == (5, 3, 0.4)


def test_queues_and_policies_are_told() -> None:
    queues = {"a": {"quota": {"h100": 8}, "cohort": "x", "borrow": 4, "lend": False, "policy": "sjf"}, "b": {}}
    found = views.fleet(scheduler_of(NODES, queues=queues, policy="backfill", preempt=True))
    assert (found["policy"], found["preempt"]) == ("backfill", True)
    a, b = found["queues"]
    assert (a["cohort"], a["borrow"], a["lend"], a["policy"]) == ("x", 4, 0, "sjf")
    assert (b["cohort"], b["borrow"], b["lend"], b["policy"]) == (None, None, None, None)
    assert [column.show(a) for column in _QUEUES][2:] == ["h100 8", "x", "4 chips", "nothing", "sjf"]
    assert [column.show(b) for column in _QUEUES][2:] == ["unlimited", "", "all that is lent", "all", ""]


def test_a_plan_on_shared_units_and_of_an_elastic_workload() -> None:
    declared = spec.load_fleet({"pools": [SHARED]})
    machine = SmallMachine()
    small = planning.plan(job("s", "tpu-v6e:2x2"), declared, now=0.0, machine=machine).to_json()["options"][0]
    assert (small["verdict"], small["units"], small["hosts"], small["chips"]) == ("now", 1, 1, 4)
    half = {"accelerator": "tpu-v6e", "topology": "2x4", "chips_per_host": 4}
    two = planning.plan(job("h", half), declared, now=0.0, machine=machine).to_json()["options"][0]
    assert (two["verdict"], two["hosts"], two["chips"]) == ("now", 2, 8)
    elastic = planning.plan(job("e", "tpu-v6e:4x4*1..4"), declared, now=0.0, machine=machine).to_json()["options"][0]
    assert (elastic["option"], elastic["verdict"], elastic["units"], elastic["chips"]) == (
        "tpu-v6e:4x4*1..4",
        "now",
        1,
        16,
    )
