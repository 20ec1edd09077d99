"""Names: every spelling in use stands for one accelerator; anything else is refused with a hint."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.hardware import (
    HardwareError,
    UnknownAccelerator,
    accelerator,
    accelerators,
    parse_name,
    shapes_of_chips,
)

SPELLINGS = [(spelling, acc.name) for acc in accelerators() for spelling in acc.spellings]
TPUS = ["tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x"]
GPUS = ["t4", "v100", "l4", "l40s", "a10g", "a100-40g", "a100-80g", "h100", "h200", "b200", "gb200"]
SHOWN = [*TPUS, *GPUS, "rtx-pro-6000", "mi300x", "cpu"]


def test_shown_names_and_their_order():
    assert [acc.name for acc in accelerators()] == SHOWN


@pytest.mark.parametrize(
    ("spelling", "shown"),
    [
        ("v5e", "tpu-v5e"),
        ("TPU-V5E", "tpu-v5e"),
        ("v5litepod", "tpu-v5e"),
        ("tpu-v5-lite-podslice", "tpu-v5e"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v5", "tpu-v5p"),
        ("tpu7x", "tpu-v7x"),
        ("TPU-V7X", "tpu-v7x"),
        ("Ironwood", "tpu-v7x"),
        ("v6e", "tpu-v6e"),
        ("Trillium", "tpu-v6e"),
        ("tpu-v6e-slice", "tpu-v6e"),
        ("A100-80GB", "a100-80g"),
        ("NVIDIA-A100-80GB", "a100-80g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("nvidia-tesla-a100", "a100-40g"),
        ("nvidia-h100-80gb", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("AMD-Instinct-MI300X-OAM", "mi300x"),
        ("RTX-PRO-6000", "rtx-pro-6000"),
        ("CPU", "cpu"),
    ],
)
def test_spelling(spelling: str, shown: str):
    assert accelerator(spelling).name == shown
    assert parse_name(spelling) == (accelerator(shown), None)


def test_no_spelling_stands_for_two():
    reduced: dict[str, str] = {}
    for spelling, name in SPELLINGS:
        key = "".join(char for char in spelling.lower() if char.isalnum())
        assert reduced.setdefault(key, name) == name


def test_labels_and_ray_types_are_spellings():
    for acc in accelerators():
        for label in acc.gke_labels:
            assert accelerator(label) is acc
        if acc.ray_type is not None and acc.ray_type != "A100":
            assert accelerator(acc.ray_type) is acc


@settings(deadline=None)
@given(st.sampled_from(SPELLINGS), st.data())
def test_case_spaces_and_underscores_do_not_matter(pair: tuple[str, str], data: st.DataObject):
    spelling, shown = pair
    separators = st.sampled_from(["", " ", "_", "-", "  "])
    mixed = "".join(
        data.draw(separators) if char in " -_" else data.draw(st.sampled_from([char.upper(), char.lower()]))
        for char in f" {spelling} "
    )
    assert accelerator(mixed).name == shown


@pytest.mark.parametrize(
    ("text", "name", "chips"),
    [
        ("v6e-16", "tpu-v6e", 16),
        ("V6E_16", "tpu-v6e", 16),
        ("v5litepod-8", "tpu-v5e", 8),
        ("v5e-256", "tpu-v5e", 256),
        ("v2-8", "tpu-v2", 4),
        ("v3-32", "tpu-v3", 16),
        ("v4-32", "tpu-v4", 16),
        ("v5p-8", "tpu-v5p", 4),
        ("tpu7x-8", "tpu-v7x", 4),
        ("v7x-128", "tpu-v7x", 64),
        ("v6e-17", "tpu-v6e", 17),
    ],
)
def test_slice_size(text: str, name: str, chips: int):
    acc, found = parse_name(text)
    assert (acc.name, found) == (name, chips)


def test_every_accelerator_type_reads_back():
    for acc in accelerators():
        for shape in acc.shapes:
            for name in (shape.accelerator_type, shape.ray_pod_type):
                assert parse_name(name) == (acc, shape.chips)


def test_size_of_no_whole_chip():
    with pytest.raises(HardwareError) as caught:
        parse_name("v4-7")
    assert caught.value.code == "illegal-size"
    assert "TensorCores" in caught.value.message


def test_size_does_not_pass_for_a_name():
    with pytest.raises(UnknownAccelerator) as caught:
        accelerator("v6e-16")
    assert caught.value.suggestion == "tpu-v6e"
    assert shapes_of_chips("v6e", 16) == ("4x4",)
    assert shapes_of_chips("v6e", 16, ray_only=True) == ("4x4", "2x8")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("ct6e", "tpu-v6e"),
        ("ct6e-16", "tpu-v6e"),
        ("ct6e-standard-4t", "tpu-v6e"),
        ("ct5lp", "tpu-v5e"),
        ("ct5p-hightpu-4t", "tpu-v5p"),
        ("tpu7x-standard-4t", "tpu-v7x"),
        ("a2-ultragpu", "a100-80g"),
        ("p5.48xlarge", "h100"),
        ("v6ee", "tpu-v6e"),
        ("h-1000", "h100"),
        ("h100-8", "h100"),
        ("trilium", "tpu-v6e"),
    ],
)
def test_near_miss_gets_a_suggestion(text: str, suggestion: str):
    with pytest.raises(UnknownAccelerator) as caught:
        parse_name(text)
    assert caught.value.suggestion == suggestion
    assert suggestion in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [("A100", ("a100-40g", "a100-80g")), ("v5", ("tpu-v5e", "tpu-v5p")), ("v5-8", ("tpu-v5e", "tpu-v5p"))],
)
def test_ambiguous_name_is_not_guessed(text: str, names: tuple[str, ...]):
    with pytest.raises(UnknownAccelerator) as caught:
        parse_name(text)
    assert (caught.value.code, caught.value.allowed) == ("ambiguous-accelerator", names)


@pytest.mark.parametrize("text", ["tpu7", "B300", "nvidia-gb300", "H20", "nvidia-tesla-p100"])
def test_known_but_not_covered(text: str):
    with pytest.raises(UnknownAccelerator) as caught:
        parse_name(text)
    assert caught.value.code == "accelerator-not-covered"


@settings(deadline=None)
@given(st.text() | st.from_regex(r"(v|tpu|ct|a|h)[0-9a-z]{0,5}[-_ ]?[0-9]{0,14}"))
def test_any_text_is_a_name_or_a_hardware_error(text: str):
    try:
        acc, chips = parse_name(text)
    except HardwareError as error:
        assert error.found == text
        assert "\n" not in str(error)
    else:
        assert acc in accelerators()
        assert chips is None or chips > 0
