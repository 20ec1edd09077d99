"""Declared demand: a file draws what the same figures draw in Python; what is wrong is told with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.simulation.generate import generate
from stellwerk.simulation.mix import Mix
from stellwerk.simulation.traces import Trace, read
from stellwerk.spec.problems import SpecError

DAY = 86_400.0
WEIGHTS = st.floats(1e-3, 1e9) | st.integers(1, 100)
FIGURES: dict[str, st.SearchStrategy[Any]] = {
    "sizes": st.dictionaries(st.integers(1, 9_999_999).map(str), WEIGHTS, min_size=1, max_size=5),
    "wave": st.floats(0, 1),
    "median": st.floats(0.001, DAY),
    "sigma": st.floats(0, 10),
    "longest": st.floats(DAY, 400 * DAY),
    "queues": st.dictionaries(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), WEIGHTS, min_size=1, max_size=5),
    "users": st.integers(1, 10_000),
    "estimates": st.sampled_from(["none", "exact", "1-5", "0.5-2"]),
    "accelerator": st.sampled_from(["H100", "a100-80GB", "v5e", "p100"]),
}
MIXES = st.fixed_dictionaries({"jobs": st.integers(1, 60), "span": st.floats(0, 90 * DAY)}, optional=FIGURES)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 300) | st.floats(width=32) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
FEW = "generate: {jobs: 20, span: 1d}\n"


def put(folder: Path, text: str | bytes, name: str = "demand.yaml") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def refused(folder: Path, text: str, format: str = "") -> str:
    source = put(folder, text)
    with pytest.raises(SpecError) as caught:
        read(source + format)
    return str(caught.value).replace(source, "FILE")


@settings(max_examples=60, deadline=None)
@given(MIXES, st.integers(0, 2**40))
def test_a_file_draws_what_its_figures_draw(
    tmp_path_factory: pytest.TempPathFactory, declared: dict[str, Any], seed: int
):
    source = put(tmp_path_factory.getbasetemp(), json.dumps({"generate": declared}), "mix.yaml")
    trace = read(source, None, ["p100"], seed)
    sizes = (
        {"sizes": {int(chips): weight for chips, weight in declared["sizes"].items()}} if "sizes" in declared else {}
    )
    mix = Mix.model_validate({**declared, **sizes}, context={"extra_accelerators": frozenset({"p100"})})
    assert trace == generate(mix, seed, "mix")
    assert (len(trace.jobs), trace.format) == (declared["jobs"], "generated")
    assert {job.chips for job in trace.jobs} <= set(mix.sizes) and {job.queue for job in trace.jobs} <= set(mix.queues)
    assert all(0 < job.duration <= max(0.001, mix.longest) for job in trace.jobs)
    if "estimates" in declared:
        assert all((job.estimate is None) == (declared["estimates"] == "none") for job in trace.jobs)
    if declared.get("estimates") == "exact":
        assert all(job.estimate == job.duration for job in trace.jobs)


def test_spellings_are_those_of_other_files(tmp_path: Path):
    text = """# a comment
---
"generate":
  jobs: 50
  span: 1h30m
  sizes: {8: 1}
  median: 90
  sigma: 0
  longest: 14d
  queues: {prod: 1}
  users: 1
  estimates: exact
  accelerator: H100-80GB
