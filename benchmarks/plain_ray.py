"""The example training by hand: `ray.cluster_utils.Cluster` playing one v6e 4x4 slice, and the same `train.py` on it.

What somebody would write without Stellwerk; `overhead.py` runs both and compares. Takes the folder for reports and
checkpoints.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "tiny-lm"
HOSTS, CHIPS = 4, 4


def host_variables(worker: int) -> dict[str, str]:
    """The environment of one host of the slice."""
    return {
        "TPU_NAME": "slice-0",
        "TPU_WORKER_ID": str(worker),
        "TPU_WORKER_HOSTNAMES": ",".join(["localhost"] * HOSTS),
        "TPU_ACCELERATOR_TYPE": "v6e-16",
        "TPU_TOPOLOGY": "4x4",
        "TPU_SKIP_MDS_QUERY": "true",
    }


def context(folder: Path) -> str:
    """What `stellwerk.current()` reads, so that the very same script runs."""
    return json.dumps(
        {
            "name": "tiny-lm",
            "attempt": 1,
            "kind": "train",
            "units": ["slice-0"],
            "accelerator": "tpu-v6e",
            "topology": "4x4",
            "slices": 1,
            "hosts": HOSTS,
            "chips": HOSTS * CHIPS,
            "chips_per_host": CHIPS,
            "emulated": True,
            "option": "tpu-v6e:4x4",
            "checkpoint_dir": str(folder / "checkpoints"),
            "drain_file": str(folder / "drain.json"),
            "reports_file": str(folder / "reports.jsonl"),
        }
    )


def main() -> None:
    folder = Path(sys.argv[1])
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    os.environ["STELLWERK_CONTEXT"] = context(folder)
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(CHIPS),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for worker in range(HOSTS):
        os.environ |= host_variables(worker)
        cluster.add_node(num_cpus=CHIPS, resources={"TPU": CHIPS})
    os.environ["RAY_ADDRESS"] = cluster.address
    sys.path.insert(0, str(EXAMPLE))
    try:
        runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
