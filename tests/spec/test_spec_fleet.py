from __future__ import annotations

from pathlib import Path

import pytest

from stellwerk.spec import Fleet, SpecError, load_fleet

FLEET = """\
pools:
  - name: trillium
    accelerator: tpu-v6e
    topology: 4x4
    machine: ct6e-standard-4t
    units: {min: 2, max: 4, buffer: 1}
    provision: 9m
  - {name: h100-spot, accelerator: h100, machine: a3-highgpu-8g, market: spot, units: {min: 0, max: 8}}
  - {name: philly, accelerator: p100, chips: 8, units: 80}
accelerators: {p100: {memory: 16GiB, price: 1.46}}
queues:
  research: {quota: {tpu-v6e: 32, h100: 16}, weight: 2}
  prod:     {quota: {TPU-V6E: 32}, weight: 1, lend: false}
  other:
"""


def fleet(pool: dict[str, object] | None = None, **more: object) -> Fleet:
    default = {"name": "a", "accelerator": "v6e", "topology": "4x4", "units": 1}
    return load_fleet({"pools": [{**default, **(pool or {})}], **more})


def refusal(pool: dict[str, object] | None = None, **more: object) -> str:
    with pytest.raises(SpecError) as caught:
        fleet(pool, **more)
    return str(caught.value)


def test_the_full_example(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    loaded = load_fleet(file)
    trillium, spot, philly = loaded.pools
    assert (trillium.chips, trillium.hosts, trillium.chips_per_host, trillium.market) == (
        16,
        4,
        4,
        "on-demand",
    )
    assert (trillium.units.min, trillium.units.max, trillium.units.buffer) == (2, 4, 1)
    assert trillium.provision == 540
    assert (spot.chips, spot.hosts, spot.market) == (8, 1, "spot")
    assert (philly.accelerator, philly.chips, philly.hosts) == ("p100", 8, 1)
    assert (philly.units.min, philly.units.max) == (80, 80)
    assert loaded.accelerators["p100"].memory == 16 << 30
    assert loaded.queues["prod"].quota == {"tpu-v6e": 32}
    assert (loaded.queues["prod"].lend, loaded.queues["prod"].borrow) == (False, True)
    assert loaded.queues["other"].quota == {}
    assert loaded.price(philly) == 1.46
    assert loaded.warnings == ()
    assert load_fleet(loaded) == loaded


def test_an_ambiguous_pool_is_refused() -> None:
    text = refusal({"topology": "2x4"})
    assert "error[ambiguous-topology]" in text
    assert "write machine: ct6e-standard-4t or ct6e-standard-8t" in text
    assert fleet({"topology": "2x4", "machine": "ct6e-standard-8t"}).pools[0].hosts == 1
    assert fleet({"topology": "2x4", "hosts": 2}).pools[0].machine == "ct6e-standard-4t"


def test_hosts_against_the_shape() -> None:
    assert "4 hosts of 4 chips, not 2 hosts" in refusal({"hosts": 2})
    assert "`chips` is 8, but a 4x4 of tpu-v6e has 16" in refusal({"chips": 8})


def test_gpu_and_cpu_pools() -> None:
    assert "needs `machine` or `chips`" in refusal({"accelerator": "h100", "topology": None})
    assert "`topology` is for TPUs" in refusal({"accelerator": "h100"})
    assert "did you mean a3-highgpu-8g?" in refusal(
        {"accelerator": "h100", "topology": None, "machine": "a3-highgpu-8"}
    )
    assert "must be" in refusal({"accelerator": "h100", "topology": None, "machine": "a3-highgpu-8g", "chips": 4})
    assert "must be" in refusal({"accelerator": "h100", "topology": None, "chips": 9, "hosts": 2})
    rack = fleet({"accelerator": "gb200", "topology": None, "chips": 72, "hosts": 18}).pools[0]
    assert (rack.chips, rack.hosts, rack.chips_per_host) == (72, 18, 4)
    assert fleet({"accelerator": "cpu", "topology": None, "chips": 64}).pools[0].chips == 64


def test_units() -> None:
    assert "more than `max`" in refusal({"units": {"min": 5, "max": 4}})
    assert "more than `max`" in refusal({"units": {"max": 4, "buffer": 5}})
    assert "not a number of units" in refusal({"units": "4"})
    assert "`max` is missing" in refusal({"units": {"min": 4}})
    assert fleet({"units": {"max": 4}}).pools[0].units.min == 0


def test_names() -> None:
    pool = {"name": "a", "accelerator": "cpu", "chips": 2, "units": 1}
    with pytest.raises(SpecError, match="a pool named a exists already"):
        load_fleet({"pools": [pool, pool]})
    assert "is not the key" in refusal(queues={"a": {"name": "b"}})
    assert "error[name]" in refusal(queues={"Bad": {}})
    with pytest.raises(SpecError, match="`pools` is missing"):
        load_fleet({"queues": {}})
    with pytest.raises(SpecError, match="`pools` is empty"):
        load_fleet({"pools": []})


def test_quotas_and_prices() -> None:
    assert "did you mean tpu-v6e?" in refusal(queues={"a": {"quota": {"ct6e": 4}}})
    assert "is given twice" in refusal(queues={"a": {"quota": {"v6e": 4, "tpu-v6e": 4}}})
    assert "only the accelerator belongs here" in refusal(queues={"a": {"quota": {"v6e-16": 4}}})
    assert "neither true, false nor" in refusal(queues={"a": {"borrow": "yes"}})
    assert [problem.code for problem in fleet(queues={"a": {"quota": {"h100": 4}}}).warnings] == ["unused-quota"]
    priced = fleet({"market": "spot"}, prices={"v6e": 2, "TPU-V6E@spot": 1})
    assert priced.prices == {"tpu-v6e": 2, "tpu-v6e@spot": 1}
    assert priced.price(priced.pools[0]) == 1
    assert fleet({"price": 3}, prices={"v6e": 2}).price(fleet({"price": 3}).pools[0]) == 3
    assert fleet().price(fleet().pools[0]) is not None, "the list price"


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        """\
pools:
  - {name: a, accelerator: v6e, topology: 2x4, units: 4}
  - {name: b, accelerator: v6e, topology: 4x4, hosts: 2, units: 4}
  - {name: c, accelerator: h100, units: {min: 5, max: 4}}
  - {name: d, accelerator: p100, units: 80}
  - {name: e, acelerator: h100, units: 80}
queues:
  a: {quota: {nothing: 1}}
  b: {weigth: 2}
"""
    )
    with pytest.raises(SpecError) as caught:
        load_fleet(file)
    assert [(problem.line, problem.code) for problem in caught.value.problems] == [
        (2, "ambiguous-topology"), (3, "host-count"), (4, "units"), (5, "accelerator-not-covered"),
        (6, "missing-key"), (6, "unknown-key"), (8, "unknown-accelerator"), (9, "unknown-key"),
    ]  # fmt: skip


def test_what_is_no_fleet() -> None:
    with pytest.raises(SpecError, match="this declares a workload"):
        load_fleet({"kind": "job"})
