"""Topologies: hosts and chips of every shape, against independent rules and against Ray's own tables."""

from itertools import combinations, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.hardware import (
    AmbiguousTopology,
    HardwareError,
    IllegalTopology,
    Shape,
    UnknownMachine,
    accelerator,
    accelerators,
    aligned_parts,
    default_machine,
    parse_topology,
    shape,
    shapes,
    shapes_of_chips,
    subshapes,
)

TPUS = [acc for acc in accelerators() if acc.kind == "tpu"]
SHAPES = [shape for acc in TPUS for shape in acc.shapes]
NAMES = [acc.name for acc in accelerators()]
TWO_CORES = {"tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5p", "tpu-v7x"}
CUBE = 64


def cube_shapes(most: int) -> set[str]:
    """Non-decreasing multiples of 4 of up to ``most`` cubes, by brute force over the largest side."""
    found: set[str] = set()
    for a in range(1, round(most ** (1 / 3)) + 2):
        for b in range(a, most + 1):
            if a * b * b > most:
                break
            found |= {f"{4 * a}x{4 * b}x{4 * c}" for c in range(b, most // (a * b) + 1)}
    return found


def test_hosts_times_chips_is_chips():
    for found in SHAPES:
        assert found.hosts * found.chips_per_host == found.chips == prod(found.dims)
        assert found.multi_host == (found.hosts > 1)


def test_machine_of_every_shape_has_its_chips():
    for acc in TPUS:
        chips = {machine.name: machine.chips for machine in acc.machines}
        assert all(chips[found.machine] == found.chips_per_host for found in acc.shapes)
        assert len({(found.topology, found.machine) for found in acc.shapes}) == len(acc.shapes)


def test_accelerator_type_counts_cores_or_chips():
    for found in SHAPES:
        size = found.chips * (2 if found.accelerator in TWO_CORES else 1)
        assert found.accelerator_type.rpartition("-")[2] == str(size)
        assert found.ray_pod_type.rpartition("-")[2] == str(size)


def test_wrap_rule():
    for found in SHAPES:
        if found.accelerator == "tpu-v2":
            assert found.wrap == ()
        elif found.accelerator in ("tpu-v5e", "tpu-v6e"):
            assert found.wrap == (*(side == 16 for side in found.dims), False)
        else:
            assert found.wrap == (min(found.dims) >= 4,) * 3


@pytest.mark.parametrize(
    ("name", "cubes", "count"), [("tpu-v4", 64, 186), ("tpu-v5p", 140, 496), ("tpu-v7x", 144, 521)]
)
def test_three_dimensional_generations(name: str, cubes: int, count: int):
    topologies = [found.topology for found in accelerator(name).shapes if len(found.dims) == 3]
    small = {"2x2x1", "2x2x2", "2x2x4", "2x4x4"} | ({"1x1x1"} if name == "tpu-v7x" else set())
    assert set(topologies) == small | cube_shapes(cubes)
    assert len(topologies) == count
    chips = [prod(parse_topology(topology)) for topology in topologies]
    assert chips == sorted(chips)


@pytest.mark.parametrize("name", ["tpu-v5e", "tpu-v6e"])
def test_two_dimensional_generations(name: str):
    topologies = dict.fromkeys(found.topology for found in accelerator(name).shapes)
    assert list(topologies) == ["1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"]


def test_slices_beyond_the_documented_size_are_marked():
    assert shape("v5p", "16x16x24").doubt is None
    assert "6144" in (shape("v5p", "16x20x28").doubt or "")
    assert shape("v4", "12x16x16").doubt is None
    assert "3072" in (shape("v4", "16x16x16").doubt or "")
    assert all(found.doubt is None for found in accelerator("v7x").shapes)


def test_twist():
    assert {t for t in ("4x4x8", "4x8x8", "8x8x16", "8x16x16", "4x4x4", "16x16x24") if shape("v5p", t).twist} == {
        "4x4x8",
        "4x8x8",
        "8x8x16",
        "8x16x16",
    }
    assert shape("v7x", "4x4x8").twist is None
    assert shape("v6e", "16x16").twist is False


def test_v7x_single_chip_host():
    found = shape("v7x", "1x1x1")
    assert (found.machine, found.hosts, found.accelerator_type) == ("tpu7x-standard-1t", 1, "tpu7x-2")
    assert found.ray_valid is False


def test_v3_machines():
    assert shape("v3", "2x2").machine == "ct3-hightpu-4t"
    assert shape("v3", "4x4").machine == "ct3p-hightpu-4t"
    with pytest.raises(IllegalTopology) as caught:
        shape("v3", "4x4", "ct3-hightpu-4t")
    assert caught.value.code == "topology-on-machine"


def test_lite_devices():
    assert shape("v4", "2x2").machine == "ct4l-hightpu-4t"
    assert shapes_of_chips("v4", 4) == ("2x2x1",)
    assert shape("v5e", "2x2").machine == "ct5lp-hightpu-4t"
    assert shape("v5e", "2x2", "ct5l-hightpu-4t").hosts == 1


def test_machine_that_must_be_named():
    assert shape("v7x", "4x4x4").machine == "tpu7x-standard-4t"
    assert shape("v7x", "4x4x4", "TPU7X-ultranet-4t").hosts == 16
    assert {found.machine for found in shapes("v7x", "4x4x4")} == {"tpu7x-standard-4t"}


def test_case_t1_host_count_against_shape():
    with pytest.raises(IllegalTopology) as caught:
        shape("v6e", "4x4", chips_per_host=4, hosts=2)
    assert caught.value.code == "host-count"
    assert "4 hosts" in caught.value.message
    assert shape("v6e", "4x4", chips_per_host=4, hosts=4).hosts == 4


@pytest.mark.parametrize("name", ["v5e", "v6e"])
def test_case_t2_ambiguous_topology(name: str):
    assert shape(name, "2x4", chips_per_host=8, hosts=1).multi_host is False
    assert shape(name, "2x4", chips_per_host=4, hosts=2).multi_host is True
    assert shape(name, "2x4", hosts=2).chips_per_host == 4
    with pytest.raises(IllegalTopology) as half:
        shape(name, "2x4", chips_per_host=4, hosts=1)
    assert "2 hosts of 4 chips" in half.value.message
    with pytest.raises(AmbiguousTopology) as open_:
        shape(name, "2x4")
    assert len(open_.value.allowed) >= 2
    for machine in open_.value.allowed:
        assert shape(name, "2x4", machine).machine == machine


def test_only_2x4_is_ambiguous():
    ambiguous: set[tuple[str, str]] = set()
    for found in SHAPES:
        try:
            shape(found.accelerator, found.topology)
        except AmbiguousTopology:
            ambiguous.add((found.accelerator, found.topology))
    assert ambiguous == {("tpu-v5e", "2x4"), ("tpu-v6e", "2x4")}


def test_topologies_are_written_freely():
    for text in ("4x4", " 4X4 ", "4 x 4", "4\N{MULTIPLICATION SIGN}4", "04x4"):
        assert shape("v6e", text).topology == "4x4"


@pytest.mark.parametrize(
    ("name", "topology", "suggestion"),
    [
        ("v5p", "8x4x4", "4x4x8"),
        ("v5p", "4x4", "2x2x4"),
        ("v6e", "2x2x4", "4x4"),
        ("v6e", "2x8", "4x4"),
        ("v6e", "3x3", "2x4"),
        ("v5p", "2x2x8", "2x4x4"),
        ("v7x", "1x2x2", "2x2x1"),
    ],
)
def test_illegal_topology_names_the_nearest(name: str, topology: str, suggestion: str):
    with pytest.raises(IllegalTopology) as caught:
        shape(name, topology)
    assert caught.value.suggestion == suggestion
    assert suggestion in caught.value.allowed


def test_machine_is_checked():
    with pytest.raises(UnknownMachine) as caught:
        shape("v6e", "4x4", "ct6e-standard-4")
    assert caught.value.suggestion == "ct6e-standard-4t"
    with pytest.raises(IllegalTopology):
        shape("v6e", "4x4", "ct6e-standard-8t")


def test_gpus_have_no_topologies():
    with pytest.raises(IllegalTopology) as caught:
        shapes("h100", "4x4")
    assert "h100:N" in caught.value.message
    assert shapes_of_chips("h100", 8) == ()


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.text(max_size=30) | st.from_regex(r"[0-9]{1,7}(x[0-9]{1,7}){0,3}"))
def test_any_text_is_a_topology_or_a_hardware_error(name: str, text: str):
    try:
        found = shapes(name, text)
    except HardwareError as error:
        assert "\n" not in str(error)
    else:
        assert all(reading.dims == parse_topology(text) for reading in found)


@settings(deadline=None)
@given(st.integers(min_value=-5, max_value=20000), st.sampled_from(NAMES))
def test_shapes_of_chips(chips: int, name: str):
    for topology in shapes_of_chips(name, chips):
        assert all(found.chips == chips for found in shapes(name, topology))


def test_default_machine_is_the_8_chip_host_of_2x4():
    assert default_machine("v6e", "2x4") == "ct6e-standard-8t"
    assert default_machine("v5e", "2x4") == "ct5lp-hightpu-8t"
    assert default_machine("v6e", "4x4") == "ct6e-standard-4t"


def test_subshapes():
    assert subshapes("v6e", "4x4") == ("1x1", "2x2", "2x4")
    assert subshapes("v6e", "4x4", "ct6e-standard-4t") == ("2x2", "2x4")
    assert subshapes("v6e", "2x4", "ct6e-standard-8t") == ()
    assert subshapes("v6e", "2x4", "ct6e-standard-4t") == ("2x2",)
    assert subshapes("v7x", "4x4x4") == ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
    assert subshapes("v5p", "4x4x12") == ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4")
    assert "8x8x8" in subshapes("v5p", "8x8x16")


def test_every_subshape_is_legal_and_fits():
    for acc in TPUS:
        topologies = dict.fromkeys(found.topology for found in acc.shapes if found.chips <= 1024)
        for parent in topologies:
            for child in subshapes(acc.name, parent):
                assert child in topologies
                assert aligned_parts(parent, child, rotate=False)


def test_aligned_parts():
    assert aligned_parts("4x4", "2x4", rotate=False) == (((0, 2), (0, 4)), ((2, 2), (0, 4)))
    assert aligned_parts("4x4", "2x4") == (
        ((0, 2), (0, 4)),
        ((2, 2), (0, 4)),
        ((0, 4), (0, 2)),
        ((0, 4), (2, 2)),
    )
    assert len(aligned_parts("4x4x4", "2x2x1", rotate=False)) == 16
    assert aligned_parts("2x2", "4x4") == ()
    with pytest.raises(IllegalTopology):
        aligned_parts("4x4x4", "2x2")


sides = st.integers(min_value=1, max_value=8)


@settings(deadline=None)
@given(st.tuples(sides, sides, sides), st.tuples(sides, sides, sides))
def test_aligned_parts_lie_inside_on_their_own_grid(outer: tuple[int, ...], inner: tuple[int, ...]):
    parent, child = ("x".join(map(str, dims)) for dims in (outer, inner))
    parts = aligned_parts(parent, child)
    assert len(set(parts)) == len(parts)
    for part in parts:
        assert sorted(size for _, size in part) == sorted(inner)
        for (start, size), side in zip(part, outer, strict=True):
            assert start % size == 0
            assert 0 <= start <= side - size
    as_written = aligned_parts(parent, child, rotate=False)
    assert parts[: len(as_written)] == as_written
    cells = [set(product(*(range(start, start + size) for start, size in part))) for part in as_written]
    assert all(not one & other for one, other in combinations(cells[:12], 2))
    if all(side % size == 0 for side, size in zip(outer, inner, strict=True)):
        assert len(as_written) * prod(inner) == prod(outer)


# Ray's own tables, read from the Ray that is installed.


@pytest.fixture(scope="module")
def ray_tpu():
    return pytest.importorskip("ray._private.accelerators.tpu")


def test_ray_valid_is_what_ray_lists(ray_tpu):
    for acc in TPUS:
        listed = ray_tpu.VALID_TPU_TOPOLOGY[acc.ray_version]
        assert all(found.ray_valid == (found.topology in listed) for found in acc.shapes)
        ours = {found.topology for found in acc.shapes} | set(acc.ray_only)
        ascending = {
            topology for topology in listed if list(parse_topology(topology)) == sorted(parse_topology(topology))
        }
        assert ascending - {"2x2x1"} <= ours


def test_ray_assumes_the_default_machine(ray_tpu):
    for acc in TPUS:
        for found in acc.shapes:
            if found.ray_valid:
                machine = default_machine(acc.name, found.topology)
                assumed = ray_tpu.get_chips_per_host(found.topology, acc.ray_version)
                assert shape(acc.name, found.topology, machine).chips_per_host == assumed


def test_ray_reads_the_accelerator_type(ray_tpu):
    def readable(found: Shape) -> bool:
        return ray_tpu.normalize_tpu_accelerator_type(found.accelerator_type) == found.ray_pod_type

    assert all(readable(found) for found in SHAPES)


def test_ray_worker_tables_are_our_parents(ray_tpu):
    tables = {**ray_tpu._VALID_TOPOLOGY_WORKER_DIMS_2D, **ray_tpu._VALID_TOPOLOGY_WORKER_DIMS_3D}
    for parent, grid in tables.items():
        name = "v5p" if len(grid) == 3 else "v6e"
        inside = {
            child
            for child, other in tables.items()
            if len(other) == len(grid) and child != parent and all(a <= b for a, b in zip(other, grid, strict=True))
        }
        assert inside <= set(subshapes(name, parent))
        assert set(subshapes(name, parent)) - inside <= {"1x1"}


def test_ray_knows_the_types():
    constants = pytest.importorskip("ray.util.accelerators.accelerators")
    known = {value for value in vars(constants).values() if isinstance(value, str)}
    assert {acc.ray_type for acc in accelerators() if acc.ray_type} <= known
