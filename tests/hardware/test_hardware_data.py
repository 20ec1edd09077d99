"""The data files and the catalogue made from them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stellwerk.hardware as hardware
from stellwerk.hardware import HardwareError, accelerator, accelerators, source, to_json

STABLE = [
    "name",
    "kind",
    "spellings",
    "chips_per_host",
    "shapes",
    "memory_gib",
    "flops_bf16",
    "price_per_chip_hour",
    "sources",
]


def test_every_source_is_in_the_table():
    for acc in accelerators():
        for key in acc.sources:
            assert source(key).title
        for fact in acc.facts:
            assert set(fact.sources) <= set(acc.sources)
            assert (fact.value is None) == (not fact.sources)
        for item in (*acc.machines, *acc.prices):
            assert item.sources if hasattr(item, "sources") else item.source


@pytest.mark.parametrize(
    ("name", "memory", "tera"),
    [
        ("v2", 16, 46),
        ("v3", 32, 123),
        ("v4", 32, 275),
        ("v5e", 16, 197),
        ("v5p", 95, 459),
        ("v6e", 32, 918),
        ("v7x", 192, 2307),
        ("l4", 24, 121),
        ("a100-80g", 80, 312),
        ("h100", 80, 989.4),
        ("h200", 141, 989.5),
        ("b200", 180, 2250),
        ("mi300x", 192, 1307.4),
    ],
)
def test_memory_and_rate(name: str, memory: float, tera: float):
    acc = accelerator(name)
    assert acc.memory_gib == memory
    assert acc.flops_bf16 == pytest.approx(tera * 1e12)


def test_what_is_not_published_is_none():
    assert accelerator("t4").flops_bf16 is None
    assert accelerator("a10g").flops_bf16 is None
    assert accelerator("rtx-pro-6000").flops_bf16 is None
    assert accelerator("cpu").memory_gib is None
    assert accelerator("v7x").ops_int8 is None


def test_units_are_plausible():
    for acc in accelerators():
        if acc.flops_bf16 is not None:
            assert 1e13 < acc.flops_bf16 < 1e16
        if acc.memory_bandwidth is not None:
            assert 1e11 < acc.memory_bandwidth < 1e13
        if acc.flops_fp8 is not None:
            assert acc.flops_bf16 is not None
            assert acc.flops_fp8 >= acc.flops_bf16


def test_pods_hold_the_largest_slice():
    for acc in accelerators():
        if acc.kind == "tpu":
            assert acc.domain is not None
            assert max(found.chips for found in acc.shapes) <= acc.domain


def test_machines_are_named_once_per_cloud():
    for acc in accelerators():
        names = [(machine.cloud, machine.name) for machine in acc.machines if machine.name != "n1-*"]
        assert len(set(names)) == len(names)
        assert all(machine.chips > 0 for machine in acc.machines)


def test_hosts_of_known_machines():
    hosts = {m.name: (m.chips, m.vcpus, m.memory_gib) for acc in accelerators() for m in acc.machines}
    assert hosts["ct6e-standard-4t"] == (4, 180, 720)
    assert hosts["ct5lp-hightpu-8t"] == (8, 224, 384)
    assert hosts["ct5p-hightpu-4t"] == (4, 208, 448)
    assert hosts["a3-highgpu-8g"] == (8, None, None)


def test_gke_labels():
    assert accelerator("v6e").gke_label_key == "cloud.google.com/gke-tpu-accelerator"
    assert accelerator("h100").gke_labels == ("nvidia-h100-80gb", "nvidia-h100-mega-80gb")
    for acc in accelerators():
        labels = {machine.label for machine in acc.machines if machine.label}
        assert labels == set(acc.gke_labels)


def test_json_has_the_stable_keys_and_is_json():
    for acc in accelerators():
        found = json.loads(json.dumps(to_json(acc)))
        assert list(found)[: len(STABLE)] == STABLE
        assert len(found["shapes"]) == len(acc.shapes)
        for item in found["shapes"]:
            assert item["chips"] % item["hosts"] == 0
            assert item["chips"] // item["hosts"] in found["chips_per_host"]


def test_public_names_exist():
    assert sorted(hardware.__all__) == sorted(set(hardware.__all__))
    assert all(hasattr(hardware, name) for name in hardware.__all__)


def test_error_is_one_sentence_with_its_parts():
    error = HardwareError("x is wrong", found="x", allowed=tuple(map(str, range(20))), suggestion="3")
    assert str(error) == ("x is wrong; allowed: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more; did you mean 3?")
    assert isinstance(error, ValueError)


def test_import_reads_no_file_and_no_heavy_library():
    code = (
        "import sys, stellwerk.hardware as h\n"
        "from stellwerk.hardware.files import read\n"
        "assert read.cache_info().currsize == 0\n"
        "h.shape('v6e', '4x4'); h.price('h100')\n"
        "heavy = {'ray', 'jax', 'numpy', 'pydantic', 'sqlalchemy', 'importlib.resources', 'difflib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    root = str(Path(hardware.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": root})
