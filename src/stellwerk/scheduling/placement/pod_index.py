"""The index of a pool that is one pod of cubes: wired as a torus, or switched freely (layouts `torus`, `optical`).

Each unit is a cube, and the pool's maximum is the number of cubes of the pod. A TPU part asks for slices that are
boxes of whole cubes; a slice is granted as one grant a cube, all of one group. The geometry is that of `torus` and
`pods`; here cubes get their names, incarnations, holders and expected ends. A set of units is a mask of cubes.

Formulation: the pod has the pool's topology where that has as many cubes, else it is the most cubic box of that many
(64: 4x4x4, 140: 4x5x7, 144: 4x6x6), and since a box of whole cubes has its own links around, every axis wraps. The
cube of a unit is the number at the end of its name.

Limits: unit names without such a number, or with one out of range, get the lowest free cube in the order in which
they come, and then tell nothing about where cubes are. Parts smaller than a cube belong to a pool of layout
`subslices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from math import prod

from stellwerk.hardware import HardwareError, accelerator, parse_topology
from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.grid import Grid, Place, Sides, bits, orientations
from stellwerk.scheduling.placement.index import INF, Forecast, Need
from stellwerk.scheduling.placement.placed import PlacedIndex, matches
from stellwerk.scheduling.placement.pods import Pod
from stellwerk.scheduling.placement.torus import CUBE, in_cubes
from stellwerk.scheduling.state import UnitState


@cache
def pod_sides(cubes: int) -> Sides:
    """The sides of the most cubic box of that many cubes (least surface), ascending."""
    found = [
        (a, b, cubes // (a * b))
        for a in range(1, cubes + 1)
        if cubes % a == 0
        for b in range(a, cubes // a + 1)
        if cubes % (a * b) == 0 and b <= cubes // (a * b)
    ]
    return min(found, key=lambda sides: (sides[0] * sides[1] + sides[1] * sides[2] + sides[0] * sides[2], sides))


def pod_of(pool: Pool) -> Sides:
    """The sides of a pool's pod in cubes, ascending."""
    said = in_cubes(parse_topology(pool.topology)) if pool.topology else None
    return said if said is not None and prod(said) == pool.maximum else pod_sides(max(1, pool.maximum))


@cache
def slice_shapes(name: str) -> tuple[Sides, ...]:
    """The slices of an accelerator that are whole cubes, in cubes; none for one that has no such slices."""
    try:
        known = accelerator(name).shapes
    except HardwareError:
        return ()
    return tuple(dict.fromkeys(shape for each in known if (shape := in_cubes(each.dims)) is not None))


def in_chips(shape: Sides) -> str:
    """`4x4x8` for the cubes (1, 1, 2)."""
    return "x".join(str(side * CUBE) for side in shape)


