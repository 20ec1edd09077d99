"""The context: what the backend writes is what the workload reads, inside and outside Stellwerk."""

from __future__ import annotations

import json
import math
import os
import pickle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk import runtime
from stellwerk.runtime import Context, current
from stellwerk.runtime.context import UNIT_VARIABLE, VARIABLE

TPU_VARIABLES = ("TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES")


def wire(tmp_path: Path, **changes: object) -> dict[str, Any]:
    return {
        "name": "tiny-lm",
        "attempt": 2,
        "kind": "train",
        "units": ["trillium-0", "trillium-1"],
        "accelerator": "tpu-v6e",
        "topology": "2x4",
        "slices": 2,
        "hosts": 4,
        "chips": 16,
        "chips_per_host": 4,
        "emulated": True,
        "option": "tpu-v6e:2x4*2",
        "checkpoint_dir": str(tmp_path / "checkpoints"),
        "drain_file": str(tmp_path / "drain.json"),
        "reports_file": str(tmp_path / "reports.jsonl"),
    } | changes


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv(VARIABLE, json.dumps(wire(tmp_path)))
    return current()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (VARIABLE, "STELLWERK_CHECKPOINT_DIR", *TPU_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["some/where/train.py"])
    return monkeypatch


def lines(context: Context) -> list[dict[str, Any]]:
    assert context.reports_file is not None
    return [json.loads(line) for line in context.reports_file.read_text().splitlines()]


def test_public_surface() -> None:
    assert runtime.__all__ == ["Context", "current"]


def test_reads_what_the_backend_wrote(inside: Context, tmp_path: Path) -> None:
    assert (inside.name, inside.attempt, inside.kind, inside.option) == ("tiny-lm", 2, "train", "tpu-v6e:2x4*2")
    assert (inside.units, inside.accelerator, inside.topology) == (("trillium-0", "trillium-1"), "tpu-v6e", "2x4")
    assert (inside.slices, inside.hosts, inside.hosts_per_slice) == (2, 4, 2)
    assert (inside.chips, inside.chips_per_host, inside.emulated) == (16, 4, True)
    assert inside.checkpoint_dir == tmp_path / "checkpoints"
    assert inside.managed


def test_travels_to_workers(inside: Context) -> None:
    assert pickle.loads(pickle.dumps(inside)) == inside


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": 0},
        {"attempt": "1"},
        {"hosts": True},
        {"units": "a"},
        {"units": [1]},
        {"name": ""},
        {"name": None},
        {"topology": 4},
        {"checkpoint_dir": None},
        {"chips": -1},
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(wire(tmp_path, **change)))
    with pytest.raises(RuntimeError, match=f"{VARIABLE} is malformed: '{next(iter(change))}'"):
        current()


@pytest.mark.parametrize("key", sorted(wire(Path())))
def test_a_missing_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    data = wire(tmp_path)
    del data[key]
    monkeypatch.setenv(VARIABLE, json.dumps(data))
    with pytest.raises(RuntimeError, match=f"'{key}' is missing"):
        current()


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0")) | st.sampled_from(["null", "[]", "3", "{}", '"x"'])
)
def test_any_other_text_is_a_clear_error(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, text)
        with pytest.raises(RuntimeError, match=VARIABLE):
            current()


def test_no_drain_notice(inside: Context) -> None:
    assert not inside.should_stop()
    assert inside.stop_deadline() is None


def test_drain_notice(inside: Context) -> None:
    assert inside.drain_file is not None
    inside.drain_file.write_text(json.dumps({"deadline": 1234.5, "reason": "maintenance"}))
    assert inside.should_stop()
    assert inside.stop_deadline() == 1234.5


@pytest.mark.parametrize("text", ["", "{", "[]", '{"deadline": null}', '{"deadline": "soon"}'])
def test_an_odd_drain_notice_is_still_one(inside: Context, text: str) -> None:
    assert inside.drain_file is not None
    inside.drain_file.write_text(text)
    assert inside.should_stop()
    assert inside.stop_deadline() is None


def test_reports_are_lines(inside: Context) -> None:
    inside.report(1, loss=5.5)
    inside.report(20, "/checkpoints/20", loss=3, tokens_per_s=1e3)
    first, second = lines(inside)
    assert (first["step"], first["checkpoint"], first["metrics"]) == (1, None, {"loss": 5.5})
    assert (second["step"], second["checkpoint"]) == (20, "/checkpoints/20")
    assert second["metrics"] == {"loss": 3.0, "tokens_per_s": 1000.0}
    assert first["time"] <= second["time"]


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name not in {"step", "checkpoint", "self"}),
        st.floats() | st.integers(-(2**60), 2**60),
    )
)
def test_every_number_is_written_as_json(metrics: dict[str, float]) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, json.dumps(wire(Path(folder))))
        current().report(**metrics)
        (line,) = lines(current())
    for name, value in metrics.items():
        assert line["metrics"][name] == (float(value) if math.isfinite(value) else None)


def _report_often(context: Context, count: int) -> None:
    for step in range(count):
        context.report(step, loss=float(os.getpid()), note=step)


