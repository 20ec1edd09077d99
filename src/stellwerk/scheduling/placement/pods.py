"""A pod of cubes: which are free, what fits, what would fit when.

Why: cubes break, slices come and go, and a workload that needs a shape is not helped by as many free cubes elsewhere.

Formulation: a pod is a grid of cubes with two masks, held and broken; a cube in neither is free. A *static* pod
gives a slice only a place of `torus`; an *optically switched* pod gives any free cubes, the lowest-numbered first,
since its switches join whichever cubes they are told to. What does not fit now is asked of the future the same way:
with every release the free cubes only grow, so the first moment at which a shape fits is found by bisection.

Limits: switching takes no time here and any cubes can be joined, also to shapes longer than the pod's own sides.
A cube is whole or broken; what part of it still works is not used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from math import prod

from stellwerk.scheduling.placement.grid import Grid, Place, Sides, bits, lowest
from stellwerk.scheduling.placement.torus import Rule, boxes, choose, table

Release = tuple[float, int]


class Pod:
    """The cubes of one pod. `shapes` are the slice shapes it can be asked for, in cubes (all boxes of a static pod).

    Masks count bits as `grid` does. Nothing is remembered about who holds what.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        switched: bool = False,
        rule: Rule = "snug",
        shapes: Iterable[Sides] = (),
        care: Iterable[Sides] = (),
    ) -> None:
        self.grid = grid
        self.switched = switched
        self.rule: Rule = rule
        self.held = 0
        self.broken = 0
        self._care = tuple(care)
        self._shapes = _largest_first(tuple(shapes)) or boxes(grid)

    @property
    def free(self) -> int:
        """The cubes that are neither held nor broken."""
        return self.grid.full & ~self.held & ~self.broken

    def fit(self, shape: Sides, avoid: int = 0) -> Place | None:
        """A place for a shape now, clear of the cubes `avoid`; nothing is taken."""
        return self._choose(self.free & ~avoid, shape)

    def fit_all(self, shapes: Sequence[Sides], avoid: int = 0) -> list[Place] | None:
        """Places for several slices at once, in the order asked, or None; the largest is placed first."""
        return self._choose_all(self.free & ~avoid, shapes)

    def take(self, mask: int) -> None:
        """Hold cubes. ValueError if one is not free."""
        if mask & ~self.free:
            raise ValueError(f"cubes {list(bits(mask & ~self.free))} are not free")
        self.held |= mask

    def give(self, mask: int) -> None:
        """Give cubes back; broken ones stay broken. ValueError if one is not held."""
        if mask & ~self.held:
            raise ValueError(f"cubes {list(bits(mask & ~self.held))} are not held")
        self.held &= ~mask

    def breaks(self, cube: int) -> None:
        """A cube is not to be handed out until it is mended; whoever holds it still does."""
        self.broken |= 1 << cube & self.grid.full

    def mended(self, cube: int) -> None:
        """A cube is whole again."""
        self.broken &= ~(1 << cube)

    def could_ever(self, shape: Sides) -> bool:
        """Whether the shape fits a pod that is whole and empty."""
        return self._fits(self.grid.full, shape)

    def fits(self, shape: Sides, avoid: int = 0) -> bool:
        """Whether the shape has a place now; cheaper than `fit`."""
        return self._fits(self.free & ~avoid, shape)

    def largest(self) -> Sides | None:
        """The largest shape that has a place now, in cubes; None when not even the smallest has."""
        free = self.free
        return next((shape for shape in self._shapes if self._fits(free, shape)), None)

    def fragmentation(self) -> float:
        """1 - cubes of the largest placeable shape / cubes of the largest that the free cubes would suffice for.

        0 when the free cubes lie as well as they could (or are too few for any shape), towards 1 when they are
        scattered; always 0 for a switched pod.
        """
        count = self.free.bit_count()
        ideal = next((prod(shape) for shape in self._shapes if prod(shape) <= count and self.could_ever(shape)), 0)
        return 1 - prod(self.largest() or (0,)) / ideal if ideal else 0.0

    def earliest(
        self, shapes: Sequence[Sides], releases: Iterable[Release], *, mended: int = 0
    ) -> tuple[float, list[Place]] | None:
        """When and where several slices first fit together as cubes are given back, or None if never.

        `releases` are (time, mask of cubes); the time found is that of the release that makes room, which is the
        first of them when there is room already. Cubes broken now stay so, but for those in `mended`, which count
        from the release that names them. For several slices of a static pod "first" is as good as `fit_all`.
        """
        ordered = sorted(releases)
        usable = self.grid.full & ~(self.broken & ~mended)
        free, states = self.free, list[int]()
        for _, mask in ordered:
            free |= mask & usable
            states.append(free)
        first = bisect_left(states, True, key=lambda free: all(self._fits(free, shape) for shape in shapes))
        for (at, _), free in zip(ordered[first:], states[first:], strict=True):
            if found := self._choose_all(free, shapes):
                return at, found
        return None

    def _fits(self, free: int, shape: Sides) -> bool:
        if self.switched:
            return free.bit_count() >= prod(shape)
        return free.bit_count() >= prod(shape) and table(self.grid, shape).fits(free)

    def _choose(self, free: int, shape: Sides) -> Place | None:
        if not self._fits(free, shape):
            return None
        if self.switched:
            return Place((), tuple(shape), lowest(free, prod(shape)))
        return choose(self.grid, free, shape, self.rule, self._care)

    def _choose_all(self, free: int, shapes: Sequence[Sides]) -> list[Place] | None:
        found: dict[int, Place] = {}
        for number in sorted(range(len(shapes)), key=lambda each: -prod(shapes[each])):
            place = self._choose(free, shapes[number])
            if place is None:
                return None
            free &= ~place.mask
            found[number] = place
        return [found[number] for number in range(len(shapes))]


@cache
def _largest_first(shapes: tuple[Sides, ...]) -> tuple[Sides, ...]:
    ordered = {tuple(sorted(shape)) for shape in shapes}
    return tuple(sorted(ordered, key=lambda shape: (-prod(shape), shape[-1] - shape[0], shape)))
