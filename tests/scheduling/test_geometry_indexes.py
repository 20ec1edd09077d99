"""The pool indexes over sub-slices and pods: grants, incarnations, broken units, forecasts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.grid import bits
from stellwerk.scheduling.placement.index import INF, Forecast, PoolIndex, make
from stellwerk.scheduling.placement.pod_index import PodIndex, pod_sides, slice_shapes
from stellwerk.scheduling.placement.subslice_index import SubsliceIndex
from stellwerk.scheduling.state import UnitState

V6E = Pool("v", "tpu-v6e", "4x4", "ct6e-standard-4t", 16, 4, maximum=3, layout="subslices")
POD = Pool("p", "tpu-v5p", "4x4x4", "ct5p-hightpu-4t", 64, 16, maximum=64, layout="torus")
OPTICAL = Pool("p", "tpu-v5p", "4x4x4", "ct5p-hightpu-4t", 64, 16, maximum=64, layout="optical")
CHIPS = {"2x2": 4, "2x4": 8, "4x4": 16, "4x4x4": 64, "4x4x8": 128, "4x8x8": 256, "8x8x8": 512, "8x16x16": 2048}


def part(topology: str, count: int = 1, pool: Pool = V6E) -> Part:
    return Part("worker", pool.accelerator, topology, CHIPS[topology], count)


def unit(pool: Pool, number: int, incarnation: int = 1) -> UnitState:
    return UnitState(f"{pool.name}-{number}", pool.name, incarnation, "up", pool.chips, pool.hosts, 0.0)


def full(pool: Pool) -> PoolIndex:
    index = make(pool)
    for number in range(pool.maximum):
        index.put(unit(pool, number))
    return index


def grants(index: PoolIndex, wanted: Part, avoid: int = 0) -> tuple[Grant, ...]:
    need = index.need(wanted)
    assert need is not None
    found = index.fit(need, avoid)
    assert found is not None and index.fits(need, avoid)
    return found


def fits(index: PoolIndex, wanted: Part) -> bool:
    need = index.need(wanted)
    return need is not None and index.fit(need) is not None


def earliest(index: PoolIndex, wanted: Part, now: float = 0.0) -> Forecast:
    need = index.need(wanted)
    assert need is not None
    return index.earliest(need, now)


def test_layouts_have_their_index() -> None:
    assert [type(make(pool)) for pool in (V6E, POD, OPTICAL)] == [SubsliceIndex, PodIndex, PodIndex]


def test_a_plain_pod_takes_the_first_place() -> None:
    origins: list[str] = []
    for plain in (True, False):
        index = make(POD, plain=plain)
        for number in (0, 1, 4, 5, 15, 31):
            index.put(unit(POD, number))
        origins.append(grants(index, part("4x4x4", 1, POD))[0].place)
    assert origins == ["0,0,0/4x4x4", "0,12,12/4x4x4"]


def test_sub_slices_are_granted_as_cells_with_their_place() -> None:
    index = full(V6E)
    found = grants(index, part("2x4", 3))
    assert [(grant.unit, grant.chips, grant.hosts, grant.place, grant.group) for grant in found] == [
        ("v-0", 8, 2, "0,0/2x4", 0),
        ("v-0", 8, 2, "2,0/2x4", 1),
        ("v-1", 8, 2, "0,0/2x4", 2),
    ]
    index.take(found, "a", 100.0, 0.0)
    assert (index.free, index.whole_free(), index.largest()) == (24, 1, (16, "4x4"))
    whole = grants(index, part("4x4"))
    assert [(grant.unit, grant.chips, grant.hosts, grant.place) for grant in whole] == [("v-2", 16, 4, "")]
    index.give(found, "a")
    assert (index.free, index.whole_free()) == (48, 3)


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (part("2x2"), 12),
        (part("4x4"), 3),
        (Part("w", "tpu-v6e", "4x8", 32), 0),
        (Part("w", "tpu-v6e", None, 4), 0),
        (Part("w", "tpu-v5e", "2x2", 4), 0),
        (Part("w", "tpu-v6e", "2x2", 4, machine="ct6e-standard-8t"), 0),
        (Part("w", "tpu-v6e", "2x2", 4, market="spot"), 0),
    ],
)
def test_what_sub_slices_can_serve(wanted: Part, most: int) -> None:
    index = make(V6E)
    assert index.most(wanted) == most
    assert (index.need(wanted) is not None) == (most > 0)


def test_avoided_and_dropped_units_are_left_alone() -> None:
    index = full(V6E)
    reserved = earliest(index, part("4x4")).mask
    assert grants(index, part("2x2"), reserved)[0].unit == "v-1"
    index.drop("v-1")
    assert grants(index, part("2x2"), reserved)[0].unit == "v-2"
    assert index.free == 32


def test_a_rebuilt_unit_is_whole_and_an_old_holder_changes_nothing() -> None:
    index = full(V6E)
    held = grants(index, part("2x2"))
    index.take(held, "a", INF, 0.0)
    index.drop("v-0")
    index.put(unit(V6E, 0, 2))
    assert (index.free, index.whole_free()) == (48, 3)
    index.give(held, "a")
    assert index.free == 48
    index.take(held := grants(index, part("2x2")), "b", INF, 0.0)
    index.drop("v-0")
    index.put(unit(V6E, 0, 2))
    assert (index.free, held[0].incarnation) == (44, 2)


def test_forecasts_of_sub_slices() -> None:
    index = full(V6E)
    for key, until in (("a", 50.0), ("b", 70.0), ("c", INF)):
        index.take(grants(index, part("4x4")), key, until, 0.0)
    assert earliest(index, part("2x2")) == Forecast(50.0, 1)
    assert earliest(index, part("4x4", 2)) == Forecast(70.0, 3)
    assert earliest(index, part("4x4", 3)) == Forecast(INF, 0)
    index.drop("v-2")
    index.expect("v-2", 60.0)
    assert earliest(index, part("4x4", 2)) == Forecast(60.0, 5)
    assert earliest(index, part("2x2"), now=55.0).at == 60.0
    assert earliest(index, part("4x4", 2), now=65.0).at == 70.0


def test_cubes_of_a_slice_are_one_grant_each() -> None:
    index = full(POD)
    found = grants(index, part("4x4x8", 2, POD))
    assert [(grant.unit, grant.group, grant.chips, grant.hosts, grant.place) for grant in found] == [
        ("p-0", 0, 64, 16, "0,0,0/4x4x8"),
        ("p-1", 0, 64, 16, "0,0,0/4x4x8"),
        *((grant.unit, 1, 64, 16, grant.place) for grant in found[2:]),
    ]
    index.take(found, "a", 10.0, 0.0)
    assert (index.free, index.whole_free(), index.largest()) == (60 * 64, 60, (48 * 64, "12x16x16"))
    index.give(found, "a")
    assert index.largest() == (4096, "16x16x16")


def test_a_torus_needs_a_place_and_an_optical_pod_needs_cubes() -> None:
    static, optical = full(POD), full(OPTICAL)
    for index in (static, optical):
        for number in range(64):
            if sum(divmod(number, 4)) % 2 == (number // 16) % 2:
                index.drop(f"p-{number}")
    assert static.free == optical.free
    assert not fits(static, part("4x4x8", 1, POD)) and fits(static, part("4x4x4", 1, POD))
    assert fits(optical, part("8x16x16", 1, POD)) == (optical.free >= 2048)
    static.put(unit(POD, 0, 2))
    assert fits(static, part("4x4x8", 1, POD))


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (part("4x4x4", 1, POD), 64),
        (part("8x16x16", 1, POD), 2),
        (part("8x8x8", 1, POD), 8),
        (Part("w", "tpu-v5p", "4x4x12", 192), 21),
        (Part("w", "tpu-v5p", "4x4x20", 320), 0),
        (Part("w", "tpu-v5p", "2x2x4", 16), 0),
        (Part("w", "tpu-v4", "4x4x4", 64), 0),
    ],
)
def test_what_a_pod_can_serve(wanted: Part, most: int) -> None:
    index = make(POD)
    assert index.most(wanted) == most
    assert (index.need(wanted) is not None) == (most > 0)


def test_an_optical_pod_joins_cubes_to_shapes_longer_than_itself() -> None:
    assert make(OPTICAL).most(Part("w", "tpu-v5p", "4x4x20", 320)) == 12


def test_forecasts_of_a_pod() -> None:
    index = full(POD)
    half = part("8x16x16", 1, POD)
    first = grants(index, half)
    index.take(first, "a", 40.0, 0.0)
    index.take(grants(index, half), "b", 90.0, 0.0)
    assert earliest(index, part("4x4x4", 1, POD)).at == 40.0
    found = earliest(index, half)
    assert found.at == 40.0
    assert sorted(f"p-{cube}" for cube in bits(found.mask)) == sorted(grant.unit for grant in first)
    assert earliest(index, part("8x16x16", 2, POD)).at == 90.0
    index.drop("p-0")
    assert earliest(index, part("8x16x16", 2, POD)) == Forecast(INF, 0)
    index.expect("p-0", 120.0)
    assert earliest(index, part("8x16x16", 2, POD)).at == 120.0
    assert earliest(index, half, now=45.0).at > 45.0


def test_sides_of_pods_and_names_of_cubes() -> None:
    assert [pod_sides(cubes) for cubes in (64, 140, 144, 8, 7, 1)] == [
        (4, 4, 4), (4, 5, 7), (4, 6, 6), (2, 2, 2), (1, 1, 7), (1, 1, 1),
    ]  # fmt: skip
    assert (2, 4, 4) in slice_shapes("tpu-v5p")
    assert slice_shapes("h100") == ()
    index = make(POD)
    for name in ("odd", "p-0", "p-5", "p-99"):
        index.put(UnitState(name, "p", 1, "up", 64, 16, 0.0))
    assert index.whole_free() == 4


@given(st.sampled_from([V6E, POD, OPTICAL]), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_an_index_made_anew_agrees(pool: Pool, rng: random.Random) -> None:
    """Whatever happened: nothing is granted twice, and `put` and `note` in any order give the same index."""
    sizes = ("2x2", "2x4", "4x4") if pool is V6E else ("4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x16x16")
    index, live, units = (
        full(pool),
        dict[str, tuple[Grant, ...]](),
        {f"{pool.name}-{n}": 1 for n in range(pool.maximum)},
    )
    away = set[str]()
    for number in range(40):
        name = rng.choice(sorted(units))
        match rng.choice(["take", "take", "give", "drop", "put"]):
            case "take":
                need = index.need(part(rng.choice(sizes), rng.randint(1, 2), pool))
                assert need is not None
                found = index.fit(need)
                assert index.fits(need) == (found is not None)
                if found is not None:
                    assert sum(grant.chips for grant in found) == need.count * need.part.chips
                    assert all(grant.unit not in away for grant in found)
                    index.take(found, f"w{number}", 1000.0 + number, 0.0)
                    live[f"w{number}"] = found
            case "give" if live:
                index.give(live.pop(key := rng.choice(sorted(live))), key)
            case "drop":
                index.drop(name)
                away.add(name)
                units[name] += rng.randint(0, 1)
            case _:
                if name in away:
                    index.put(unit(pool, int(name.split("-")[1]), units[name]))
                    away.discard(name)
        current = [grant for held in live.values() for grant in held if grant.incarnation == units[grant.unit]]
        busy = sum(grant.chips for grant in current if grant.unit not in away)
        assert index.free == (pool.maximum - len(away)) * pool.chips - busy
    steps = [lambda key=key, held=held: anew.note(held, key, 1000.0 + int(key[1:]), 0.0) for key, held in live.items()]
    steps += [
        lambda name=name: anew.put(unit(pool, int(name.split("-")[1]), units[name]))
        for name in sorted(units.keys() - away)
    ]
    rng.shuffle(steps)
    anew = make(pool)
    for step in steps:
        step()
    assert anew.content(0.0) == index.content(0.0)
