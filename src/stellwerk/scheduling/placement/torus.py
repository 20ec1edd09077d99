"""Every place of a slice in a pod of cubes, and which one to take.

Why: a v4, v5p or v7x pod is built of cubes of 4x4x4 chips. Wired statically, a slice is a box of neighbouring
cubes, turned any way, running over the end of an axis where the pod's own links wrap around; free cubes alone are
then not enough.

Formulation: `table(grid, shape)` lists all places of a shape (orientations ascending, starts ascending) and is
built once per pod shape and slice shape. Which of them are free is one erosion an orientation (see `grid`).
Among free places two rules choose:

* `first`: the first of the table.
* `snug` (the default): the fewest faces towards free cubes, so that slices lie against each other and against
  walls; among these the place that destroys the least of what larger shapes could still use, counted as the sum over
  the larger shapes of *places destroyed / places free now*; among these the first. The larger shapes are
  those that the pod is told to care for, by default the doubling chain 1x1x2, 1x2x2, 2x2x2, 2x2x4, ...

Each rule is a function of the free cubes and the shape alone, so a decision can be repeated. Cost of one `snug`
decision in a busy pod of 64 cubes: some microseconds when nothing fits, 0.05 ms in the median, at most 0.7 ms (a pair
in an empty pod, where all 192 places tie); about three times that in a pod of 144. What it gains:
`benchmarks/pod.py`.

Limits: a static slice that does not span an axis has no wrap-around links of its own on it; whether the workload
minds is not asked here. Twisted tori are not described. `snug` looks one decision ahead and knows no durations.
"""

from __future__ import annotations

from functools import cache, cached_property
from math import prod
from typing import Literal

from stellwerk.scheduling.placement.grid import Grid, Place, Sides, box, orientations, places, starts

Rule = Literal["first", "snug"]

CUBE = 4


def in_cubes(topology: Sides) -> Sides | None:
    """The sides of a topology in cubes, ascending: 4x4x8 chips are (1, 1, 2); None when it is no box of whole
    cubes."""
    if len(topology) != 3 or any(side < CUBE or side % CUBE for side in topology):
        return None
    return tuple(sorted(side // CUBE for side in topology))


class Table:
    """All places of one shape in one pod, numbered; get it from `table`, which keeps it."""

    def __init__(self, grid: Grid, shape: Sides) -> None:
        self.grid = grid
        self.shape = shape
        self.size = prod(shape)
        self.turns = orientations(grid, shape)
        self.places = tuple(place for turn in self.turns for place in places(grid, turn))
        self._harm: dict[Sides, dict[int, int]] = {}

    def fits(self, free: int) -> bool:
        """Whether any place is wholly free."""
        return any(starts(self.grid, free, turn) for turn in self.turns)

    def alive(self, free: int) -> int:
        """The free places as one mask: bit `orientation * points + start`."""
        found = 0
        for number, turn in enumerate(self.turns):
            found |= starts(self.grid, free, turn) << number * self.grid.points
        return found

    def free(self, free: int) -> list[Place]:
        """The free places, in the order of the table."""
        busy = self.grid.full & ~free
        return [place for place in self.places if not place.mask & busy]

    @cached_property
    def _faces(self) -> dict[int, tuple[int, int]]:
        return {place.mask: faces(self.grid, place) for place in self.places}

    def exposed(self, place: Place, free: int) -> int:
        """How many faces of a place look at a free cube."""
        once, twice = self._faces[place.mask]
        return (once & free).bit_count() + (twice & free).bit_count()

    def harm(self, larger: Table) -> dict[int, int]:
        """For each place here (by its mask) the places of `larger` that it touches, numbered as in `larger.alive`."""
        if larger.shape not in self._harm:
            full = self.grid.full
            everything = larger.alive(full)
            self._harm[larger.shape] = {
                place.mask: everything & ~larger.alive(full & ~place.mask) for place in self.places
            }
        return self._harm[larger.shape]


@cache
def table(grid: Grid, shape: Sides) -> Table:
    """The table of a shape, whichever way its sides are written."""
    ordered = tuple(sorted(shape))
    return Table(grid, shape) if ordered == shape else table(grid, ordered)


def faces(grid: Grid, place: Place) -> tuple[int, int]:
    """The cubes beside a place as (those that touch it, those of them that touch it on two sides).

    A cube can touch a box twice only where one gap is left on an axis that wraps.
    """
    once = twice = 0
    for axis, (start, length, side) in enumerate(zip(place.start, place.size, grid.sides, strict=True)):
        if length == side:
            continue
        before, after = (_layer(grid, place, axis, at) for at in (start - 1, start + length))
        once |= before | after
        twice |= before & after
    return once, twice


def _layer(grid: Grid, place: Place, axis: int, at: int) -> int:
    """The cubes of a place moved to coordinate `at` of an axis; none when that is beyond a wall."""
    if not grid.wrap[axis] and not 0 <= at < grid.sides[axis]:
        return 0
    start, size = list(place.start), list(place.size)
    start[axis], size[axis] = at, 1
    return box(grid, tuple(start), tuple(size))


@cache
def doublings(grid: Grid) -> tuple[Sides, ...]:
    """1x1x1, 1x1x2, 1x2x2, 2x2x2, 2x2x4, ... as far as they fit into the grid, ascending."""
    found: list[Sides] = []
    shape = (1,) * len(grid.sides)
    while orientations(grid, shape):
        found.append(shape)
        shape = tuple(sorted((*shape[1:], shape[0] * 2)))
    return tuple(found)


@cache
def boxes(grid: Grid) -> tuple[Sides, ...]:
    """All shapes with a place in the grid, sides ascending; the largest first, of equals the most cubic first."""
    index_of_sides = (tuple(side + 1 for side in grid.point(index)) for index in range(grid.points))
    shapes = {tuple(sorted(sides)) for sides in index_of_sides}
    return tuple(sorted(shapes, key=lambda shape: (-prod(shape), shape[-1] - shape[0], shape)))


def choose(grid: Grid, free: int, shape: Sides, rule: Rule = "snug", care: tuple[Sides, ...] = ()) -> Place | None:
    """The place for a shape among free cubes by `rule`; None when there is none.

    `care` are the shapes whose places are worth keeping (`doublings` if empty); only larger ones than `shape` count.
    """
    own = table(grid, shape)
    found = own.free(free) if own.fits(free) else []
    if rule == "first" or len(found) < 2:
        return found[0] if found else None
    exposed = [own.exposed(place, free) for place in found]
    least = min(exposed)
    found = [place for place, faces_open in zip(found, exposed, strict=True) if faces_open == least]
    return found[0] if len(found) == 1 else _least_harm(own, found, free, care or doublings(grid))


def _least_harm(own: Table, found: list[Place], free: int, care: tuple[Sides, ...]) -> Place:
    """The first of the places with the least sum of destroyed shares of the larger shapes' free places."""
    weights: list[tuple[dict[int, int], int, float]] = []
    for shape in care:
        larger = table(own.grid, shape)
        if larger.size > own.size and (alive := larger.alive(free)):
            weights.append((own.harm(larger), alive, 1 / alive.bit_count()))
    return min(
        found, key=lambda place: sum((harm[place.mask] & alive).bit_count() * each for harm, alive, each in weights)
    )
