"""What Stellwerk's trainer asks of Ray Train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stellwerk.runtime import Context
from stellwerk.runtime.trainer import metrics_of, scaling


def context(accelerator: str, topology: str | None, slices: int, hosts: int, chips_per_host: int) -> Context:
    return Context(
        name="w",
        attempt=1,
        kind="train",
        units=(),
        topology=topology,
        accelerator=accelerator,
        slices=slices,
        hosts=hosts,
        chips=hosts * chips_per_host,
        chips_per_host=chips_per_host,
        emulated=True,
        option="",
        checkpoint_dir=Path("checkpoints"),
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("tpu-v6e", "4x4", 1, 4, 4), ("TPU-V6E", "4x4", 4, {"TPU": 4})),
        (("tpu-v6e", "2x4", 2, 2, 8), ("TPU-V6E", "2x4", 2, {"TPU": 8})),
        (("tpu-v6e", "2x4", 2, 4, 4), ("TPU-V6E", "2x4", 4, {"TPU": 4})),
        (("tpu-v5p", "2x2x2", 1, 2, 4), ("TPU-V5P", "2x2x2", 2, {"TPU": 4})),
        (("tpu-v5e", "4x4", 1, 4, 4), ("TPU-V5LITEPOD", "4x4", 4, {"TPU": 4})),
    ],
)
def test_tpu_slices(given: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    asked = scaling(context(*given))
    assert asked["use_tpu"] is True
    assert (asked["accelerator_type"], asked["topology"], asked["num_workers"], asked["resources_per_worker"]) == wanted


def test_gpus_and_cpus() -> None:
    assert scaling(context("h100", None, 1, 2, 8)) == {
        "use_gpu": True,
        "num_workers": 2,
        "resources_per_worker": {"GPU": 8},
    }
    assert scaling(context("cpu", None, 1, 1, 2)) == {"num_workers": 1, "resources_per_worker": {"CPU": 2}}


@pytest.mark.parametrize(
    ("report", "step", "metrics"),
    [
        ({"step": 3, "loss": 1.5}, 3, {"loss": 1.5}),
        ({"training_iteration": 2, "loss": 1}, 2, {"training_iteration": 2.0, "loss": 1.0}),
        ({"loss": 1.0, "note": "text", "a b": 2, "checkpoint": 1}, None, {"loss": 1.0}),
        ({}, None, {}),
    ],
)
def test_numbers_of_a_report(report: dict[str, Any], step: int | None, metrics: dict[str, float]) -> None:
    assert metrics_of(report) == (step, metrics)
