"""TPU units split into aligned sub-slices, so that small work does not spoil large slices.

Why: a whole slice for a workload that needs a part of it is waste; parts handed out anywhere soon leave no place for
a large one.

Formulation: a unit is a grid of blocks, the smallest things it is split into: its hosts, or the chips of a unit
with one host. The parts of a legal child topology lie at multiples of their own size (the numbering Ray uses for its
sub-slices), so that parts as written nest like the halves of a buddy allocator. A part is chosen by what it
destroys: for each larger shape, the whole unit first, the number of free places of it that are lost, compared in
that order; the least wins. For nested parts this is best fit: the smallest free remainder that holds the part is
split. Merging needs no step of its own, a mask of free blocks has no memory of splits.

A pool keeps, for each shape that was ever asked for, its units ordered by that loss, so that the best part of the
pool is the head of a list. Choices are remembered by (cut, free blocks, shape): units in the same state cost one
computation.

Limits: sub-slices are never moved to make room. Turned parts (a 2x4 lying as 4x2) are used only where `rotate` is asked
for, since Ray and the TPU driver know a part only as written. A unit that lost a host hands out nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache
from math import prod

from stellwerk.hardware import aligned_parts, default_machine, parse_topology, subshapes
from stellwerk.hardware import shape as hardware_shape
from stellwerk.hardware.environment import chip_bounds
from stellwerk.scheduling.placement.grid import Grid, Place, Sides, bits, box
from stellwerk.scheduling.placement.units import natural

Loss = tuple[int, ...]
Choice = tuple[Loss, Place]
Entry = tuple[Loss, tuple[int | str, ...], str]
UnitRelease = tuple[float, str, int]


class Cut:
    """How units of one topology can be split: shapes and their places, smallest first, the whole unit last.

    `block` is the size of a block in chips. Children that cannot be made of whole blocks are left out.
    """

    def __init__(self, topology: str, children: Iterable[str], block: Sides, *, rotate: bool = False) -> None:
        self.topology, self.block, self.rotate = topology, block, rotate
        self.grid = Grid(tuple(side // b for side, b in zip(parse_topology(topology), block, strict=True)))
        found = {child: self._places(child) for child in children if child != topology}
        ordered = sorted((child for child in found if found[child]), key=lambda child: (_chips(child), child))
        self.places: dict[str, tuple[Place, ...]] = {child: found[child] for child in ordered}
        self.places[topology] = (Place((0,) * len(block), self.grid.sides, self.grid.full),)

    @cached_property
    def nested(self) -> bool:
        """Whether a part lies wholly inside one place of any larger shape, or outside all of them."""
        sides = [places[0].size for places in self.places.values()]
        pairs = ((small, large) for number, large in enumerate(sides) for small in sides[:number])
        return not self.rotate and all(b % a == 0 for pair in pairs for a, b in zip(*pair, strict=True))

    @property
    def shapes(self) -> tuple[str, ...]:
        """What a unit can be split into, smallest first; the last is the whole unit."""
        return tuple(self.places)

    def size(self, shape: str) -> int:
        """Blocks of a shape. KeyError for one that the unit cannot be split into."""
        return self.places[shape][0].mask.bit_count()

    @cached_property
    def larger(self) -> dict[str, tuple[str, ...]]:
        """For each shape the larger ones, largest first."""
        return {a: tuple(b for b in reversed(self.shapes) if self.size(b) > self.size(a)) for a in self.shapes}

    def choose(self, free: int, shape: str) -> Choice | None:
        """The free part of `shape` that destroys the least, and what it destroys; None when there is none."""
        return _choose(self, free, shape)

    def count(self, free: int, shape: str) -> int:
        """Free places of a shape; as written these can all be used at once, turned ones overlap."""
        return len(_free(self, free, shape))

    def words(self, place: Place) -> str:
        """`2,0/2x4`: the origin of a part and its size, in chips."""
        origin, size = (
            [value * b for value, b in zip(values, self.block, strict=True)] for values in (place.start, place.size)
        )
        return f"{','.join(map(str, origin))}/{'x'.join(map(str, size))}"

    def place(self, words: str) -> Place:
        """The part that `words` told. KeyError when the unit has no such part."""
        return self._by_words[words]

    @cached_property
    def _by_words(self) -> dict[str, Place]:
        return {self.words(place): place for places in self.places.values() for place in places}

    def _places(self, child: str) -> tuple[Place, ...]:
        parts = aligned_parts(self.topology, child, rotate=self.rotate)
        return tuple(place for part in parts if (place := self._in_blocks(part)) is not None)

    def _in_blocks(self, part: Sequence[tuple[int, int]]) -> Place | None:
        if any(start % b or size % b for (start, size), b in zip(part, self.block, strict=True)):
            return None
        start = tuple(start // b for (start, _), b in zip(part, self.block, strict=True))
        size = tuple(size // b for (_, size), b in zip(part, self.block, strict=True))
        return Place(start, size, box(self.grid, start, size))


@cache
def cut(accelerator: str, topology: str, machine: str | None = None, *, rotate: bool = False) -> Cut:
    """How a slice of `topology` is split: into whole hosts, or, where it has one host, into parts of it.

    Without `machine` the one that Ray assumes is taken. Raises as `hardware.shape`.
    """
    whole = hardware_shape(accelerator, topology, machine or default_machine(accelerator, topology))
    sides = len(whole.dims)
    block = chip_bounds(whole)[:sides] if whole.multi_host else (1,) * sides
    children = subshapes(accelerator, whole.topology, whole.machine if whole.multi_host else None)
    return Cut(whole.topology, children, block, rotate=rotate)


def _chips(topology: str) -> int:
    return prod(parse_topology(topology))


def _free(kind: Cut, free: int, shape: str) -> list[Place]:
    busy = kind.grid.full & ~free
    return [place for place in kind.places[shape] if not place.mask & busy]


@lru_cache(maxsize=1 << 16)
def _choose(kind: Cut, free: int, shape: str) -> Choice | None:
    found = _free(kind, free, shape)
    if not found:
        return None
    loss: list[int] = []
    for larger in kind.larger[shape]:
        whole = [place.mask for place in _free(kind, free, larger)]
        least, found = _least(found, whole, nested=kind.nested)
        loss.append(least)
    return tuple(loss), found[0]


def _least(found: list[Place], whole: list[int], *, nested: bool) -> tuple[int, list[Place]]:
    """The places that touch the fewest of the masks `whole`, and how many that is; nested ones touch one or none."""
    union = 0
    for mask in whole:
        union |= mask
    if clear := [place for place in found if not place.mask & union]:
        return 0, clear
    if nested:
        return 1, found
    touched = [sum(1 for mask in whole if mask & place.mask) for place in found]
    least = min(touched)
    return least, [place for place, count in zip(found, touched, strict=True) if count == least]


class Cuts:
    """The units of a pool that are split alike, and what of them is free. Units are named; ties go by natural
    order."""

    def __init__(self, kind: Cut) -> None:
        self.kind = kind
        self.free: dict[str, int] = {}
        self._index: dict[str, list[Entry]] = {}

    @property
    def blocks(self) -> int:
        """Free blocks of all units."""
        return sum(free.bit_count() for free in self.free.values())

    def add(self, unit: str, held: int = 0) -> None:
        """A unit can be handed out, but for the blocks `held`."""
        self._set(unit, self.kind.grid.full & ~held)

    def remove(self, unit: str) -> None:
        """A unit cannot be handed out, for now or for ever."""
        self._set(unit, None)

    def take(self, unit: str, mask: int) -> None:
        """Hold blocks. ValueError if one is not free."""
        if mask & ~self.free.get(unit, 0):
            raise ValueError(f"blocks {list(bits(mask & ~self.free.get(unit, 0)))} of {unit} are not free")
        self._set(unit, self.free[unit] & ~mask)

    def give(self, unit: str, mask: int) -> None:
        """Give blocks back. ValueError if one is free already or the unit is not here."""
        if mask & ~self.kind.grid.full or mask & self.free.get(unit, self.kind.grid.full):
            raise ValueError(f"not all of the blocks {list(bits(mask))} of {unit} are held")
        self._set(unit, self.free[unit] | mask)

    def fit(self, shape: str, avoid: Iterable[str] = ()) -> tuple[str, Place] | None:
        """The part that destroys the least of all units but those to avoid; nothing is taken."""
        shut = frozenset(avoid)
        unit = next((name for _, _, name in self._ordered(shape) if name not in shut), None)
        choice = self.kind.choose(self.free[unit], shape) if unit is not None else None
        return (unit, choice[1]) if unit is not None and choice else None

    def fit_all(self, shapes: Sequence[str], avoid: Iterable[str] = ()) -> list[tuple[str, Place]] | None:
        """Parts for all shapes at once, in the order asked, or None; the largest is placed first."""
        found: dict[int, tuple[str, Place]] = {}
        shut = frozenset(avoid)
        try:
            for number in sorted(range(len(shapes)), key=lambda each: -self.kind.size(shapes[each])):
                part = self.fit(shapes[number], shut)
                if part is None:
                    return None
                self.take(part[0], part[1].mask)
                found[number] = part
        finally:
            for unit, place in found.values():
                self.give(unit, place.mask)
        return [found[number] for number in range(len(shapes))]

    def could_ever(self, shape: str) -> bool:
        """Whether a unit can be split into this shape."""
        return shape in self.kind.places

    def largest(self) -> str | None:
        """The largest shape that is free now; None when nothing is."""
        return next((shape for shape in reversed(self.kind.shapes) if self._ordered(shape)), None)

    def count(self, shape: str) -> int:
        """Free places of a shape in all units."""
        return sum(self.kind.count(self.free[name], shape) for _, _, name in self._ordered(shape))

    def fragmentation(self) -> float:
        """1 - blocks of the largest free shape / blocks of the largest that all free blocks together would make.

        0 when they lie as well as they could, towards 1 when they are scattered; 0 when there are none.
        """
        blocks, kind = self.blocks, self.kind
        ideal = next((kind.size(shape) for shape in reversed(kind.shapes) if kind.size(shape) <= blocks), 0)
        found = self.largest()
        return 1 - (kind.size(found) if found else 0) / ideal if ideal else 0.0

    def earliest(
        self, shape: str, count: int, releases: Iterable[UnitRelease], avoid: Iterable[str] = ()
    ) -> tuple[float, tuple[str, ...]] | None:
        """When `count` parts of a shape first fit as blocks are given back, and on which units; None if never.

        `releases` are (time, unit, blocks); -inf stands for now. A unit that is not here yet is wholly held until
        then.
        """
        shut = frozenset(avoid)
        free = {name: mask for name, mask in self.free.items() if name not in shut}
        room = {name: found for name, mask in free.items() if (found := self._room(mask, shape))}
        total, at = sum(room.values()), float("-inf")
        for at_release, unit, mask in sorted(releases):
            if total >= count:
                break
            if unit in shut:
                continue
            free[unit] = free.get(unit, 0) | mask
            total -= room.pop(unit, 0)
            if found := self._room(free[unit], shape):
                room[unit] = found
                total, at = total + found, at_release
        return (at, _fewest(room, count)) if total >= count else None

    def _room(self, free: int, shape: str) -> int:
        """Parts of a shape that fit into the free blocks of one unit at once."""
        if not self.kind.rotate:
            return self.kind.count(free, shape)
        found = 0
        while choice := self.kind.choose(free, shape):
            found, free = found + 1, free & ~choice[1].mask
        return found

    def _ordered(self, shape: str) -> list[Entry]:
        """Units with a free part of the shape, the one that loses the least first; kept from the first question
        on."""
        if shape not in self._index:
            entries = (self._entry(name, free, shape) for name, free in self.free.items())
            self._index[shape] = sorted(entry for entry in entries if entry is not None)
        return self._index[shape]

    def _entry(self, unit: str, free: int, shape: str) -> Entry | None:
        choice = self.kind.choose(free, shape) if free else None
        return (choice[0], natural(unit), unit) if choice else None

    def _set(self, unit: str, free: int | None) -> None:
        before = self.free.get(unit)
        for shape, entries in self._index.items():
            old = self._entry(unit, before, shape) if before else None
            new = self._entry(unit, free, shape) if free else None
            if old == new:
                continue
            if old is not None:
                del entries[bisect_left(entries, old)]
            if new is not None:
                insort(entries, new)
        if free is None:
            self.free.pop(unit, None)
        else:
            self.free[unit] = free


def _fewest(room: dict[str, int], count: int) -> tuple[str, ...]:
    """The fewest units with room for `count` parts together, in natural order."""
    chosen: list[str] = []
    for name in sorted(room, key=lambda unit: (-room[unit], natural(unit))):
        if count <= 0:
            break
        chosen.append(name)
        count -= room[name]
    return tuple(sorted(chosen, key=natural))
