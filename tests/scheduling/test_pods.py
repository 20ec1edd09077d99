"""Pods of cubes: the tables of a torus, the choice of a place, broken cubes, and what would fit when."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduling.placement.grid import Grid, Place, bits
from stellwerk.scheduling.placement.pods import Pod
from stellwerk.scheduling.placement.torus import boxes, choose, doublings, in_cubes, table

WRAPPED = (True, True, True)
POD = Grid((4, 4, 4), WRAPPED)
GRIDS = (POD, Grid((4, 4, 4)), Grid((2, 3, 4), WRAPPED), Grid((2, 3, 4), (True, False, True)), Grid((1, 2, 5), WRAPPED))
SHAPES = ((1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2), (1, 1, 3), (2, 2, 3))


def all_places(grid: Grid, shape: tuple[int, ...]) -> set[int]:
    """Every box of the shape in every orientation, by its points."""
    found: set[int] = set()
    for size in set(product(shape, repeat=3)):
        if sorted(size) != sorted(shape) or any(k > n for k, n in zip(size, grid.sides, strict=True)):
            continue
        for start in product(*map(range, grid.sides)):
            ends = [s + k for s, k in zip(start, size, strict=True)]
            if any(e > n and not w for e, n, w in zip(ends, grid.sides, grid.wrap, strict=True)):
                continue
            points = product(*(range(s, e) for s, e in zip(start, ends, strict=True)))
            found.add(sum(1 << grid.index(point) for point in points))
    return found


def open_faces(grid: Grid, place: Place, free: int) -> int:
    """Faces of the box towards a free cube, counted cube by cube."""
    count = 0
    for cube in bits(place.mask):
        point = grid.point(cube)
        for axis, step in product(range(3), (-1, 1)):
            moved = [*point]
            moved[axis] += step
            if not grid.wrap[axis] and not 0 <= moved[axis] < grid.sides[axis]:
                continue
            beside = 1 << grid.index(tuple(moved))
            count += bool(beside & free & ~place.mask)
    return count


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_has_every_place_once(grid: Grid, shape: tuple[int, ...]) -> None:
    masks = [place.mask for place in table(grid, shape).places]
    assert set(masks) == all_places(grid, shape)
    assert len(set(masks)) == len(masks)


@pytest.mark.parametrize(
    ("shape", "wrapped", "walled"),
    [
        ((1, 1, 1), 64, 64),
        ((1, 1, 2), 192, 144),
        ((1, 2, 2), 192, 108),
        ((2, 2, 2), 64, 27),
        ((2, 2, 4), 48, 27),
        ((2, 4, 4), 12, 9),
        ((4, 4, 4), 1, 1),
        ((1, 1, 5), 0, 0),
    ],
)
def test_number_of_places_in_a_pod_of_64(shape: tuple[int, ...], wrapped: int, walled: int) -> None:
    assert len(table(POD, shape).places) == wrapped
    assert len(table(Grid((4, 4, 4)), shape).places) == walled


def test_a_shape_may_be_written_any_way_round() -> None:
    assert table(POD, (2, 1, 1)) is table(POD, (1, 1, 2))


@given(st.sampled_from(GRIDS), st.sampled_from(SHAPES), st.data())
@settings(max_examples=40, deadline=None)
def test_free_places_alive_bits_and_open_faces_agree_with_counting(
    grid: Grid, shape: tuple[int, ...], data: st.DataObject
) -> None:
    free = data.draw(st.integers(0, grid.full)) | data.draw(st.integers(0, grid.full))
    own = table(grid, shape)
    found = own.free(free)
    assert {place.mask for place in found} == {mask for mask in all_places(grid, shape) if not mask & ~free}
    assert own.alive(free).bit_count() == len(found)
    assert own.fits(free) == bool(found)
    for place in found[:5]:
        assert own.exposed(place, free) == open_faces(grid, place, free)


@given(st.integers(0, POD.full), st.integers(0, POD.full), st.sampled_from(SHAPES[:4]))
@settings(max_examples=15, deadline=None)
def test_snug_takes_the_fewest_open_faces_and_then_the_least_harm(a: int, b: int, shape: tuple[int, ...]) -> None:
    free = a | b
    place = choose(POD, free, shape)
    found = table(POD, shape).free(free)
    if place is None:
        assert not found
        return

    def harm(each: Place) -> float:
        lost = 0.0
        for larger in (table(POD, other) for other in doublings(POD) if prod(other) > prod(shape)):
            before = len(larger.free(free))
            lost += (before - len(larger.free(free & ~each.mask))) / before if before else 0.0
        return lost

    least = min(open_faces(POD, each, free) for each in found)
    tied = [each for each in found if open_faces(POD, each, free) == least]
    assert place in tied
    assert harm(place) == pytest.approx(min(map(harm, tied)))


def test_first_is_the_first_of_the_table() -> None:
    assert choose(POD, POD.full, (1, 2, 2), "first") == table(POD, (1, 2, 2)).places[0]


def test_a_pod_full_of_pairs_leaves_a_half_whole() -> None:
    pod = Pod(POD)
    for _ in range(16):
        place = pod.fit((1, 1, 2))
        assert place is not None
        pod.take(place.mask)
    assert pod.largest() == (2, 4, 4)
    assert pod.fragmentation() == 0


def test_scattered_free_cubes_help_an_optical_pod_only() -> None:
    chess = sum(1 << cube for cube in range(64) if sum(POD.point(cube)) % 2)
    static, optical = Pod(POD), Pod(POD, switched=True)
    for pod in (static, optical):
        pod.take(chess)
    assert (static.largest(), optical.largest()) == ((1, 1, 1), (2, 4, 4))
    assert (static.fragmentation(), optical.fragmentation()) == (1 - 1 / 32, 0)
    assert static.fit((1, 1, 2)) is None
    found = optical.fit((2, 4, 4))
    assert found is not None and found.mask == POD.full & ~chess


def test_broken_cubes_are_left_out_until_they_are_mended() -> None:
    pod = Pod(POD)
    pod.take(1 << 5)
    for cube in (5, 6):
        pod.breaks(cube)
    pod.give(1 << 5)
    assert pod.free == POD.full & ~(1 << 5) & ~(1 << 6)
    assert pod.fit((4, 4, 4)) is None and pod.could_ever((4, 4, 4))
    with pytest.raises(ValueError, match=r"\[6\] are not free"):
        pod.take(1 << 6)
    for cube in (5, 6):
        pod.mended(cube)
    assert pod.fits((4, 4, 4))
    with pytest.raises(ValueError, match=r"\[0\] are not held"):
        pod.give(1)


def test_what_fits_when() -> None:
    pod = Pod(POD)
    halves = [
        place.mask for place in table(POD, (2, 4, 4)).places if place.start == (0, 0, 0) and place.size == (2, 4, 4)
    ]
    low = halves[0]
    pod.take(POD.full)
    releases = [(30.0, low), (10.0, POD.full & ~low & 0x1111111111111111), (20.0, POD.full & ~low)]
    assert pod.earliest([(1, 1, 1)], releases)[0] == 10  # type: ignore[index]
    at, found = pod.earliest([(2, 4, 4)], releases) or (0, [])
    assert (at, found[0].mask) == (20, POD.full & ~low)
    assert pod.earliest([(2, 4, 4)] * 2, releases)[0] == 30  # type: ignore[index]
    assert pod.earliest([(4, 4, 4)], releases[:1]) is None
    pod.breaks(0)
    assert pod.earliest([(4, 4, 4)], releases) is None
    assert pod.earliest([(4, 4, 4)], releases, mended=1)[0] == 30  # type: ignore[index]


def test_gangs_are_placed_together_or_not_at_all() -> None:
    pod = Pod(POD)
    found = pod.fit_all([(1, 1, 1), (2, 4, 4), (2, 2, 2)])
    assert found is not None
    assert [place.mask.bit_count() for place in found] == [1, 32, 8]
    assert not found[0].mask & found[1].mask and not found[1].mask & found[2].mask
    assert pod.fit_all([(2, 4, 4)] * 3) is None
    assert pod.held == 0
    assert not pod.fits((4, 4, 4), avoid=1)


@given(st.sampled_from(GRIDS), st.booleans(), st.sampled_from(["first", "snug"]), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_nothing_overlaps_and_what_is_given_back_is_free_again(grid, switched, rule, rng) -> None:  # type: ignore[no-untyped-def]
    pod, live, broken = Pod(grid, switched=switched, rule=rule), list[int](), 0
    for _ in range(60):
        what = rng.random()
        if what < 0.55:
            shape = rng.choice(SHAPES)
            place = pod.fit(shape)
            if place is None:
                assert switched or not table(grid, shape).free(pod.free)
                assert not switched or pod.free.bit_count() < prod(shape)
                continue
            assert place.mask.bit_count() == prod(shape)
            assert not place.mask & broken
            assert not any(place.mask & other for other in live)
            pod.take(place.mask)
            live.append(place.mask)
        elif what < 0.85 and live:
            before, mask = pod.free, live.pop(rng.randrange(len(live)))
            pod.give(mask)
            assert pod.free == before | mask & ~broken
        elif what < 0.95:
            cube = rng.randrange(grid.points)
            pod.breaks(cube)
            broken |= 1 << cube
        else:
            for cube in bits(broken):
                pod.mended(cube)
            broken = 0
        assert pod.held == sum(live)
        assert 0 <= pod.fragmentation() < 1
        largest = pod.largest()
        assert largest is None or pod.fits(largest)
    for mask in live:
        pod.give(mask)
    assert pod.free == grid.full & ~broken


def test_shapes_of_a_pod() -> None:
    assert doublings(POD) == ((1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4))
    assert boxes(Grid((1, 2, 2))) == ((1, 2, 2), (1, 1, 2), (1, 1, 1))
    assert [in_cubes(topology) for topology in ((4, 4, 8), (2, 4, 4), (4, 4), (4, 4, 6))] == [
        (1, 1, 2),
        None,
        None,
        None,
    ]