def test_lines_of_many_processes_do_not_mix(inside: Context) -> None:
    spawn = get_context("spawn")
    workers = [spawn.Process(target=_report_often, args=(inside, 200)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert sorted(line["step"] for line in lines(inside)) == sorted(list(range(200)) * 4)


def test_outside_a_cpu_machine(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    me = current()
    assert (me.name, me.attempt, me.kind, me.units, me.managed) == ("train", 1, "job", (), False)
    assert (me.accelerator, me.topology, me.slices, me.hosts) == ("cpu", None, 1, 1)
    assert me.chips == me.chips_per_host >= 1
    assert me.option == f"cpu:{me.chips}"
    assert me.checkpoint_dir == tmp_path / "checkpoints" / "train"
    assert (me.should_stop(), me.stop_deadline()) == (False, None)


def test_outside_reports_are_logged(outside: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="stellwerk.runtime"):
        current().report(3, loss=1.5)
    assert "'step': 3" in caplog.text
    assert "'loss': 1.5" in caplog.text


@pytest.mark.parametrize(
    ("pod_type", "topology", "hostnames", "slices", "option", "hosts", "chips_per_host"),
    [
        ("v6e-16", "4x4", "a,b,c,d", None, "tpu-v6e:4x4", 4, 4),
        ("v6e-8", "2x4", "localhost", "2", "tpu-v6e:2x4*2", 2, 8),
        ("v5litepod-4", "2x2", None, None, "tpu-v5e:2x2", 1, 4),
        ("v5p-16", "2x2x2", "a,b", None, "tpu-v5p:2x2x2", 2, 4),
        ("tpu7x-8", "2x2x1", "a", "x", "tpu-v7x:2x2x1", 1, 4),
        ("?", "2x2", "", None, "tpu:2x2", 1, 4),
    ],
)
def test_outside_a_tpu_host(
    outside: pytest.MonkeyPatch,
    pod_type: str,
    topology: str,
    hostnames: str | None,
    slices: str | None,
    option: str,
    hosts: int,
    chips_per_host: int,
) -> None:
    for name, value in zip(TPU_VARIABLES, (topology, pod_type, hostnames, slices), strict=True):
        if value is not None:
            outside.setenv(name, value)
    me = current()
    assert (me.option, me.topology, me.hosts, me.chips_per_host) == (option, topology, hosts, chips_per_host)
    assert me.chips == hosts * chips_per_host


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["train.py"], "train"),
        (["-c"], "interactive"),
        ([""], "interactive"),
        ([], "interactive"),
        (["/x/my-job.v2.py"], "my-job.v2"),
        (["/x/__main__.py"], "interactive"),
    ],
)
def test_name_outside(outside: pytest.MonkeyPatch, argv: list[str], name: str) -> None:
    outside.setattr("sys.argv", argv)
    assert current().name == name


def test_checkpoint_folder_from_the_environment(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outside.setenv("STELLWERK_CHECKPOINT_DIR", str(tmp_path / "kept"))
    assert current().checkpoint_dir == tmp_path / "kept"


def _allocate(tmp_path: Path, **changes: object) -> None:
    told = {"resize": 3, "units": ["trillium-0"], "slices": 1, "hosts": 2, "chips": 8, "leaving": [], "deadline": None}
    (tmp_path / "allocation.json").write_text(json.dumps(told | changes))


@pytest.fixture
def elastic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(VARIABLE, json.dumps(wire(tmp_path, allocation_file=str(tmp_path / "allocation.json"))))
    return monkeypatch


def test_an_elastic_attempt_sees_its_size_of_the_moment(tmp_path: Path, elastic: pytest.MonkeyPatch) -> None:
    before = current()
    assert (before.units, before.slices, before.leaving()) == (("trillium-0", "trillium-1"), 2, ())
    _allocate(tmp_path)
    after = current()
    assert (after.units, after.slices, after.hosts, after.chips) == (("trillium-0",), 1, 2, 8)
    assert (after.name, after.hosts_per_slice, before.slices) == ("tiny-lm", 2, 2)


def test_only_hosts_of_units_that_go_should_stop(tmp_path: Path, elastic: pytest.MonkeyPatch) -> None:
    _allocate(tmp_path, leaving=["trillium-1"], deadline=12.5)
    me = current()
    assert (me.leaving(), me.should_stop(), me.stop_deadline()) == (("trillium-1",), False, 12.5)
    elastic.setenv(UNIT_VARIABLE, "trillium-1")
    assert me.should_stop() and pickle.loads(pickle.dumps(me)).should_stop()
    elastic.setenv(UNIT_VARIABLE, "trillium-0")
    assert not me.should_stop()


def test_letting_go_is_told_by_the_number_of_the_order(tmp_path: Path, elastic: pytest.MonkeyPatch) -> None:
    me = current()
    me.let_go()
    _allocate(tmp_path)
    me.let_go()
    assert not (tmp_path / "released").exists()
    _allocate(tmp_path, leaving=["trillium-1"])
    me.let_go()
    assert (tmp_path / "released").read_text() == "3"


def test_nothing_leaves_outside(outside: pytest.MonkeyPatch) -> None:
    me = current()
    me.let_go()
    assert me.leaving() == ()