class PodIndex(PlacedIndex):
    """What is free in one pod; `plain` takes the first place of the table instead of the snug one."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.grid = Grid(pod_of(pool), (True, True, True))
        self.pod = Pod(self.grid, switched=pool.layout == "optical", shapes=slice_shapes(pool.accelerator))
        self.pod.broken = self.grid.full
        self._units: dict[int, UnitState] = {}
        self._cubes: dict[str, int] = {}
        self._held: set[tuple[str, int]] = set()
        self._coming: dict[int, float] = {}

    def need(self, part: Part) -> Need | None:
        """The compiled part; None when no state of this pool could ever hold it."""
        return Need(self.pool, part, self._shape(part)) if 0 < part.count <= self.most(part) else None

    def most(self, part: Part) -> int:
        """Groups of `part` that the pod could hold if it were whole and empty."""
        shape = self._shape(part)
        if shape is None or self.pool.maximum < 1 or not self.pod.could_ever(shape):
            return 0
        return _packed(self.grid, shape, self.pod.switched)

    def _shape(self, part: Part) -> Sides | None:
        if part.topology is None or not matches(self.pool, part):
            return None
        return in_cubes(parse_topology(part.topology))

    def fits(self, need: Need, avoid: int = 0) -> bool:
        """Whether `fit` would find grants."""
        if need.count == 1:
            return self.pod.fits(need.form, avoid)
        return self._ruled().fit_all([need.form] * need.count, avoid) is not None

    def fit(self, need: Need, avoid: int = 0) -> tuple[Grant, ...] | None:
        """Grants for all groups of `need`, one a cube, or None."""
        places = self._ruled().fit_all([need.form] * need.count, avoid)
        if places is None:
            return None
        return tuple(
            self._grant(need, group, cube, place) for group, place in enumerate(places) for cube in bits(place.mask)
        )

    def _ruled(self) -> Pod:
        """The pod, with the rule that places are to be chosen by."""
        self.pod.rule = "first" if self.plain else "snug"
        return self.pod

    def _grant(self, need: Need, group: int, cube: int, place: Place) -> Grant:
        unit = self._units[cube]
        origin = ",".join(str(at * CUBE) for at in place.start)
        words = f"{origin}/{in_chips(place.size)}" if origin else ""
        return Grant(need.part.role, group, self.pool.name, unit.name, unit.incarnation, unit.chips, unit.hosts, words)

    def take(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """The holder `key` has these, and is expected to end at `until`."""
        self.pod.take(sum(1 << self._cubes[grant.unit] for grant in grants if self._here(grant)))
        self._held.update((grant.unit, grant.incarnation) for grant in grants)
        self._count()
        if self.track:
            self._ends.hold(key, grants, now, until)

    def give(self, grants: tuple[Grant, ...], key: str) -> None:
        """The holder has left these."""
        self.pod.give(sum(1 << self._cubes[grant.unit] for grant in grants if self._here(grant)))
        self._held.difference_update((grant.unit, grant.incarnation) for grant in grants)
        self._count()
        self._ends.leave(key)

    def _here(self, grant: Grant) -> bool:
        unit = self._units.get(self._cubes.get(grant.unit, -1))
        return unit is not None and unit.incarnation == grant.incarnation

    def _count(self) -> None:
        self.free = self.pod.free.bit_count() * self.pool.chips

    def put(self, unit: UnitState) -> None:
        """`unit` can be handed out, but for what is held of it."""
        cube = self._cube(unit.name)
        self.drop(unit.name)
        self._units[cube] = unit
        self.pod.mended(cube)
        if (unit.name, unit.incarnation) in self._held:
            self.pod.take(1 << cube)
        self._count()

    def drop(self, name: str) -> None:
        """The cube cannot be handed out, for now or for ever."""
        cube = self._cubes.get(name, -1)
        self._coming.pop(cube, None)
        if self._units.pop(cube, None) is not None:
            self.pod.give(self.pod.held & 1 << cube)
            self.pod.breaks(cube)
            self._count()

    def expect(self, name: str, at: float) -> None:
        """The cube cannot be handed out yet, and will be at `at`."""
        cube = self._cube(name)
        self.drop(name)
        self._coming[cube] = at

    def _cube(self, name: str) -> int:
        """The cube that a unit is; see the module for names that do not tell."""
        if name not in self._cubes:
            used = set(self._cubes.values())
            number = re.search(r"\d{1,6}$", name)
            wanted = int(number.group()) if number else self.grid.points
            free = (cube for cube in range(self.grid.points) if cube not in used)
            self._cubes[name] = wanted if wanted < self.grid.points and wanted not in used else next(free)
        return self._cubes[name]

    def earliest(self, need: Need, now: float) -> Forecast:
        """When and where `need` could be met at the latest, if all holders end as expected."""
        if not self.track:
            return Forecast(INF, 0)
        releases = [(now, 0), *self._releases(now)]
        mended = sum(1 << cube for cube in self._coming)
        found = self._ruled().earliest([need.form] * need.count, releases, mended=mended)
        return Forecast(found[0], _union(found[1])) if found else Forecast(INF, 0)

    def _releases(self, now: float) -> Iterable[tuple[float, int]]:
        for at, grant in self._ends.expected(now):
            if at < INF and self._here(grant):
                yield at, 1 << self._cubes[grant.unit]
        for cube, at in self._coming.items():
            if at < INF:
                yield max(at, now), 1 << cube

    def largest(self) -> tuple[int, str]:
        """The largest slice that could be placed now."""
        shape = self.pod.largest()
        return (prod(shape) * self.pool.chips, in_chips(shape)) if shape else (0, "nothing")

    def fragmentation(self) -> float:
        """How far the largest placeable slice is from what the free cubes would make, 0 to 1."""
        return self.pod.fragmentation()

    def whole_free(self, avoid: int = 0) -> int:
        """Cubes that are free, and not in `avoid`."""
        return (self.pod.free & ~avoid).bit_count()

    def content(self, now: float = 0.0) -> object:
        """Free cubes by name, what is coming, and what forecasts know."""
        names = {cube: name for name, cube in self._cubes.items()}
        coming = sorted((names[cube], at) for cube, at in self._coming.items())
        return sorted(names[cube] for cube in bits(self.pod.free)), self.free, coming, self._ends.content(now)


@cache
def _packed(grid: Grid, shape: Sides, switched: bool) -> int:
    """Slices of one shape that an empty pod holds: placed one after another, or in rows of one orientation."""
    pod, count = Pod(grid, switched=switched), 0
    while place := pod.fit(shape):
        pod.take(place.mask)
        count += 1
    turns = () if switched else orientations(grid, shape)
    rows = (prod(side // length for side, length in zip(grid.sides, turn, strict=True)) for turn in turns)
    return max(count, max(rows, default=0))


def _union(places: Iterable[Place]) -> int:
    mask = 0
    for place in places:
        mask |= place.mask
    return mask