"""
    trace = read(put(tmp_path, text), accelerator="a100-80g")
    assert {(job.chips, job.duration, job.estimate, job.queue, job.user, job.accelerator) for job in trace.jobs} == {
        (8, 90.0, 90.0, "prod", "prod-1", "h100")
    }
    assert 0 < trace.window <= 5400


def test_seeds_decide_what_is_drawn(tmp_path: Path):
    source = put(tmp_path, FEW)
    assert read(source) == read(source, seed=0) == read(source, seed=0)
    assert read(source, seed=1) != read(source, seed=0)


def test_its_format_is_seen_from_the_content(tmp_path: Path):
    assert read(put(tmp_path, FEW, "demand.csv")).format == "generated"
    assert read(put(tmp_path, gzip.compress(FEW.encode()), "demand.csv.gz")).format == "generated"
    assert read(put(tmp_path, json.dumps({"generate": {"jobs": 3, "span": 0}}), "demand.swf")).format == "generated"
    assert len(read(put(tmp_path, FEW) + ":generated").jobs) == 20


def test_work_runs_on_what_the_replay_says_unless_the_file_does(tmp_path: Path):
    def names(trace: Trace) -> set[str | None]:
        return {job.accelerator for job in trace.jobs}

    assert names(read(put(tmp_path, FEW))) == {None}
    assert names(read(put(tmp_path, FEW), accelerator="h100")) == {"h100"}
    named = FEW.replace("1d", "1d, accelerator: P100")
    assert names(read(put(tmp_path, named), "h100", ["p100"])) == {"p100"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("generate: {jobs: 5, span: soon}\n", 'FILE:1:27: error[duration]: `span`: "soon" is not a duration'),
        ("generate: {jobs: 5}\n", "FILE:1:11: error[missing-key]: `span` is missing; write for example `span: 7d`"),
        ("generate: {jobs: 0, span: 1d}\n", "FILE:1:18: error[wrong-value]: `jobs` is 0; it must be at least 1"),
        ("generate: {jobs: 9999999, span: 1d}\n", "it must be at most 5000000"),
        ("generate: {jobs: 5, span: 1d, medain: 3m}\n", "FILE:1:31: error[unknown-key]: "),
        ("generate: {jobs: 5, span: 1d, medain: 3m}\n", "; did you mean median?"),
        ("generate: {jobs: 5, span: 1d, median: 0s}\n", "FILE:1:39: error[wrong-value]: `median` is "),
        ("generate: {jobs: 5, span: 1d, median: 20d}\n", "`longest` is 14d 0h, less than the median, 20d 0h"),
        (
            "generate: {jobs: 5, span: 1d, wave: 1.5}\n",
            "FILE:1:37: error[wrong-value]: `wave` is 1.5; it must be",
        ),
        ("generate: {jobs: 5, span: 1d, sigma: much}\n", 'FILE:1:38: error[wrong-type]: `sigma` is "much"'),
        ("generate: {jobs: 5, span: 1d, sizes: {}}\n", "it must have at least 1 entries"),
        ("generate: {jobs: 5, span: 1d, sizes: {0: 1}}\n", 'FILE:1:39: error[sizes]: `sizes`: "0" is not a number'),
        ("generate: {jobs: 5, span: 1d, sizes: {1: 0}}\n", "FILE:1:42: error[wrong-value]: "),
        ("generate: {jobs: 5, span: 1d, sizes: {1: many}}\n", "FILE:1:42: error[wrong-type]: "),
        ("generate: {jobs: 5, span: 1d, queues: {Prod: 1}}\n", "FILE:1:40: error[name]: "),
        ("generate: {jobs: 5, span: 1d, queues: {Prod: 1}}\n", "did you mean prod?"),
        ("generate: {jobs: 5, span: 1d, users: 0}\n", "FILE:1:38: error[wrong-value]: `users` is 0"),
        ("generate: {jobs: 5, span: 1d, estimates: 5-1}\n", 'FILE:1:42: error[estimates]: `estimates`: "5-1" are no'),
        (
            "generate: {jobs: 5, span: 1d, estimates: user}\n",
            "allowed are exact, none, or a range of factors as in 1-5",
        ),
        ("generate: {jobs: 5, span: 1d, estimates: exakt}\n", "; did you mean exact?"),
        ("generate: {jobs: 5, span: 1d, estimates: [1, 5]}\n", "FILE:1:42: error[estimates]: "),
        ("generate: {jobs: 5, span: 1d, accelerator: h1000}\n", "FILE:1:44: error[unknown-accelerator]: "),
        ("generate: {jobs: 5, span: 1d, accelerator: h1000}\n", "did you mean h100?"),
        ("generate: {jobs: 5, span: 1d, span: 2d}\n", "FILE:1:31: error[duplicate-key]: "),
        ("generate:\n", "FILE:1:1: error[no-value]: `generate` has no value"),
        ("generate: 5\n", "FILE:1:11: error[wrong-type]: `generate` is 5; it must be a mapping"),
        ("genrate: {jobs: 5, span: 1d}\n", "FILE:1:1: error[unknown-key]: "),
        ("genrate: {jobs: 5, span: 1d}\n", "; did you mean generate?"),
        ("pools: []\n", "FILE:1:1: error[missing-key]: `generate` is missing"),
        ("generate: {jobs: 5, span: 1d\n", "error[yaml]: "),
        ("generate: " + "[" * 50 + "\n", "error[too-deep]: "),
        (FEW + "#" * (1 << 20), "FILE:1:1: error[too-large]: the file is larger than 1 MiB"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, found: str):
    assert found in refused(tmp_path, text)


@pytest.mark.parametrize("text", ["- generate\n", "generate\n", "42\n", ""])
def test_what_is_no_mapping_is_refused_when_named(tmp_path: Path, text: str):
    assert refused(tmp_path, text, ":generated").startswith("FILE:1:1: error[")


def test_all_that_is_wrong_is_told_in_order(tmp_path: Path):
    told = refused(
        tmp_path, "generate:\n  jobs: 0\n  sizes: {a: 1, 2: x, b: 1}\n  wave: 7\n  users: '3'\n"
    ).splitlines()
    assert [line.split(" ")[0] for line in told] == [
        "FILE:2:3:", "FILE:2:9:", "FILE:3:11:", "FILE:3:20:", "FILE:3:23:", "FILE:4:9:", "FILE:5:10:",
    ]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(MIXES, st.sampled_from(["jobs", "span", *FIGURES, "more"]), JUNK)
def test_any_value_gives_a_trace_or_problems_with_places(
    tmp_path_factory: pytest.TempPathFactory, declared: dict[str, Any], key: str, value: Any
):
    text = json.dumps({"generate": {**declared, key: value}}, allow_nan=True)
    source = put(tmp_path_factory.getbasetemp(), text, "junk.yaml")
    try:
        trace = read(source, None, ["p100"])
    except SpecError as error:
        assert error.problems and all(problem.line and problem.column for problem in error.problems)
    else:
        assert all(job.duration > 0 and job.chips > 0 for job in trace.jobs)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=" \n:{}[]-,#&*!|>'\"%@jobs159d.", max_size=60))
def test_any_text_gives_a_trace_or_problems(tmp_path_factory: pytest.TempPathFactory, text: str):
    source = put(tmp_path_factory.getbasetemp(), f"generate: {text}", "text.yaml")
    with pytest.raises(SpecError) as caught:
        read(source)
    assert caught.value.problems
