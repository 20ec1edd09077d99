"""A description of this machine in the words of a context, for programs that run outside Stellwerk.

On a TPU host the answers come from the variables that libtpu and GKE set; elsewhere the machine is one CPU host.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_POD_TYPE = re.compile(r"(?:tpu)?(?P<generation>v?\d+[a-z]*)-(?P<size>\d+)")
_GENERATIONS = {"v5litepod": "v5e", "v5lite": "v5e", "7x": "v7x"}


def description(env: Mapping[str, str]) -> dict[str, Any]:
    """What a context holds, from the environment, the name of the script and nothing else; always attempt 1."""
    name = script_name()
    hardware = _tpu(env) if env.get("TPU_TOPOLOGY") else _cpu()
    folder = env.get("STELLWERK_CHECKPOINT_DIR") or str(Path("checkpoints", name).absolute())
    attempt: dict[str, Any] = {"name": name, "attempt": 1, "kind": "job", "units": [], "emulated": False}
    attempt |= {"checkpoint_dir": folder, "drain_file": None, "reports_file": None}
    return attempt | hardware


def script_name() -> str:
    """The stem of the running script, `interactive` in a shell or notebook."""
    stem = Path(sys.argv[0] if sys.argv else "").stem
    return stem if re.fullmatch(r"\w[\w.-]*", stem) and stem != "__main__" else "interactive"


def _cpu() -> dict[str, Any]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "accelerator": "cpu",
        "topology": None,
        "slices": 1,
        "hosts": 1,
        "chips": cpus,
        "chips_per_host": cpus,
        "option": f"cpu:{cpus}",
    }


def _tpu(env: Mapping[str, str]) -> dict[str, Any]:
    topology = env["TPU_TOPOLOGY"]
    accelerator = _accelerator(env.get("TPU_ACCELERATOR_TYPE", ""))
    slices = _whole(env.get("MEGASCALE_NUM_SLICES"))
    hosts = len([host for host in env.get("TPU_WORKER_HOSTNAMES", "localhost").split(",") if host]) or 1
    chips = math.prod(int(side) for side in re.findall(r"\d+", topology))
    option = f"{accelerator or 'tpu'}:{topology}" + (f"*{slices}" if slices > 1 else "")
    return {
        "accelerator": accelerator,
        "topology": topology,
        "slices": slices,
        "hosts": hosts * slices,
        "chips": chips * slices,
        "chips_per_host": chips // hosts,
        "option": option,
    }


def _accelerator(pod_type: str) -> str | None:
    """`v6e-16` is `tpu-v6e`, `v5litepod-4` is `tpu-v5e`, `tpu7x-8` is `tpu-v7x`; None when it is unknown."""
    found = _POD_TYPE.fullmatch(pod_type.strip().lower())
    return f"tpu-{_GENERATIONS.get(found['generation'], found['generation'])}" if found else None


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and int(text) > 0 else 1
