"""Whatever stands in a file or mapping: a workload or fleet, or problems with their places; never anything else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from stellwerk.spec import SpecError, check, describe, load_fleet, load_workload

WORKLOAD = """\
name: tiny-lm
kind: train
entrypoint: train.py
options:
  - tpu-v6e:4x4
  - tpu-v6e:2x4*2@spot
  - {accelerator: h100, count: 16, market: spot, runtime: 3h, patience: 10m}
  - {accelerator: v6e, topology: 2x4, hosts: 1, chips_per_host: 8, machine: ct6e-standard-8t}
queue: research
priority: normal
runtime: 2h
limits: {wait: 1d, start: 20m, run: 6h, cost: 300 USD}
retries: 2
env: {EPOCHS: "3"}
working_dir: .
"""
ROLES = """\
kind: rl
entrypoint: [python, rl.py]
roles: {learner: {count: 1}, generator: {count: 4}}
options:
  - {learner: tpu-v6e:4x4, generator: h100:8, runtime: 2h}
  - {learner: {accelerator: v5p, topology: 2x2x2}, generator: cpu:4, patience: 60}
"""
PIPELINE = """\
kind: pipeline
steps:
  load: {kind: job, entrypoint: load.py, options: [cpu:2]}
  train: {kind: train, entrypoint: train.py, options: [tpu-v6e:4x4], after: [load]}
"""
FLEET = """\
pools:
  - {name: trillium, accelerator: tpu-v6e, topology: 4x4, machine: ct6e-standard-4t, units: {min: 2, max: 4, buffer: 1}}
  - {name: spot, accelerator: h100, machine: a3-highgpu-8g, market: spot, units: {min: 0, max: 8}, provision: 9m}
  - {name: philly, accelerator: p100, chips: 8, units: 80}
accelerators: {p100: {memory: 16GiB, price: 1.46}}
prices: {tpu-v6e@spot: 1.2}
queues:
  research: {quota: {tpu-v6e: 32, h100: 16}, weight: 2, borrow: 8}
  prod: {quota: {tpu-v6e: 32}, weight: 1, lend: false}
"""
SEEDS = [WORKLOAD, ROLES, PIPELINE, FLEET]
KEYS = [
    "name",
    "kind",
    "entrypoint",
    "options",
    "queue",
    "priority",
    "runtime",
    "limits",
    "retries",
    "env",
    "working_dir",
    "args",
    "roles",
    "steps",
    "after",
    "cluster",
    "framework",
    "input",
    "output",
    "space",
    "trials",
    "idle",
    "accelerator",
    "topology",
    "slices",
    "count",
    "machine",
    "market",
    "hosts",
    "chips_per_host",
    "patience",
    "learner",
    "wait",
    "start",
    "run",
    "cost",
    "pools",
    "queues",
    "accelerators",
    "prices",
    "units",
    "min",
    "max",
    "buffer",
    "chips",
    "price",
    "provision",
    "quota",
    "weight",
    "borrow",
    "lend",
    "policy",
    "memory",
    "apiVersion",
]
WORDS = [
    "v6e:4x4",
    "tpu-v6e",
    "h100:8",
    "4x4",
    "2x4",
    "2h",
    "300 USD",
    "16GiB",
    "job",
    "rl",
    "pipeline",
    "spot",
    "x",
    "",
]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(WORDS)
keys = st.sampled_from(KEYS) | st.text(max_size=6)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=10,
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def loads_or_has_problems(file: Path) -> None:
    for load in (load_workload, load_fleet):
        try:
            load(file)
        except SpecError as error:
            assert error.problems
            for problem in error.problems:
                assert problem.file == str(file)
                assert problem.line is not None
                assert problem.line >= 1
                assert problem.column is not None
                assert problem.column >= 1
                assert problem.render().isprintable()
    check([file])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spec") / "declared.yaml"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_seeds_load(seed: str, file: Path) -> None:
    file.write_text(seed)
    assert [problem for problem in check([file]) if problem.severity == "error"] == []


@given(st.binary(max_size=400))
@quick
def test_any_bytes(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    loads_or_has_problems(file)


@given(st.sampled_from(SEEDS), st.data())
@quick
def test_valid_files_with_a_piece_replaced(file: Path, seed: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(seed)))
    end = data.draw(st.integers(start, min(len(seed), start + 12)))
    file.write_bytes(
        (seed[:start] + data.draw(st.text(max_size=6))).encode("utf-8", "surrogatepass") + seed[end:].encode()
    )
    loads_or_has_problems(file)


def paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path] + [found for key, child in inner for found in paths(child, (*path, key))]


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@given(st.sampled_from(SEEDS), st.data())
@quick
def test_valid_files_with_a_value_replaced(file: Path, seed: str, data: st.DataObject) -> None:
    tree = YAML(typ="safe", pure=True).load(seed)
    changed = replaced(tree, data.draw(st.sampled_from(paths(tree))), data.draw(trees))
    with io.StringIO() as stream:
        YAML(typ="safe", pure=True).dump(changed, stream)
        file.write_bytes(stream.getvalue().encode("utf-8", "surrogatepass"))
    loads_or_has_problems(file)


@given(st.dictionaries(keys, trees, max_size=8))
@quick
def test_any_mapping(declared: dict[str, Any]) -> None:
    for load in (load_workload, load_fleet):
        try:
            load(declared)
        except SpecError as error:
            assert error.problems


durations = st.sampled_from(["90s", "2h", "1h30m"]) | st.floats(0, 1e6)
options = st.sampled_from(
    ["v6e:4x4", "v6e:2x4*3@spot", "h100:12", "cpu:2", "v5p:2x2x2@reserved"]
) | st.fixed_dictionaries(
    {"accelerator": st.just("h200"), "count": st.integers(1, 64)},
    optional={"runtime": durations, "patience": durations},
)


names = st.from_regex(r"\A[a-z]([a-z0-9-]{0,20}[a-z0-9])?\Z")
texts = st.text(st.characters(exclude_characters="\0"), max_size=9)
workloads = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["job", "train", "serve"]),
        "entrypoint": st.just("x.py"),
        "options": st.lists(options, min_size=1, max_size=5),
    },
    optional={
        "name": names,
        "priority": st.integers(-1000, 1000),
        "runtime": durations,
        "retries": st.integers(0, 9),
        "args": st.lists(st.text(max_size=5), max_size=3),
        "env": st.dictionaries(st.from_regex(r"\A[A-Z_][A-Z0-9_]{0,8}\Z"), texts, max_size=3),
        "limits": st.dictionaries(st.sampled_from(["wait", "start", "run"]), durations),
    },
)


@given(workloads)
@quick
def test_a_workload_is_stored_and_read_back(declared: dict[str, Any]) -> None:
    workload = load_workload(declared)
    stored = describe(workload)
    assert load_workload(stored) == workload
    assert describe(load_workload(stored)) == stored
