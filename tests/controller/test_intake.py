from __future__ import annotations

from typing import Any

from controller_world import SmallMachine, job
from pytest import mark, raises

from stellwerk import spec
from stellwerk.controller import intake
from stellwerk.controller.intake import Unsupported
from stellwerk.scheduling.model import Fleet, Part

GIB = 2**30


def _fleet(**keys: Any) -> spec.Fleet:
    return spec.load_fleet(keys)


def _options(*options: Any) -> tuple[Part, ...]:
    return tuple(part for option in intake.demand(job("n", *options), "k", "n").options for part in option.parts)


def test_options_become_parts_of_whole_groups() -> None:
    assert _options("tpu-v6e:4x4*2@spot", "h100:16", "cpu:2") == (
        Part("main", "tpu-v6e", "4x4", 16, count=2, market="spot"),
        Part("main", "h100", None, 16),
        Part("main", "cpu", None, 2),
    )


def test_every_role_of_an_option_becomes_a_part() -> None:
    roles = {
        "learner": {"accelerator": "tpu-v6e", "topology": "4x4"},
        "actor": {"count": 3, "accelerator": "v5litepod", "topology": "2x2"},
    }
    workload = spec.load_workload({"kind": "job", "entrypoint": "x.py", "roles": roles})
    (option,) = intake.demand(workload, "k", "n").options
    assert option.parts == (Part("learner", "tpu-v6e", "4x4", 16), Part("actor", "tpu-v5e", "2x2", 4, count=3))


def test_everything_that_decides_comes_along() -> None:
    option: Any = {"accelerator": "h100", "count": 8, "patience": "10m", "runtime": "1h"}
    limits = {"wait": "1d", "start": "20m", "run": "6h", "cost": "300 USD"}
    workload = job("n", option, queue="research", priority="high", runtime="2h", retries=3, limits=limits)
    demand = intake.demand(workload, "key", "name")
    assert (demand.key, demand.name, demand.queue) == ("key", "name", "research")
    assert (demand.priority, demand.retries) == (100, 3)
    assert (demand.limits.wait, demand.limits.start, demand.limits.run, demand.limits.cost) == (86400, 1200, 21600, 300)
    assert (demand.runtime, demand.options[0].patience, demand.options[0].runtime) == (7200, 600, 3600)


def test_a_declared_fleet_is_played_by_the_machine() -> None:
    pools = [
        {
            "name": "trillium",
            "accelerator": "v6e",
            "topology": "4x4",
            "units": {"min": 1, "max": 4, "buffer": 1},
            "provision": "9m",
            "idle": "1m",
        },
        {"name": "spot", "accelerator": "h100", "machine": "a3-highgpu-8g", "market": "spot", "units": 2, "price": 1.5},
        {"name": "philly", "accelerator": "p100", "chips": 8, "units": 80},
    ]
    declared = _fleet(
        pools=pools,
        queues={"research": {"quota": {"v6e": 32}, "weight": 2, "borrow": 8, "lend": False}, "open": {}},
        accelerators={"p100": {"memory": "16GiB", "price": 1.46}},
        prices={"v6e": 2.0},
    )
    fleet = intake.fleet(declared, SmallMachine(memory=100 * GIB))
    trillium, spot, philly = fleet.pools
    assert (trillium.accelerator, trillium.chips, trillium.hosts, trillium.machine) == (
        "tpu-v6e",
        16,
        4,
        "ct6e-standard-4t",
    )
    assert (trillium.minimum, trillium.maximum, trillium.buffer, trillium.provision, trillium.idle) == (
        1,
        4,
        1,
        540,
        60,
    )
    assert (trillium.footprint, trillium.emulated, fleet.memory) == (4 * GIB, True, 100 * GIB)
    assert [pool.price for pool in fleet.pools] == [2.0, 1.5, 1.46]
    assert (spot.market, spot.chips, philly.chips, philly.idle) == ("spot", 8, 8, 600)
    research, unlimited = fleet.queues
    assert (research.quota, research.weight, research.borrow, research.lend) == ((("tpu-v6e", 32),), 2, 8, 0)
    assert (unlimited.quota, unlimited.borrow, unlimited.lend) == (None, None, None)


def test_prices_are_list_prices_or_unknown() -> None:
    known = intake.list_price("tpu-v6e", "on-demand")
    assert known is not None and known > 0
    assert intake.list_price("p100-of-ours", "on-demand") is None
    assert intake.list_price("cpu", "on-demand") is None


def test_pools_come_into_being_once() -> None:
    machine = SmallMachine()
    options = intake.demand(job("n", "tpu-v6e:4x4*2", "tpu-v6e:4x4"), "k", "n").options
    first = intake.grown(Fleet(), options, machine)
    assert [pool.name for pool in first.pools] == ["tpu-v6e-4x4"]
    assert first.pools[0].price == intake.list_price("tpu-v6e", "on-demand")
    assert intake.grown(first, options, machine) is first
    more = intake.grown(first, intake.demand(job("n", "h100:8"), "k", "n").options, machine)
    assert [pool.name for pool in more.pools] == ["tpu-v6e-4x4", "h100"]


@mark.parametrize("kind", ["batch", "serve", "tune", "rl"])
def test_kinds_that_come_later_are_refused(kind: str) -> None:
    with raises(Unsupported, match=f"kind {kind} does not run yet; this version runs job, train and cluster"):
        intake.check_supported(job("n", kind=kind))


def test_hardware_must_be_said() -> None:
    workload = spec.Workload.model_validate({"kind": "job", "name": "n", "entrypoint": "x.py", "cluster": "other"})
    with raises(Unsupported):
        intake.check_supported(workload)
