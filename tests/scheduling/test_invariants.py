"""The invariants of the core under random events, in random orders, with news late, doubled or of things long gone.

`fuzz.py` runs the same by the thousand; a fault that it finds is mended and kept as a case in `test_found.py`.
"""

from __future__ import annotations

import random

from fuzz import everything, failures, span
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import check_endings, check_replay, run

SEEDS = st.integers(0, 2**32)


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_invariants_hold_and_a_replay_gives_the_same_state(seed: int) -> None:
    check_replay(run(seed, 60))


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_everything_ends_once_the_world_is_kind_again(seed: int) -> None:
    check_endings(run(seed, 40), random.Random(seed))


def test_the_script_runs_seeds_and_says_which_fail(capsys) -> None:  # type: ignore[no-untyped-def]
    assert failures(span("3..5"), 20) == []

    def broken(seed: int, steps: int) -> None:
        everything(seed, steps)
        assert seed != 4, "four is wrong"

    assert [seed for seed, _ in failures(span("3..6"), 5, broken)] == [4]
    assert "four is wrong" in capsys.readouterr().out
