"""Trains a small language model on whatever hardware the workload was given, with Ray's own JaxTrainer.

    stellwerk run train.yaml          on an allocation: TPU slices, emulated ones, or CPUs
    python train.py                   on this machine alone

Environment: STEPS (default 80), CHECKPOINT_EVERY (20), REPORT_EVERY (5).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

import stellwerk
from stellwerk.runtime import Context

STOPPED_EARLY = 75  # "temporary failure": a drain notice ended the run before its last step; the next attempt resumes


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Runs on every host; JAX is set up and sees the chips of all hosts as one."""
    import data
    import jax
    import model
    import orbax.checkpoint as ocp
    from jax.experimental import multihost_utils

    logging.getLogger("absl").setLevel(logging.WARNING)  # orbax tells much
    me: Context = config["context"]
    folder = me.checkpoint_dir.absolute()
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))  # a later attempt starts faster
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    steps, first_host = config["steps"], jax.process_index() == 0
    shape, mesh = model.Shape(), model.make_mesh()
    rows = max(16, mesh.shape["data"])
    learn, held_out = data.split(data.text())
    state = model.new_state(shape, mesh, learning_rate=1e-2, steps=steps)

    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(folder / "steps", options=options) as checkpoints:
        done = checkpoints.latest_step() or 0
        if done:
            state = checkpoints.restore(done, args=ocp.args.StandardRestore(state))
        if first_host:
            print(
                f"tiny-lm: {me.option}, {jax.device_count()} chips on {jax.process_count()} hosts, "
                f"mesh {dict(mesh.shape)}, starting after step {done} of {steps}",
                flush=True,
            )

        stop, since, tokens = False, time.monotonic(), 0
        while done < steps and not stop:
            state, loss = model.train_step(state, model.place(data.batch(learn, done, rows, shape.length), mesh))
            done, tokens = done + 1, tokens + rows * shape.length
            report = done % config["report_every"] == 0 or done == 1
            if report:  # all hosts must leave at the same step, so they ask each other
                stop = bool(multihost_utils.process_allgather(me.should_stop()).any())
            saved = None
            if done % config["checkpoint_every"] == 0 or done == steps or stop:
                checkpoints.save(done, args=ocp.args.StandardSave(state))
                checkpoints.wait_until_finished()
                saved = str(checkpoints.directory / str(done))
            if first_host and (report or saved):
                seconds, since = time.monotonic() - since, time.monotonic()
                me.report(done, checkpoint=saved, loss=float(loss), tokens_per_s=tokens / seconds)
                print(
                    f"step {done:4d}  loss {float(loss):.3f}  {tokens / seconds:9,.0f} tokens/s"
                    f"{'  checkpoint' if saved else ''}",
                    flush=True,
                )
                tokens = 0

    check = model.place(data.batch(held_out, 0, 8 * rows, shape.length), mesh)
    goal = data.letter_loss(learn, held_out) if steps >= 60 else data.uniform_loss()
    return {"step": done, "loss": float(model.evaluate(state, check)), "goal": goal}


def scaling(me: Context) -> dict[str, Any]:
    """Ray's ScalingConfig: one worker a host, each with all chips of its host."""
    if me.accelerator and me.accelerator.startswith("tpu-"):
        return {
            "use_tpu": True,
            "topology": me.topology,
            "accelerator_type": me.accelerator.upper(),
            "num_workers": me.hosts,
            "resources_per_worker": {"TPU": me.chips_per_host},
        }
    return {"num_workers": me.hosts, "resources_per_worker": {"CPU": me.chips_per_host}}


def main() -> int:
    """Runs the training and checks its result; the exit code is the outcome."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    me = stellwerk.current()
    ray.init()
    steps = int(os.environ.get("STEPS", "80"))
    hosts = ScalingConfig(**scaling(me))
    result = JaxTrainer(
        train,
        train_loop_config={
            "context": me,
            "steps": steps,
            "checkpoint_every": int(os.environ.get("CHECKPOINT_EVERY", "20")),
            "report_every": int(os.environ.get("REPORT_EVERY", "5")),
        },
        jax_config=JaxConfig(use_tpu=hosts.use_tpu or me.hosts > 1),  # one JAX over all hosts
        scaling_config=hosts,
        run_config=RunConfig(name=f"{me.name}-{me.attempt}", storage_path=str(me.checkpoint_dir.absolute() / "ray")),
    ).fit()
    return verdict(result.return_value, steps)


def verdict(end: dict[str, Any], steps: int) -> int:
    """0 when every step ran and the model beats a guesser that only knows how frequent each letter is.

    A run of less than 60 steps has to beat a guesser that knows nothing.
    """
    if end["step"] < steps:
        print(f"stopped early, after step {end['step']} of {steps}; the checkpoint is saved")
        return STOPPED_EARLY
    good = end["loss"] < end["goal"]
    print(f"held-out loss {end['loss']:.3f}, {'below' if good else 'NOT below'} the goal {end['goal']:.3f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
