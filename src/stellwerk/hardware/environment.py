"""The environment that a TPU host has, so that an emulated host can have the same.

The variables and who sets them on the real machine: TPU_NAME, TPU_WORKER_ID and TPU_WORKER_HOSTNAMES the
KubeRay webhook of GKE (single host: the device plugin); all others the device plugin or the TPU DRA driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from stellwerk.hardware.errors import HardwareError
from stellwerk.hardware.files import read
from stellwerk.hardware.model import Shape

_CUBE_CHIPS = 64
_RESILIENT = ("tpu-v4", "tpu-v5p")


def host_environment(shape: Shape, slice_name: str, worker_id: int, hostnames: Sequence[str]) -> dict[str, str]:
    """The TPU variables of host ``worker_id`` of a slice whose hosts are ``hostnames`` in worker order.

    A slice of one host calls it ``localhost``, as GKE does. Left out: what names the physical node or its
    network card, what only several containers on one host need (TPU_PROCESS_*), TPU_VISIBLE_CHIPS (Ray
    sets it per task), and MEGASCALE_* (a matter of several slices). Wrap is left out where it is unknown
    (v2). Raises HardwareError with code ``illegal-host`` when hosts and shape do not fit.
    """
    _check(shape, worker_id, hostnames)
    names = ",".join(hostnames) if shape.multi_host else "localhost"
    variables = {
        "TPU_NAME": slice_name,
        "TPU_WORKER_ID": str(worker_id),
        "TPU_WORKER_HOSTNAMES": names,
        "TPU_ACCELERATOR_TYPE": shape.accelerator_type,
        "TPU_TOPOLOGY": shape.topology,
        "TPU_SKIP_MDS_QUERY": "true",
        **_twice("TOPOLOGY_ALT", "ALT", "false"),
        **_twice("HOST_BOUNDS", "HOST_BOUNDS", ",".join(map(str, host_bounds(shape)))),
        **_twice("CHIPS_PER_HOST_BOUNDS", "CHIPS_PER_HOST_BOUNDS", ",".join(map(str, chip_bounds(shape)))),
    }
    if shape.wrap:
        variables |= _twice("TOPOLOGY_WRAP", "WRAP", ",".join(str(flag).lower() for flag in shape.wrap))
    if shape.accelerator in _RESILIENT and shape.chips >= _CUBE_CHIPS:
        variables["ENABLE_ICI_RESILIENCY"] = "true"
    return variables


def chip_bounds(shape: Shape) -> tuple[int, int, int]:
    """The block of chips of one host, x, y, z: ``(2, 2, 1)`` for 4 chips."""
    x, y, z = read("tpu")["bounds"][str(shape.chips_per_host)].split(",")
    return int(x), int(y), int(z)


def host_bounds(shape: Shape) -> tuple[int, int, int]:
    """The grid of hosts of a slice, x, y, z: ``(2, 2, 1)`` for a 4x4 of 4-chip hosts."""
    x, y, z = (*shape.dims, 1)[:3]
    block = chip_bounds(shape)
    return x // block[0], y // block[1], z // block[2]


def _twice(name: str, old: str, value: str) -> dict[str, str]:
    """A variable under its present name and the one without the prefix, as the DRA driver writes both."""
    return {f"TPU_{name}": value, old: value}


def _check(shape: Shape, worker_id: int, hostnames: Sequence[str]) -> None:
    what = f"{shape.accelerator} {shape.topology} on {shape.machine} has {shape.hosts} hosts"
    if len(hostnames) != shape.hosts:
        raise HardwareError(f"{what}, not {len(hostnames)}", found=str(len(hostnames)), code="illegal-host")
    if not 0 <= worker_id < shape.hosts:
        raise HardwareError(f"{what}; there is no worker {worker_id}", found=str(worker_id), code="illegal-host")
