"""How a pool hands out its units: whole, in aligned parts, or as the cubes of one pod.

What a unit is follows from the layout: with `units` and `subslices` a unit has the pool's topology, with `torus` and
`optical` the topology is the whole pod's and a unit is one cube of 4x4x4 chips.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from stellwerk import hardware
from stellwerk.hardware import HardwareError, Shape
from stellwerk.spec.problems import Flaw
from stellwerk.spec.wording import hardware_flaw

Layout = Literal["units", "subslices", "torus", "optical"]
PODS: tuple[Layout, ...] = ("torus", "optical")
CUBE = "4x4x4"
_SIDE = 4


def cubes(name: str, topology: str, layout: Layout) -> int:
    """The cubes of a pod of this topology. Raises `Flaw` where the accelerator or the topology has none."""
    if not any(_of_cubes(shape.dims) for shape in hardware.accelerator(name).shapes):
        message = f"`layout: {layout}` is for accelerators whose slices are cubes of {CUBE}, and {name} has none"
        raise Flaw("layout", message, "write layout: units or layout: subslices", path=("layout",))
    try:
        sides = hardware.parse_topology(topology)
    except HardwareError as error:
        raise hardware_flaw(error, "topology") from error
    if not _of_cubes(sides):
        message = f"a pod is made of cubes of {CUBE}, and {topology} is not a multiple of it on every side"
        raise Flaw("pod", message, f"did you mean {_nearest(sides)}?", path=("topology",))
    return prod(side // _SIDE for side in sides)


def check_pod(topology: str, count: int, units: int) -> None:
    """Refuse a pod whose units are not its cubes. Raises `Flaw` at `units`."""
    if units != count:
        number = "1 cube" if count == 1 else f"{count} cubes"
        message = f"`units` counts the cubes of the pod: {topology} has {number}, not {units}"
        raise Flaw("pod", message, f"write units: {count}, or the pod's own topology", path=("units",))


def check_split(shape: Shape) -> None:
    """Refuse units that cannot be split. Raises `Flaw` at `layout`."""
    machine = shape.machine if shape.multi_host else None
    if not hardware.subshapes(shape.accelerator, shape.topology, machine):
        message = f"`layout: subslices` splits units, and a {shape.topology} of {shape.accelerator} has no smaller part"
        raise Flaw("layout", message, "leave `layout` out", path=("layout",))


def _of_cubes(sides: tuple[int, ...]) -> bool:
    return len(sides) == 3 and all(side and side % _SIDE == 0 for side in sides)


def _nearest(sides: tuple[int, ...]) -> str:
    padded = (*sides, *(_SIDE,) * (3 - len(sides)))[:3]
    return "x".join(str(max(_SIDE, -(-side // _SIDE) * _SIDE)) for side in sorted(padded))
