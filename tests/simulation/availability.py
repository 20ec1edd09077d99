"""How much of a pod can be used while hosts are broken, exactly.

A pod is a number of cubes (4x4x4 chips, 16 hosts of 4); a cube is usable when all its hosts are up, which
with independent hosts of availability h has the probability p = h^hosts. A slice takes `cubes_per_slice`
cubes. Goodput is the expected share of the pod's chips that slices of this size can use.

* Optically switched: any free cubes make a slice. With K ~ Binomial(cubes, p) usable cubes,
  E[floor(K / per_slice)] * per_slice / cubes.
* Static: the pod is cut into fixed blocks, and a block is lost with any of its cubes: p^per_slice (times the
  share that blocks cover).
"""

from __future__ import annotations

from math import comb, fsum

CUBES = 64
HOSTS_PER_CUBE = 16


def cube_availability(host: float, hosts_per_cube: int = HOSTS_PER_CUBE) -> float:
    """The probability that all hosts of a cube are up, each with probability `host`."""
    if not 0 <= host <= 1:
        raise ValueError(f"an availability of {host} is not between 0 and 1")
    return host**hosts_per_cube


def optical_goodput(
    host: float, cubes_per_slice: int, cubes: int = CUBES, hosts_per_cube: int = HOSTS_PER_CUBE
) -> float:
    """The expected share of a pod that slices can use when any free cubes make one."""
    up = cube_availability(host, hosts_per_cube)
    expected = fsum(
        (usable // cubes_per_slice) * comb(cubes, usable) * up**usable * (1 - up) ** (cubes - usable)
        for usable in range(cubes + 1)
    )
    return expected * cubes_per_slice / cubes


def static_goodput(
    host: float, cubes_per_slice: int, cubes: int = CUBES, hosts_per_cube: int = HOSTS_PER_CUBE
) -> float:
    """The expected share of a pod that slices can use when they are fixed blocks of cubes."""
    covered = (cubes // cubes_per_slice) * cubes_per_slice / cubes
    return covered * cube_availability(host, hosts_per_cube) ** cubes_per_slice
