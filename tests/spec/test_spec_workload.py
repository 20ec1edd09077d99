from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stellwerk.spec import KINDS, SpecError, check, describe, load_workload

BASE = {"kind": "job", "name": "x", "entrypoint": "x.py", "options": ["cpu:2"]}
MINIMAL = {
    "cluster": {"kind": "cluster", "options": ["cpu:2"]},
    "pipeline": {
        "kind": "pipeline",
        "steps": {"a": {**BASE, "name": "a"}, "b": {**BASE, "name": "b", "after": ["a"]}},
    },
}


def codes(declared: dict[str, object], **more: object) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_workload(declared, **more)  # type: ignore[arg-type]
    return [problem.code for problem in caught.value.problems]


def message(declared: dict[str, object], **more: object) -> str:
    with pytest.raises(SpecError) as caught:
        load_workload(declared, **more)  # type: ignore[arg-type]
    return str(caught.value)


def test_the_full_example(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(
        """\
name: tiny-lm
kind: train
entrypoint: train.py
options:
  - tpu-v6e:4x4
  - tpu-v6e:2x4*2
  - {accelerator: h100, count: 16, market: spot, runtime: 3h}
queue: research
priority: normal
runtime: 2h
limits: {wait: 1d, start: 20m, run: 6h, cost: 300 USD}
retries: 2
env: {EPOCHS: "3"}
working_dir: .
"""
    )
    workload = load_workload(file)
    assert [choice.short for choice in workload.options] == ["tpu-v6e:4x4", "tpu-v6e:2x4*2", "h100:16@spot"]
    assert [choice.runtime for choice in workload.options] == [None, None, 10800]
    assert (workload.limits.wait, workload.limits.start, workload.limits.run) == (86400, 1200, 21600)
    assert workload.limits.cost == 300
    assert (workload.queue, workload.priority, workload.runtime, workload.retries) == ("research", 0, 7200, 2)
    assert workload.env == {"EPOCHS": "3"}
    assert workload.working_dir == str(tmp_path)
    assert [(problem.line, problem.column) for problem in workload.warnings] == [(6, 5)]
    assert load_workload(str(file)) == workload


def test_what_is_not_said(tmp_path: Path) -> None:
    file = tmp_path / "My Training.yaml"
    file.write_text("kind: job\nentrypoint: [python, train.py]\noptions: [cpu:2]\n")
    workload = load_workload(file)
    assert (workload.name, workload.queue, workload.priority, workload.retries) == (
        "my-training",
        "default",
        0,
        0,
    )
    assert workload.entrypoint == ("python", "train.py")
    assert workload.working_dir == str(tmp_path)
    assert workload.limits.model_dump() == {"wait": None, "start": None, "run": None, "cost": None}
    assert workload.options[0].parts[0].role == "main"
    assert workload.warnings == ()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_round_trips(kind: str) -> None:
    workload = load_workload(MINIMAL.get(kind, {**BASE, "kind": kind}))
    assert load_workload(describe(workload)) == workload
    assert load_workload(workload) == workload
    assert pickle.loads(pickle.dumps(workload)) == workload


def test_roles() -> None:
    declared = {
        "kind": "rl", "name": "x", "entrypoint": "rl.py",
        "roles": {"learner": {"count": 1}, "generator": {"count": 4}},
        "options": [
            {"learner": "v6e:4x4", "generator": "v6e:2x2", "runtime": "2h", "patience": 60},
            {"generator": "h100:2@spot", "learner": {"accelerator": "h100", "count": 8}},
        ],
    }  # fmt: skip
    workload = load_workload(declared)
    first, second = workload.options
    assert first.short == "learner=tpu-v6e:4x4 generator=4x(tpu-v6e:2x2)"
    assert (first.chips, first.runtime, first.patience) == (32, 7200, 60)
    assert [(part.role, part.count) for part in second.parts] == [("learner", 1), ("generator", 4)], "the roles' order"
    assert load_workload(describe(workload)) == workload


def test_roles_with_their_only_hardware() -> None:
    roles = {
        "learner": {"accelerator": "v6e:4x4"},
        "generator": {"count": 4, "accelerator": "v6e", "topology": "2x2"},
    }
    workload = load_workload({"kind": "rl", "name": "x", "entrypoint": "rl.py", "roles": roles})
    assert [choice.short for choice in workload.options] == ["learner=tpu-v6e:4x4 generator=4x(tpu-v6e:2x2)"]
    assert load_workload(describe(workload)) == workload


def test_roles_that_are_wrong() -> None:
    base = {"kind": "rl", "name": "x", "entrypoint": "rl.py"}
    both = {"learner": {"count": 1}, "generator": {}}
    assert codes({**base, "roles": both, "options": ["v6e:4x4"]}) == ["roles"]
    assert codes({**base, "roles": both, "options": [{"learner": "v6e:4x4"}]}) == ["missing-role"]
    assert codes({**base, "roles": {"main": {}}, "options": [{"main": "cpu:1"}]}) == ["role"]
    assert codes({**base, "roles": both}) == ["missing-key"]
    assert codes({**base, "roles": {"a": {"accelerator": "cpu:1"}}, "options": [{"a": "cpu:2"}]}) == ["misplaced-key"]
    assert codes({**base, "roles": {"a": {"accelerator": "cpu:1"}, "b": {}}}) == ["missing-role"]
    text = message({**base, "roles": both, "options": [{"learner": "v6e:4x4", "generatr": "cpu:1"}]})
    assert "did you mean generator?" in text


def test_kinds_and_their_keys() -> None:
    assert codes({**BASE, "framework": "jax"}) == ["misplaced-key"]
    assert codes({**BASE, "kind": "train", "framework": "jxa"}) == ["not-allowed"]
    assert codes({"kind": "cluster", "options": ["cpu:1"], "entrypoint": "x.py"}) == ["misplaced-key"]
    assert codes({"kind": "job", "options": ["cpu:1"]}) == ["missing-key"]
    assert codes({"kind": "job", "entrypoint": "x.py"}) == ["missing-key"]
    assert codes({"kind": "pipeline", "steps": {}, "options": ["cpu:1"]}) == ["misplaced-key"]
    assert codes({"entrypoint": "x.py", "options": ["cpu:1"]}) == ["missing-key"]
    assert load_workload({"kind": "cluster", "options": ["cpu:1"], "idle": "1h"}).idle == 3600
    assert codes({**BASE, "cluster": "mine"}) == ["misplaced-key"]
    shared = load_workload({"kind": "job", "entrypoint": "x.py", "cluster": "mine"})
    assert (shared.cluster, shared.options) == ("mine", ())
    assert load_workload(describe(shared)) == shared


def test_pipelines() -> None:
    step = {"kind": "job", "entrypoint": "x.py", "options": ["cpu:1"]}
    workload = load_workload({"kind": "pipeline", "steps": {"a": step, "b": {**step, "after": ["a"]}}})
    assert workload.steps is not None
    assert (workload.steps["b"].name, workload.steps["b"].after) == ("b", ("a",))
    circle = {"a": {**step, "after": ["b"]}, "b": {**step, "after": ["a"]}}
    assert codes({"kind": "pipeline", "steps": circle}) == ["circle"]
    assert codes({"kind": "pipeline", "steps": {"first": step, "b": {**step, "after": ["frist"]}}}) == ["unknown-step"]
    assert "did you mean topology?" in message(
        {"kind": "pipeline", "steps": {"a": {**step, "options": [{"accelerator": "v6e", "toplogy": "4x4"}]}}}
    )


def test_all_problems_are_found_at_once() -> None:
    declared = {
        **BASE, "kind": "jbo", "queue": "A", "retries": -1, "limits": {"run": "x", "stat": 1}, "env": {"1": "x"},
        "options": ["v6e:4x5", "v6e:4x4@spto"], "whatever": 1,
    }  # fmt: skip
    assert sorted(codes(declared)) == sorted(
        [
            "not-allowed",
            "name",
            "wrong-value",
            "duration",
            "unknown-key",
            "env",
            "illegal-topology",
            "market",
            "unknown-key",
        ]
    )


def test_overrides() -> None:
    workload = load_workload(BASE, overrides={"accelerator": "v6e:4x4", "name": "y", "queue": "q", "runtime": None})
    assert ([choice.short for choice in workload.options], workload.name, workload.queue) == (
        ["tpu-v6e:4x4"],
        "y",
        "q",
    )
    two = load_workload(BASE, overrides={"accelerator": ["v6e:4x4", "h100:8"]})
    assert [choice.short for choice in two.options] == ["tpu-v6e:4x4", "h100:8"]
    text = message(BASE, overrides={"accelerator": "v6e:4x5", "name": "No"})
    assert "--accelerator: error[illegal-topology]" in text
    assert "--name: error[name]" in text
    roles = {**BASE, "roles": {"a": {"accelerator": "cpu:1"}}}
    del roles["options"]
    assert codes(roles, overrides={"accelerator": "v6e:4x4"}) == ["roles"]


def test_working_folders(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    text = "kind: job\nentrypoint: x.py\noptions: [cpu:1]\nworking_dir: {}\n"
    (tmp_path / "code").mkdir()
    file.write_text(text.format("code"))
    assert load_workload(file).working_dir == str(tmp_path / "code")
    file.write_text(text.format("s3://bucket/code.zip"))
    assert load_workload(file).working_dir == "s3://bucket/code.zip"
    file.write_text(text.format("cdoe"))
    with pytest.raises(SpecError) as caught:
        load_workload(file)
    assert [(problem.code, problem.line) for problem in caught.value.problems] == [("no-such-folder", 4)]
    gone = describe(load_workload({**BASE, "working_dir": "/no/such/folder"}))
    assert load_workload(gone).working_dir == "/no/such/folder", "a stored workload outlives its folder"


def test_what_is_no_workload() -> None:
    assert codes({"pools": []}) == ["not-a-workload"]
    assert codes({"apiVersion": "ray.io/v1", "kind": "RayCluster"}) == ["kind-unsupported"]


def test_check(tmp_path: Path) -> None:
    def file(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    fleet = file("fleet.yaml", "accelerators: {p100: {}}\npools: [{name: a, accelerator: p100, chips: 8, units: 2}]\n")
    good = file("good.yaml", "kind: job\nentrypoint: x.py\noptions: [p100:8]\n")
    warned = file("warned.yaml", "kind: job\nentrypoint: x.py\noptions: ['v6e:2x4']\n")
    bad = file("bad.yaml", "kind: job\nentrypoint: x.py\noptions: [v6e:4x5]\n")
    ray = file("ray.yaml", "apiVersion: ray.io/v1\nkind: RayCluster\n---\napiVersion: v1\n")
    found = check([bad, good, fleet, warned, ray, tmp_path / "none.yaml"])
    assert [(Path(problem.file).name, problem.severity, problem.code, problem.line) for problem in found] == [
        ("bad.yaml", "error", "illegal-topology", 3),
        ("warned.yaml", "warning", "ambiguous-topology", 3),
        ("ray.yaml", "error", "kind-unsupported", 1),
        ("none.yaml", "error", "no-such-file", None),
    ]
    assert [problem.code for problem in check([good])] == ["accelerator-not-covered"], "only the fleet knows it"


def test_the_error_can_be_pickled() -> None:
    with pytest.raises(SpecError) as caught:
        load_workload({"kind": "jbo"})
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
