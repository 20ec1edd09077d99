"""Sub-slices and slices of cubes as hosts; orders to grow and shrink, and what is known of them after a restart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.backends.local.folder import attempt_folder
from stellwerk.backends.local.hosts import allocation, held_units, plan_hosts
from stellwerk.backends.local.planning import make_plan
from stellwerk.backends.local.resizing import Resizing, resize_order
from stellwerk.backends.local.watching import Watch
from stellwerk.backends.protocol import Launch
from stellwerk.hardware import host_environment, shape
from stellwerk.scheduling.commands import ResizeAttempt, StartAttempt
from stellwerk.scheduling.model import Fleet, Grant, Option, Part, Pool

V6E = Pool("v", "tpu-v6e", "4x4", "ct6e-standard-4t", 16, 4, 4, emulated=True, layout="subslices")
ONE_HOST = Pool("v", "tpu-v6e", "2x4", "ct6e-standard-8t", 8, 1, 4, emulated=True, layout="subslices")
POD = Pool("p", "tpu-v5p", "8x8x8", "ct5p-hightpu-4t", 64, 16, 8, emulated=True, layout="optical")


def part(topology: str, chips: int) -> Part:
    return Part("main", "tpu-v6e", topology, chips)


def test_a_sub_slice_is_a_slice_of_its_own_on_the_right_hosts() -> None:
    grants = [Grant("main", 0, "v", "v-1", 3, 8, 2, "2,0/2x4"), Grant("main", 1, "v", "v-1", 3, 8, 2, "0,0/2x4")]
    held = held_units(grants, {"v": V6E}, {"main": "2x4"})
    hosts = plan_hosts(held, "127.1.1.1")
    assert [(host.name, host.index) for host in hosts] == [
        ("v-1-at-2-0-host-2", 2), ("v-1-at-2-0-host-3", 3), ("v-1-at-0-0-host-0", 0), ("v-1-at-0-0-host-1", 1),
    ]  # fmt: skip
    real = host_environment(shape("tpu-v6e", "2x4", "ct6e-standard-4t"), "v-1-at-2-0", 1, ["127.1.1.2", "127.1.1.3"])
    assert real.items() <= hosts[1].env.items()
    assert (hosts[1].devices, hosts[1].env["STELLWERK_UNIT"]) == (4, "v-1-at-2-0")
    assert allocation(held) == {"units": ["v-1"], "slices": 2, "hosts": 4, "chips": 16}


def test_a_part_of_one_host_looks_like_a_host_of_its_own() -> None:
    grants = [Grant("main", 0, "v", "v-0", 1, 4, 1, "0,2/2x2"), Grant("main", 1, "v", "v-0", 1, 4, 1, "0,0/2x2")]
    first, second = plan_hosts(held_units(grants, {"v": ONE_HOST}, {"main": "2x2"}), "127.1.1.1")
    assert (first.name, second.name) == ("v-0-at-0-2-host-0", "v-0-at-0-0-host-0")
    assert (first.env["TPU_TOPOLOGY"], first.env["TPU_ACCELERATOR_TYPE"], first.devices) == ("2x2", "v6e-4", 4)


def test_a_slice_of_cubes_is_one_slice() -> None:
    grants = [Grant("main", 0, "p", f"p-{cube}", 1, 64, 16) for cube in (3, 6)]
    held = held_units(grants, {"p": POD}, {"main": "4x4x8"})
    hosts = plan_hosts(held, "127.1.1.1")
    assert len({host.name for host in hosts}) == len({host.address for host in hosts}) == 32
    assert {host.env["TPU_NAME"] for host in hosts} == {"p-3"}
    assert [host.env["TPU_WORKER_ID"] for host in hosts] == [str(number) for number in range(32)]
    assert {host.env["TPU_TOPOLOGY"] for host in hosts} == {"4x4x8"}
    assert [host.index for host in hosts] == [*range(16), *range(16)]
    assert allocation(held) == {"units": ["p-3", "p-6"], "slices": 1, "hosts": 32, "chips": 128}


@pytest.mark.parametrize(("topology", "place", "hosts"), [("2x2", "2,2/2x2", [3]), ("4x4", "", [0, 1, 2, 3])])
def test_hosts_are_counted_within_the_unit(topology: str, place: str, hosts: list[int]) -> None:
    chips = 4 if place else 16
    grant = Grant("main", 0, "v", "v-0", 1, chips, len(hosts), place)
    assert [
        host.index for host in plan_hosts(held_units([grant], {"v": V6E}, {"main": topology}), "127.1.1.1")
    ] == hosts


WHOLE = Pool("w", "tpu-v6e", "2x2", "ct6e-standard-4t", 4, 1, 8, emulated=True)


def grants_of(*units: int, incarnation: int = 1) -> tuple[Grant, ...]:
    return tuple(Grant("main", number, "w", f"w-{unit}", incarnation, 4, 1) for number, unit in enumerate(units))


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    folder = attempt_folder(tmp_path, "k", 1)
    command = StartAttempt("k", 1, 0, grants_of(0, 1))
    option = Option("short", (part("2x2", 4),), minimum=1, maximum=8)
    plan = make_plan(tmp_path, folder, Launch(command, "n", "job", option, {"entrypoint": "x"}, Fleet((WHOLE,))), {})
    folder.create(plan)
    yield Watch(folder, lambda watch, record: None)
    os.rmdir(plan["run_dir"])


def order(watch: Watch, number: int, *units: int, incarnation: int = 1) -> dict[str, Any]:
    command = ResizeAttempt("k", 1, number, grants_of(*units, incarnation=incarnation))
    return json.loads(json.dumps(resize_order(watch.plan, watch.present, watch.numbers, command)))


def names(hosts: list[dict[str, Any]]) -> list[str]:
    return [host["name"].removesuffix("-host-0") for host in hosts]


def test_an_order_keeps_what_is_there_and_numbers_what_is_new(watch: Watch) -> None:
    grown = order(watch, 1, 0, 1, 4)
    assert grown["hosts"][:2] == watch.plan["hosts"]
    assert (grown["hosts"][2]["number"], grown["hosts"][2]["address"]) == (2, _after(watch.plan["address"], 3))
    assert (grown["units"], grown["resize"]) == ([["w-0", 1], ["w-1", 1], ["w-4", 1]], 1)
    assert (grown["context"]["slices"], grown["context"]["chips"], grown["context"]["name"]) == (3, 12, "n")
    found = Resizing.of(grown, watch.present, restart=False)
    assert (found.leaving, names(found.joining), found.units_left(watch.present)) == ([], ["w-4"], [])


def test_an_order_to_shrink_tells_who_leaves(watch: Watch) -> None:
    found = Resizing.of(order(watch, 1, 1), watch.present, restart=True)
    assert (found.leaving, found.joining, found.units_left(watch.present)) == (["w-0-host-0"], [], ["w-0"])
    told = found.told(["w-0"], 5.0, json.loads(watch.plan["protected"]["STELLWERK_CONTEXT"]))
    assert (told["units"], told["leaving"], told["deadline"]) == (["w-0", "w-1"], ["w-0"], 5.0)
    assert found.told((), None, None)["units"] == ["w-1"]


def test_the_same_size_again_disturbs_nobody(watch: Watch) -> None:
    found = Resizing.of(order(watch, 1, 0, 1), watch.present, restart=True)
    assert (found.leaving, found.joining, found.restart) == ([], [], False)


def test_a_rebuilt_unit_is_another_host(watch: Watch) -> None:
    again = order(watch, 1, 0, 1, incarnation=2)
    assert [host["number"] for host in again["hosts"]] == [2, 3]
    found = Resizing.of(again, watch.present, restart=False)
    assert (found.leaving, names(found.joining)) == (["w-0-host-0", "w-1-host-0"], ["w-0", "w-1"])


@given(st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_watch_that_reads_the_journal_again_knows_the_same(tmp_path_factory: Any, sizes: list[set[int]]) -> None:
    home = tmp_path_factory.mktemp("home")
    folder = attempt_folder(home, "k", 1)
    command = StartAttempt("k", 1, 0, grants_of(0, 1))
    option = Option("short", (part("2x2", 4),), minimum=1, maximum=8)
    plan = make_plan(home, folder, Launch(command, "n", "job", option, {"entrypoint": "x"}, Fleet((WHOLE,))), {})
    os.rmdir(plan["run_dir"])
    folder.create(plan)
    live = Watch(folder, lambda watch, record: None)
    numbers = [host["number"] for host in live.present]
    records: list[dict[str, Any]] = []
    for number, units in enumerate(sizes, 1):
        given_order = order(live, number, *sorted(units))
        kept = {"resize": number, "hosts": given_order["hosts"], "units": given_order["units"]}
        for kind in ("resizing", "resized"):
            records.append({"kind": kind, **kept})
            live.learn(records[-1])
            if kind == "resizing":
                assert {f"w-{unit}" for unit in units} <= set(live.units)
        numbers += [host["number"] for host in given_order["hosts"] if host["number"] not in numbers]
        assert live.units == {f"w-{unit}": 1 for unit in units}
    assert sorted(numbers) == list(range(len(numbers)))
    again = Watch(folder, lambda watch, record: None)
    for record in records:
        again.learn(record)
    assert (again.present, again.units, again.numbers) == (live.present, live.units, live.numbers)


def test_a_part_of_a_unit_leaves_by_its_name(tmp_path: Path) -> None:
    folder = attempt_folder(tmp_path, "k", 1)
    halves = tuple(Grant("main", group, "v", "v-1", 1, 8, 2, f"{2 * group},0/2x4") for group in (0, 1))
    option = Option("short", (part("2x4", 8),), minimum=1, maximum=2)
    launch = Launch(StartAttempt("k", 1, 0, halves), "n", "job", option, {"entrypoint": "x"}, Fleet((V6E,)))
    plan = make_plan(tmp_path, folder, launch, {})
    os.rmdir(plan["run_dir"])
    order = json.loads(json.dumps(resize_order(plan, plan["hosts"], 4, ResizeAttempt("k", 1, 1, halves[:1]))))
    found = Resizing.of(order, plan["hosts"], restart=False)
    assert found.leaving == ["v-1-at-2-0-host-2", "v-1-at-2-0-host-3"]
    assert (found.units_left(plan["hosts"]), order["units"]) == (["v-1-at-2-0"], [["v-1", 1]])
    assert (order["context"]["slices"], order["context"]["hosts"], order["context"]["chips"]) == (1, 2, 8)


def _after(address: str, steps: int) -> str:
    head, _, last = address.rpartition(".")
    return f"{head}.{int(last) + steps}"
