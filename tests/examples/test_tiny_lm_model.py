"""The example's model and data in one process: it learns, and a restored state is the state that was saved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")
EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-lm"
STEPS = 12


@pytest.fixture(scope="module")
def example() -> Any:
    """The example's own modules, taken away again so that no other test finds them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        import data
        import model
        import train

        yield data, model, train
    for name in ("data", "model", "train"):
        sys.modules.pop(name, None)


def run(example: Any, state: Any, mesh: Any, steps: range) -> tuple[Any, list[float]]:
    data, model, _ = example
    learn, _ = data.split(data.text())
    losses: list[float] = []
    for step in steps:
        state, loss = model.train_step(state, model.place(data.batch(learn, step, 8, 16), mesh))
        losses.append(float(loss))
    return state, losses


@pytest.fixture(scope="module")
def trained(example: Any) -> Any:
    _, model, _ = example
    mesh = model.make_mesh()
    shape = model.Shape(length=16, width=32, layers=1)
    state = model.new_state(shape, mesh, 1e-2, STEPS)
    return (*run(example, state, mesh, range(STEPS)), mesh, shape)


def test_text_is_english(example: Any) -> None:
    data, _, _ = example
    learn, held_out = data.split(data.text())
    assert b"function" in learn.tobytes()
    assert len(held_out) > 10_000
    assert 2 < data.letter_loss(learn, held_out) < data.uniform_loss()


def test_batches_depend_on_the_step_alone(example: Any) -> None:
    data, _, _ = example
    text = data.text()
    assert np.array_equal(data.batch(text, 5, 4, 16), data.batch(text, 5, 4, 16))
    assert not np.array_equal(data.batch(text, 5, 4, 16), data.batch(text, 6, 4, 16))
    assert data.batch(text, 0, 4, 16).shape == (4, 17)


def test_loss_goes_down(example: Any, trained: Any) -> None:
    data, _, _ = example
    losses = trained[1]
    assert losses[0] == pytest.approx(data.uniform_loss(), abs=1)
    assert losses[-1] < losses[0] - 0.5


def test_a_resumed_run_continues_as_if_unbroken(example: Any, trained: Any, tmp_path: Path) -> None:
    _, model, _ = example
    unbroken, losses, mesh, shape = trained
    half, before = run(example, model.new_state(shape, mesh, 1e-2, STEPS), mesh, range(6))
    with ocp.CheckpointManager(tmp_path / "steps") as checkpoints:
        checkpoints.save(6, args=ocp.args.StandardSave(half))
        checkpoints.wait_until_finished()
        saved = jax.tree.map(np.asarray, half)
        fresh = model.new_state(shape, mesh, 1e-2, STEPS)
        restored = checkpoints.restore(6, args=ocp.args.StandardRestore(fresh))
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, restored), saved)
    resumed, after = run(example, restored, mesh, range(6, STEPS))
    assert before + after == losses
    jax.tree.map(np.testing.assert_array_equal, resumed.params, unbroken.params)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"step": 80, "loss": 2.3, "goal": 3.2}, 0),
        ({"step": 80, "loss": 3.3, "goal": 3.2}, 1),
        ({"step": 80, "loss": float("nan"), "goal": 3.2}, 1),
        ({"step": 40, "loss": 2.9, "goal": 3.2}, 75),
    ],
)
def test_verdict(example: Any, end: dict[str, float], code: int) -> None:
    _, _, train = example
    assert train.verdict(end, 80) == code
