"""Elastic options: from a least to a most number of slices, in short form and as a mapping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.scheduling.declared import demand
from stellwerk.spec import Option, SpecError, Workload, describe, load_workload, parse_option


def job(option: Any, **more: Any) -> Workload:
    return load_workload({"kind": "job", "entrypoint": "x.py", "options": [option], **more})


@pytest.mark.parametrize(
    "written",
    [
        "tpu-v6e:4x4*1..4@spot",
        " v6e : 4X4 * 1 .. 4 @ spot",
        {"accelerator": "v6e", "topology": "4x4", "slices": {"min": 1, "max": 4}, "market": "spot"},
        {"accelerator": "v6e", "topology": "4x4", "slices": "1..4", "market": "spot"},
        {"accelerator": "v6e:4x4*1..4@spot"},
    ],
)
def test_one_option_however_it_is_written(written: Any) -> None:
    workload = job(written)
    option = workload.options[0].parts[0].option
    assert option.short == "tpu-v6e:4x4*1..4@spot"
    assert (option.fewest, option.chips, option.hosts) == (1, 16, 4)
    assert load_workload(describe(workload)) == workload
    (asked,) = demand(workload, "k", "n").options
    assert (asked.minimum, asked.maximum, asked.parts[0].count, asked.parts[0].chips) == (1, 4, 1, 16)
    assert asked.short == option.short


def test_an_elastic_option_starts_with_its_fewest() -> None:
    (asked,) = demand(job("v6e:4x4*2..3"), "k", "n").options
    assert (asked.minimum, asked.maximum, asked.parts[0].count, asked.chips) == (2, 3, 2, 32)


def test_a_range_of_one_number_is_that_number() -> None:
    assert parse_option("v6e:4x4*2..2") == parse_option("v6e:4x4*2")
    (asked,) = demand(job("v6e:4x4*2..2"), "k", "n").options
    assert (asked.minimum, asked.maximum) == (None, None)


@given(st.integers(1, 50), st.integers(0, 50))
def test_ranges_round_trip(least: int, more: int) -> None:
    option = parse_option(f"tpu-v6e:4x4*{least}..{least + more}")
    assert parse_option(option.short) == option == Option.model_validate(option.model_dump(mode="json"))
    assert option.chips == 16 * least


@pytest.mark.parametrize(
    ("option", "code", "said"),
    [
        ("v6e:4x4*4..1", "slices", "did you mean 1..4?"),
        ("v6e:4x4*0..2", "wrong-value", "at least 1"),
        ("v6e:4x4*1..x", "slices", "write for example 2, 1..4 or {min: 1, max: 4}"),
        ("v6e:4x4*1...4", "slices", "not a number of slices"),
        ({"accelerator": "v6e", "topology": "4x4", "slices": {"min": 1}}, "missing-key", "`max` is missing"),
        ({"accelerator": "v6e", "topology": "4x4", "slices": {"min": 1, "mx": 4}}, "unknown-key", "did you mean max?"),
        ({"accelerator": "v6e", "topology": "4x4", "slices": {"min": 3, "max": 2}}, "slices", "ends before it begins"),
        ({"accelerator": "v6e", "topology": "4x4", "slices": True}, "slices", "not a number of slices"),
        ({"accelerator": "v6e", "topology": "4x4", "slices": 0}, "wrong-value", "at least 1"),
        ({"accelerator": "h100", "count": 8, "slices": "1..2"}, "not-a-tpu", "`slices` is for TPUs"),
    ],
)
def test_what_is_refused(option: Any, code: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        job(option)
    assert f"error[{code}]" in str(caught.value) and said in str(caught.value)


def test_roles_start_together_at_one_size() -> None:
    with pytest.raises(SpecError, match="for a workload without roles"):
        load_workload(
            {"kind": "rl", "entrypoint": "x", "roles": {"a": {}}, "options": [{"a": "v6e:4x4*1..2"}]},
        )
