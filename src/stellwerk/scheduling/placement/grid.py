"""Boxes on a grid of points, as bit masks.

Why: whether a slice fits into a pod, or a part into a unit, is a question about boxes of free points, asked many
times an event. As Python integers with one bit a point, the whole answer is a handful of shifts and ANDs.

Formulation: point (x, y, z) is bit `(x * Y + y) * Z + z`. A box is a start and a size per axis; on an axis that
wraps it may run over the end. The starts at which a box of free points begins are the erosion of the free mask by
the box, taken axis by axis, each axis in about log2(size) steps by doubling: a free run of 4 is a free run of 2
followed by a free run of 2. A box as long as its axis has one start there, 0, since all others cover the same points.

Limits: boxes only; a slice that is no box (a twisted or bent one) is not described.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import prod

Sides = tuple[int, ...]
Step = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box lies: start and size per axis, and its points as a mask. Free-form places have no axes."""

    start: Sides
    size: Sides
    mask: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Points along each axis, and which axes wrap around (none unless said).

    Raises ValueError for sides below 1 or flags that are not one an axis.
    """

    sides: Sides
    wrap: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.sides or min(self.sides) < 1:
            raise ValueError(f"a grid needs sides of at least 1, not {self.sides}")
        if not self.wrap:
            object.__setattr__(self, "wrap", (False,) * len(self.sides))
        if len(self.wrap) != len(self.sides):
            raise ValueError(f"{len(self.sides)} sides need as many wrap flags, not {len(self.wrap)}")

    @property
    def points(self) -> int:
        """How many points there are."""
        return prod(self.sides)

    @property
    def full(self) -> int:
        """The mask of all points."""
        return (1 << self.points) - 1

    def index(self, point: Sides) -> int:
        """The bit of a point; coordinates beyond a side are taken modulo it."""
        index = 0
        for coordinate, side in zip(point, self.sides, strict=True):
            index = index * side + coordinate % side
        return index

    def point(self, index: int) -> Sides:
        """The coordinates of a bit."""
        found: list[int] = []
        for side in reversed(self.sides):
            index, coordinate = divmod(index, side)
            found.append(coordinate)
        return tuple(reversed(found))


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int, count: int) -> int:
    """The `count` lowest set bits of `mask`, which has at least so many."""
    found = 0
    for _ in range(count):
        low = mask & -mask
        found |= low
        mask ^= low
    return found


@cache
def slab(grid: Grid, axis: int, start: int, length: int) -> int:
    """All points whose coordinate on `axis` is one of `length` from `start` on, modulo the side."""
    side, stride = grid.sides[axis], prod(grid.sides[axis + 1 :])
    layer = (1 << stride) - 1
    row = 0
    for offset in range(length):
        row |= layer << (start + offset) % side * stride
    mask = 0
    for before in range(prod(grid.sides[:axis])):
        mask |= row << before * side * stride
    return mask


def box(grid: Grid, start: Sides, size: Sides) -> int:
    """The points of a box, as a mask; it may run over the end of an axis, whether or not that axis wraps."""
    mask = grid.full
    for axis, (first, length) in enumerate(zip(start, size, strict=True)):
        mask &= slab(grid, axis, first, length)
    return mask


@cache
def orientations(grid: Grid, shape: Sides) -> tuple[Sides, ...]:
    """The ways to turn `shape` that are not longer than the grid on any axis, ascending; often fewer than six."""
    if len(shape) != len(grid.sides) or min(shape) < 1:
        raise ValueError(f"a shape for {grid.sides} has {len(grid.sides)} sides of at least 1, not {shape}")
    turned = sorted(set(permutations(shape)))
    return tuple(size for size in turned if all(a <= b for a, b in zip(size, grid.sides, strict=True)))


def starts(grid: Grid, free: int, size: Sides) -> int:
    """The points at which a box of this size and orientation can begin so that it covers free points only."""
    keep, steps = _erosion(grid, size)
    for right, right_keep, left, left_keep in steps:
        free &= ((free >> right) & right_keep) | ((free << left) & left_keep)
    return free & keep


@cache
def _erosion(grid: Grid, size: Sides) -> tuple[int, tuple[Step, ...]]:
    """The starts to tell apart, and the steps of the erosion: shifts with the points they are good for."""
    keep, steps = grid.full, list[Step]()
    for axis, (length, side) in enumerate(zip(size, grid.sides, strict=True)):
        if length > side:
            return 0, ()
        if length == side:
            keep &= slab(grid, axis, 0, 1)
        done = 1
        while done < length:
            ahead = min(done, length - done)
            steps.append(_look_ahead(grid, axis, ahead))
            done += ahead
    return keep, tuple(steps)


def _look_ahead(grid: Grid, axis: int, ahead: int) -> Step:
    """Shifts that bring every point's neighbour `ahead` points further on `axis` to its own bit."""
    side, stride = grid.sides[axis], prod(grid.sides[axis + 1 :])
    over_the_end = slab(grid, axis, side - ahead, ahead) if grid.wrap[axis] else 0
    return ahead * stride, slab(grid, axis, 0, side - ahead), (side - ahead) * stride, over_the_end


def places(grid: Grid, size: Sides) -> tuple[Place, ...]:
    """All boxes of this size and orientation that the grid has, in the order of their starts."""
    found = (grid.point(index) for index in bits(starts(grid, grid.full, size)))
    return tuple(Place(start, size, box(grid, start, size)) for start in found)
