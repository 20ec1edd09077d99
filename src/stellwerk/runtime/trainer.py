"""Stellwerk's trainer: a user's loop on every host of the workload, under Ray Train.

The run keeps its name over attempts, so that Ray Train finds the last checkpoint of the attempt before; what the loop
gives to `ray.train.report` also reaches Stellwerk. Ray Train itself never retries: a new attempt needs whole units,
and only Stellwerk hands those out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from stellwerk.runtime.context import Context, current


def scaling(context: Context) -> dict[str, Any]:
    """The arguments of Ray's `ScalingConfig`: one worker a host, each with every chip of its host."""
    accelerator, chips = context.accelerator or "cpu", context.chips_per_host
    if accelerator.startswith("tpu-"):
        return {
            "use_tpu": True,
            "topology": context.topology,
            "accelerator_type": ray_type(accelerator),
            "num_workers": context.hosts,
            "resources_per_worker": {"TPU": chips},
        }
    if accelerator == "cpu":
        return {"num_workers": context.hosts, "resources_per_worker": {"CPU": chips}}
    return {"use_gpu": True, "num_workers": context.hosts, "resources_per_worker": {"GPU": chips}}


def ray_type(accelerator: str) -> str:
    """Ray's word for a TPU: `tpu-v6e` is `TPU-V6E`; only v5e has a name of its own (Ray 2.60 `VALID_TPU_TYPES`)."""
    return {"tpu-v5e": "TPU-V5LITEPOD"}.get(accelerator, accelerator.upper())


def fit(loop: Callable[..., object], framework: str = "jax") -> None:
    """Runs the loop on every host until it returns; raises what Ray Train raises when it fails."""
    ray: Any = importlib.import_module("ray")
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    context = current()
    ray.init(ignore_reinit_error=True)
    config: Any = ScalingConfig(**scaling(context))
    trainer = _jax if framework == "jax" else _torch
    trainer(
        loop,
        config,
        RunConfig(
            name=context.name,
            storage_path=str(context.checkpoint_dir.absolute()),
            failure_config=FailureConfig(max_failures=0),
            callbacks=[_forwarder(context)],
        ),
    ).fit()


def metrics_of(report: Mapping[str, Any]) -> tuple[int | None, dict[str, float]]:
    """The step and the numbers of what one worker gave to `ray.train.report`; the rest is not Stellwerk's."""
    numbers = {name: float(value) for name, value in report.items() if isinstance(value, Real)}  # pyright: ignore
    step = numbers.pop("step", numbers.get("training_iteration"))
    kept = {name: value for name, value in numbers.items() if name.isidentifier() and name != "checkpoint"}
    return None if step is None else int(step), kept


def _jax(loop: Callable[..., object], config: Any, run_config: Any) -> Any:
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    # On CPU hosts Ray sets up one JAX over all workers only when told that they are TPU or GPU workers.
    many = JaxConfig(use_tpu=config.use_tpu or (not config.use_gpu and config.num_workers > 1), use_gpu=config.use_gpu)
    return JaxTrainer(loop, jax_config=many, scaling_config=config, run_config=run_config)


def _torch(loop: Callable[..., object], config: Any, run_config: Any) -> Any:
    from ray.train.torch import TorchTrainer

    return TorchTrainer(loop, scaling_config=config, run_config=run_config)


def _forwarder(context: Context) -> Any:
    from ray.train import UserCallback

    class Forwarder(UserCallback):
        """Runs in Ray Train's controller, after all workers have reported and the checkpoint is stored."""

        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            del run_context
            step, numbers = metrics_of(metrics[0] if metrics else {})
            context.report(step, checkpoint.path if checkpoint else None, **numbers)

    return Forwarder()
