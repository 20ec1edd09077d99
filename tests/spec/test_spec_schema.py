from __future__ import annotations

import json

import jsonschema
import pytest

from stellwerk.spec import describe, fleet_schema, load_fleet, load_workload, workload_schema

WORKLOAD = jsonschema.Draft202012Validator(workload_schema())
WORKLOADS = [
    {"kind": "train", "entrypoint": "x.py", "options": ["tpu-v6e:4x4", "v6e:2x4*2@spot", "h100:16", "cpu:2"]},
    {"kind": "train", "entrypoint": "x.py", "options": ["tpu-v6e:4x4*1..4@spot"]},
    {
        "kind": "job",
        "entrypoint": "x",
        "options": [{"accelerator": "v6e", "topology": "4x4", "slices": {"min": 1, "max": 4}}],
    },
    {"kind": "job", "entrypoint": "x", "options": [{"accelerator": "v6e", "topology": "4x4", "slices": "1..4"}]},
    {
        "kind": "job",
        "entrypoint": ["a", "b"],
        "options": [{"accelerator": "h100", "count": 16, "runtime": "3h"}],
    },
    {
        "kind": "job",
        "entrypoint": "x",
        "options": ["cpu:1"],
        "limits": {"wait": "1d", "cost": "300 USD"},
        "priority": 3,
    },
    {
        "kind": "rl",
        "entrypoint": "x",
        "roles": {"a": {"count": 2}},
        "options": [{"a": "cpu:1", "patience": "1m"}],
    },
    {"kind": "rl", "entrypoint": "x", "roles": {"a": {"accelerator": "v6e", "topology": "4x4", "hosts": 4}}},
    {"kind": "cluster", "options": ["cpu:1"], "priority": "high", "idle": "1h"},
    {
        "kind": "pipeline",
        "steps": {"a": {"kind": "job", "entrypoint": "x", "options": ["cpu:1"], "after": []}},
    },
]
WRONG = [
    {"entrypoint": "x.py"},
    {"kind": "trian"},
    {"kind": "job", "entrypont": "x.py"},
    {"kind": "job", "options": ["v6e"]},
    {"kind": "job", "options": ["v6e:4x4@spto"]},
    {"kind": "job", "options": [{"accelerator": "h100", "cuont": 4}]},
    {"kind": "job", "options": ["v6e:4x4*1.4"]},
    {"kind": "job", "options": [{"accelerator": "v6e", "topology": "4x4", "slices": {"min": 1}}]},
    {"kind": "job", "limits": {"wait": "soon"}},
    {"kind": "job", "env": {"A": 3}},
]
FLEET = {
    "pools": [
        {
            "name": "a",
            "accelerator": "tpu-v6e",
            "topology": "4x4",
            "units": {"min": 0, "max": 2},
            "provision": "9m",
        },
        {"name": "b", "accelerator": "p100", "chips": 8, "units": 80},
        {"name": "c", "accelerator": "v6e", "topology": "4x4", "layout": "subslices", "units": 2},
        {"name": "d", "accelerator": "v5p", "topology": "8x8x8", "layout": "torus", "units": 8},
        {"name": "e", "accelerator": "v6e", "topology": "4x4", "market": "flex-start", "lifetime": "1d", "units": 2},
    ],
    "accelerators": {"p100": {"memory": "16GiB", "price": 1.46}},
    "queues": {"a": {"quota": {"v6e": 4}, "borrow": 3, "lend": False, "cohort": "x", "policy": "sjf"}},
    "policy": "backfill",
    "preempt": True,
}


@pytest.mark.parametrize("schema", [workload_schema(), fleet_schema()])
def test_schemas_are_schemas(schema: dict[str, object]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("declared", WORKLOADS)
def test_what_loads_is_valid_and_so_is_what_is_stored(declared: dict[str, object]) -> None:
    WORKLOAD.validate(declared)
    WORKLOAD.validate(describe(load_workload(declared)))


@pytest.mark.parametrize("declared", WRONG)
def test_what_is_wrong_is_underlined(declared: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        WORKLOAD.validate(declared)


def test_fleets() -> None:
    validator = jsonschema.Draft202012Validator(fleet_schema())
    validator.validate(FLEET)
    validator.validate(load_fleet(FLEET).model_dump(mode="json"))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**FLEET, "pols": []})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"pools": [{**FLEET["pools"][2], "layout": "cubes"}]})


def test_every_key_is_described() -> None:
    for schema in (workload_schema(), fleet_schema()):
        for name in ("Workload", "Option", "Limits", "Fleet", "Pool", "Queue", "UnitRange"):
            part = schema["$defs"].get(name, {})
            for key, value in {**part, **part.get("anyOf", [{}])[-1]}.get("properties", {}).items():
                assert value.get("description"), f"{name}.{key}"
