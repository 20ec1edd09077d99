"""What this machine has, read from the kernel alone: no module of Stellwerk and no library is needed to ask."""

from __future__ import annotations

import os
from pathlib import Path

RESERVE_BYTES = 1024 * 2**20
"""Left to the system, the controller and the shell."""

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SETTINGS = ("CUDA_", "NVIDIA_", "TPU_")


def machine_memory() -> int:
    """Bytes that emulated units may take together: the machine's or the container's memory, less a reserve."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _CGROUP_LIMITS:
        try:
            limit = file.read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            total = min(total, int(limit))
    return max(0, total - RESERVE_BYTES)


def device_files(root: Path = Path("/")) -> tuple[str, ...]:
    """The files by which the drivers of NVIDIA GPUs and TPUs show that there are some; empty when there are none."""
    patterns = ("proc/driver/nvidia", "dev/nvidia[0-9]*", "dev/accel[0-9]*", "dev/vfio/[0-9]*")
    return tuple(sorted(str(path) for pattern in patterns for path in root.glob(pattern)))


def fingerprint() -> tuple[object, ...]:
    """Changes whenever the machine does: its memory, its CPUs, its devices.

    A machine may wake up with another kind of device behind the same file, so that with devices every boot counts as
    another machine, as do other settings of their drivers.
    """
    basic = (machine_memory(), os.cpu_count())
    devices = device_files()
    if not devices:
        return basic
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(_SETTINGS))
    return (*basic, *devices, _BOOT_ID.read_text().strip(), *settings)
