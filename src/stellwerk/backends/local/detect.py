"""Accelerators that this machine really has, as pools of their own.

The device files are looked at first, so that a machine without accelerators pays nothing. Then Ray's own detection is
asked, in a process of its own: it imports Ray, and NVML and libtpu are better kept out of the controller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from stellwerk.backends.local.capacity import footprint
from stellwerk.backends.local.resources import device_files
from stellwerk.hardware import HardwareError, accelerator, price, shapes_of_chips
from stellwerk.hardware import shape as shape_of
from stellwerk.scheduling.model import Pool

_TIMEOUT_S = 30
_ASK = """
import json
from ray._private.accelerators import NvidiaGPUAcceleratorManager as gpu, TPUAcceleratorManager as tpu
found = {}
for kind, manager in (("gpu", gpu), ("tpu", tpu)):
    try:
        count = manager.get_current_node_num_accelerators()
        if count:
            found[kind] = {"count": count, "type": manager.get_current_node_accelerator_type()}
    except Exception as error:
        found[kind + "_error"] = repr(error)
print(json.dumps(found))
"""


@lru_cache(maxsize=1)
def detect() -> tuple[Pool, ...]:
    """A pool for the GPUs and one for the TPU chips of this machine, each of one unit; asked once per process."""
    if not has_devices():
        return ()
    found = _ask()
    pools = [_pool(found[kind]["type"], int(found[kind]["count"])) for kind in ("gpu", "tpu") if kind in found]
    return tuple(pool for pool in pools if pool is not None)


def has_devices(root: Path = Path("/")) -> bool:
    """Whether there are device files of an NVIDIA GPU or a TPU."""
    return bool(device_files(root))


def _ask() -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        )
        return cast("dict[str, Any]", json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}


def _pool(ray_type: str | None, count: int) -> Pool | None:
    """None for a type that no data file knows: it is declared in a fleet file."""
    try:
        chip = accelerator(ray_type or "")
        topology = shapes_of_chips(chip.name, count)[0] if chip.kind == "tpu" else None
        machine = shape_of(chip.name, topology, None).machine if topology else None
    except (HardwareError, IndexError):
        return None
    return Pool(
        name=f"{chip.name}-here",
        accelerator=chip.name,
        topology=topology,
        machine=machine,
        chips=count,
        hosts=1,
        maximum=1,
        minimum=1,
        price=price(chip.name, machine=machine),
        footprint=footprint(chip.name, 1, count),
        emulated=False,
    )
