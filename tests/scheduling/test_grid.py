"""Boxes on a grid, checked against counting point by point."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduling.placement.grid import Grid, bits, box, lowest, orientations, places, slab, starts

sides = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    of = draw(sides)
    return Grid(of, tuple(draw(st.booleans()) for _ in of))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Grid, tuple[int, ...], int]:
    """A grid, a box size that may be too long, and a free mask."""
    grid = draw(grids())
    size = tuple(draw(st.integers(1, side + 1)) for side in grid.sides)
    return grid, size, draw(st.integers(0, grid.full) | st.just(grid.full))


def brute_force(grid: Grid, size: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Every box by its points; it runs over the end only of an axis that wraps and that it does not span."""
    found: dict[int, tuple[int, ...]] = {}
    for start in product(*map(range, grid.sides)):
        points = {
            tuple((s + o) % n for s, o, n in zip(start, offset, grid.sides, strict=True))
            for offset in product(*map(range, size))
        }
        over = any(
            s + k > n and (not wraps or k == n)
            for s, k, n, wraps in zip(start, size, grid.sides, grid.wrap, strict=True)
        )
        if len(points) == prod(size) and not over:
            found[sum(1 << grid.index(point) for point in points)] = start
    return found


@given(questions())
@settings(max_examples=100, deadline=None)
def test_places_are_those_of_brute_force(question: tuple[Grid, tuple[int, ...], int]) -> None:
    grid, size, _ = question
    found = places(grid, size)
    assert {place.mask: place.start for place in found} == brute_force(grid, size)
    assert len({place.mask for place in found}) == len(found)
    assert all(place.mask.bit_count() == prod(size) for place in found)


@given(questions())
@settings(max_examples=100, deadline=None)
def test_starts_are_those_of_the_places_that_are_free(question: tuple[Grid, tuple[int, ...], int]) -> None:
    grid, size, free = question
    expected = {start for mask, start in brute_force(grid, size).items() if not mask & ~free}
    assert {grid.point(index) for index in bits(starts(grid, free, size))} == expected


@given(grids())
@settings(max_examples=100, deadline=None)
def test_points_and_bits_are_each_other_s_inverse(grid: Grid) -> None:
    assert [grid.index(grid.point(index)) for index in range(grid.points)] == list(range(grid.points))
    assert sum(slab(grid, 0, start, 1) for start in range(grid.sides[0])) == grid.full
    assert box(grid, (0,) * len(grid.sides), grid.sides) == grid.full


@given(st.integers(0, 1 << 70), st.data())
@settings(max_examples=100, deadline=None)
def test_lowest_bits(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, mask.bit_count()))
    assert list(bits(lowest(mask, count))) == list(bits(mask))[:count]


def test_orientations_are_the_turns_that_fit() -> None:
    assert orientations(Grid((4, 4, 4)), (1, 1, 2)) == ((1, 1, 2), (1, 2, 1), (2, 1, 1))
    assert orientations(Grid((1, 2, 4)), (1, 1, 4)) == ((1, 1, 4),)
    assert orientations(Grid((2, 2, 2)), (1, 1, 3)) == ()


@pytest.mark.parametrize("shape", [(1, 1), (0, 1, 1), (1, 1, 1, 1)])
def test_a_shape_has_as_many_sides_as_the_grid(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="3 sides"):
        orientations(Grid((2, 2, 2)), shape)


@pytest.mark.parametrize(("of", "wrap"), [((), ()), ((0, 2), ()), ((2, 2), (True,))])
def test_a_grid_that_is_none(of: tuple[int, ...], wrap: tuple[bool, ...]) -> None:
    with pytest.raises(ValueError, match=r"sides"):
        Grid(of, wrap)
