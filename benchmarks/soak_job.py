"""The workload of the soak: counts to STEPS on its hosts, saves every few steps, and notices if it runs twice."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

import ray

import stellwerk

STEPS = int(os.environ.get("STEPS", "60"))


@ray.remote(num_cpus=1)
def beat() -> str:
    return ray.get_runtime_context().get_node_id()


def main() -> int:
    me = stellwerk.current()
    folder = me.checkpoint_dir
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (folder / "doubled").write_text(str(me.attempt))
            return 1
        state = folder / "state.json"
        step = json.loads(state.read_text())["step"] if state.exists() else 0
        ray.init(log_to_driver=False)
        while step < STEPS:
            ray.get([beat.options(scheduling_strategy="SPREAD").remote() for _ in range(me.hosts)])
            step += 1
            time.sleep(0.1)
            if step % 5 == 0:
                fresh = folder / "state.new"
                fresh.write_text(json.dumps({"step": step}))
                fresh.rename(state)
                me.report(step, checkpoint=str(state))
        with (folder / "finished").open("a") as finished:
            finished.write(f"{me.attempt}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
