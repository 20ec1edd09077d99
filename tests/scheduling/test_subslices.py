"""Units split into aligned sub-slices: never twice the same block, best fit, whole again when given back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduling.placement.grid import Grid
from stellwerk.scheduling.placement.subslices import Cut, Cuts, cut

KINDS = {
    "16x16": lambda: cut("tpu-v6e", "16x16"),
    "4x8 turned": lambda: cut("tpu-v6e", "4x8", rotate=True),
    "one host": lambda: cut("tpu-v6e", "2x4"),
    "cube": lambda: cut("tpu-v5p", "4x4x4"),
    "three cubes": lambda: cut("tpu-v4", "4x4x12"),
}


def pool(kind: Cut, units: int) -> Cuts:
    found = Cuts(kind)
    for number in range(units):
        found.add(f"u-{number}")
    return found


def take(cuts: Cuts, shape: str) -> tuple[str, int]:
    part = cuts.fit(shape)
    assert part is not None
    cuts.take(part[0], part[1].mask)
    return part[0], part[1].mask


@pytest.mark.parametrize(
    ("accelerator", "topology", "machine", "block", "places"),
    [
        ("tpu-v6e", "4x4", None, (2, 2), {"2x2": 4, "2x4": 2, "4x4": 1}),
        ("tpu-v6e", "2x4", "ct6e-standard-4t", (2, 2), {"2x2": 2, "2x4": 1}),
        ("tpu-v6e", "2x4", "ct6e-standard-8t", (1, 1), {"1x1": 8, "2x2": 2, "2x4": 1}),
        ("tpu-v6e", "2x2", None, (1, 1), {"1x1": 4, "2x2": 1}),
        ("tpu-v5p", "4x4x4", None, (2, 2, 1), {"2x2x1": 16, "2x2x2": 8, "2x2x4": 4, "2x4x4": 2, "4x4x4": 1}),
        (
            "tpu-v4",
            "4x4x12",
            None,
            (2, 2, 1),
            {"2x2x1": 48, "2x2x2": 24, "2x2x4": 12, "2x4x4": 6, "4x4x4": 3, "4x4x12": 1},
        ),
    ],
)
def test_legal_parts(accelerator, topology, machine, block, places) -> None:  # type: ignore[no-untyped-def]
    kind = cut(accelerator, topology, machine)
    assert kind.block == block
    assert {shape: len(found) for shape, found in kind.places.items()} == places


def test_turned_parts_only_when_asked_for_and_only_of_whole_hosts() -> None:
    assert len(cut("tpu-v6e", "4x8", rotate=True).places["2x4"]) == 8
    assert len(cut("tpu-v6e", "4x8").places["2x4"]) == 4
    turned = cut("tpu-v5p", "4x4x4", rotate=True)
    assert {place.size for place in turned.places["2x2x4"]} == {(1, 1, 4), (1, 2, 2), (2, 1, 2)}
    assert {place.size for place in turned.places["2x2x1"]} == {(1, 1, 1)}


@pytest.mark.parametrize("name", KINDS)
def test_parts_have_their_size_and_as_written_they_nest(name: str) -> None:
    kind = KINDS[name]()
    for shape, places in kind.places.items():
        assert {place.mask.bit_count() for place in places} == {kind.size(shape)}
        assert all(kind.place(kind.words(place)) == place for place in places)
        if kind.nested:
            assert sum(place.mask for place in places) == kind.grid.full
            for larger in (place for other in kind.larger[shape] for place in kind.places[other]):
                assert all(place.mask & larger.mask in (0, place.mask) for place in places)
    assert kind.nested == (not kind.rotate)


def test_the_smallest_remainder_is_split_over_all_units() -> None:
    cuts = pool(cut("tpu-v6e", "4x4"), 3)
    first = take(cuts, "2x4")
    second = take(cuts, "2x2")
    assert (first[0], second[0]) == ("u-0", "u-0")
    assert take(cuts, "2x4")[0] == "u-1"
    assert take(cuts, "2x2")[0] == "u-0"
    assert take(cuts, "4x4")[0] == "u-2"
    assert (cuts.largest(), cuts.count("2x4"), cuts.count("2x2")) == ("2x4", 1, 2)
    cuts.give(*first)
    cuts.give(*second)
    assert (cuts.largest(), cuts.count("2x4")) == ("2x4", 2)


def test_units_come_in_natural_order() -> None:
    cuts = Cuts(cut("tpu-v6e", "4x4"))
    for number in (10, 9, 2):
        cuts.add(f"u-{number}")
    assert [take(cuts, "4x4")[0] for _ in range(3)] == ["u-2", "u-9", "u-10"]


def test_fragmentation_is_what_scattering_costs() -> None:
    cuts = pool(cut("tpu-v6e", "4x4"), 4)
    assert cuts.fragmentation() == 0
    for unit in list(cuts.free):
        cuts.take(unit, 0b0111)
    assert (cuts.largest(), cuts.fragmentation()) == ("2x2", 0.75)


def test_a_part_that_is_not_legal_is_refused() -> None:
    cuts = pool(cut("tpu-v6e", "4x4"), 1)
    assert not cuts.could_ever("4x8") and cuts.could_ever("2x4")
    with pytest.raises(KeyError):
        cuts.fit("4x8")
    with pytest.raises(ValueError, match="not free"):
        cuts.take("u-7", 1)
    with pytest.raises(ValueError, match="held"):
        cuts.give("u-0", 1)


def test_gangs_avoidance_and_closed_units() -> None:
    cuts = pool(cut("tpu-v6e", "4x4"), 2)
    parts = cuts.fit_all(["2x2", "4x4", "2x4", "2x2"])
    assert parts is not None
    assert [(unit, place.mask.bit_count()) for unit, place in parts] == [("u-1", 1), ("u-0", 4), ("u-1", 2), ("u-1", 1)]
    assert cuts.fit_all(["4x4", "4x4", "2x2"]) is None
    assert cuts.blocks == 8
    assert cuts.fit("4x4", avoid=["u-0"])[0] == "u-1"  # type: ignore[index]
    cuts.remove("u-1")
    assert cuts.fit("4x4", avoid=["u-0"]) is None
    cuts.add("u-1", held=1)
    assert cuts.largest() == "4x4" and cuts.count("2x4") == 3


def test_what_fits_when() -> None:
    cuts = pool(cut("tpu-v6e", "4x4"), 2)
    for unit in ("u-0", "u-1"):
        cuts.take(unit, 0b1111)
    releases = [(10.0, "u-0", 0b1000), (20.0, "u-1", 0b0001), (30.0, "u-1", 0b0010), (40.0, "u-2", 0b1111)]
    assert cuts.earliest("2x2", 1, releases) == (10, ("u-0",))
    assert cuts.earliest("2x2", 2, releases) == (20, ("u-0", "u-1"))
    assert cuts.earliest("2x4", 1, releases) == (30, ("u-1",))
    assert cuts.earliest("4x4", 1, releases) == (40, ("u-2",))
    assert cuts.earliest("4x4", 2, releases) is None
    assert cuts.earliest("2x2", 1, releases, avoid=["u-0"]) == (20, ("u-1",))
    cuts.add("u-3")
    assert cuts.earliest("4x4", 1, releases) == (float("-inf"), ("u-3",))


@given(st.sampled_from(sorted(KINDS)), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_random_life(name: str, rng: random.Random) -> None:
    """No block twice; refused only when no part is free; as a pool made anew; all is whole at the end."""
    kind = KINDS[name]()
    cuts, live, closed = pool(kind, 3), list[tuple[str, int]](), dict[str, int]()
    for _ in range(60):
        shape = rng.choice(kind.shapes)
        if rng.random() < 0.6:
            part = cuts.fit(shape)
            if part is None:
                assert not any(kind.count(free, shape) for free in cuts.free.values())
                continue
            unit, place = part
            assert place.mask.bit_count() == kind.size(shape)
            assert not any(unit == other and place.mask & mask for other, mask in live)
            cuts.take(unit, place.mask)
            live.append((unit, place.mask))
        elif live and rng.random() < 0.8:
            unit, mask = live.pop(rng.randrange(len(live)))
            if unit in cuts.free:
                cuts.give(unit, mask)
        elif rng.random() < 0.5 and cuts.free:
            cuts.remove(unit := rng.choice(sorted(cuts.free)))
            closed[unit] = 1
        else:
            for unit in closed:
                cuts.add(unit, held=sum(mask for other, mask in live if other == unit))
            closed.clear()
        anew = Cuts(kind)
        for unit, free in cuts.free.items():
            anew.add(unit, held=kind.grid.full & ~free)
        assert [anew.fit(each) for each in kind.shapes] == [cuts.fit(each) for each in kind.shapes]
        assert (anew.largest(), anew.fragmentation()) == (cuts.largest(), cuts.fragmentation())
    for unit, mask in live:
        if unit in cuts.free:
            cuts.give(unit, mask)
    assert all(free == kind.grid.full for free in cuts.free.values())


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
@settings(max_examples=30, deadline=None)
def test_a_part_destroys_the_least_that_can_be(a: int, b: int) -> None:
    """Largest shape first: no other free part of the shape loses fewer places of it, and so on down."""
    kind, free = cut("tpu-v6e", "16x16"), a | b
    choice = kind.choose(free, "2x2")
    if choice is None:
        return
    losses = [
        tuple(kind.count(free, other) - kind.count(free & ~place.mask, other) for other in kind.larger["2x2"])
        for place in kind.places["2x2"]
        if not place.mask & ~free
    ]
    assert choice[0] == min(losses)


def test_blocks_that_do_not_divide_a_part_leave_it_out() -> None:
    kind = Cut("4x4", ("1x1", "2x2", "1x4"), (2, 2), rotate=True)
    assert kind.shapes == ("2x2", "4x4")
    assert kind.grid == Grid((2, 2))
