"""Bounds of forecasts: how far off earlier ones were, and how a burst counts."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from stellwerk.scheduling.calibration import LEAST, MARGIN, MOST, RATE, SPELL, UNSURE, Calibration

HOUR = 3600.0


def judged(count: int, came: float, bound: float = HOUR) -> Calibration:
    """A record of so many forecasts of an hour, a spell each."""
    found = Calibration()
    for number in range(count):
        found.note(number * SPELL, HOUR, bound, came)
    return found


def test_until_enough_are_judged_a_bound_is_a_guess() -> None:
    assert judged(LEAST - 1, 5 * HOUR).bound(HOUR, HOUR) == UNSURE * HOUR
    assert judged(LEAST, 5 * HOUR).bound(HOUR, HOUR) > 4 * HOUR


def test_errors_count_in_proportion() -> None:
    found = judged(40, 3 * HOUR, bound=4 * HOUR)
    factor = (3 * HOUR + 60) / (HOUR + 60) * math.exp(max(MARGIN[0], -40 * RATE * 0.1))
    for said in (600.0, HOUR, 10 * HOUR):
        assert math.isclose(found.bound(said, said) + 60, factor * (said + 60), rel_tol=1e-9)


def test_a_burst_moves_the_margin_by_the_logarithm_of_its_size() -> None:
    burst, spells = judged(20, HOUR), judged(20, HOUR)
    before = burst.bound(HOUR, HOUR)
    for number in range(200):
        burst.note(50 * SPELL, HOUR, 0.0, HOUR)
        spells.note((50 + number) * SPELL, HOUR, 0.0, HOUR)
    assert before < burst.bound(HOUR, HOUR) < 1.2 * HOUR
    assert spells.bound(HOUR, HOUR) > 2.5 * HOUR


def test_a_copy_learns_for_itself_and_little_is_kept() -> None:
    found = judged(3 * MOST, 2 * HOUR)
    other = found.copy()
    for number in range(MOST):
        other.note((9 * MOST + number) * SPELL, HOUR, 2 * HOUR, HOUR)
    assert found.bound(HOUR, HOUR) == judged(3 * MOST, 2 * HOUR).bound(HOUR, HOUR) > other.bound(HOUR, HOUR)


@given(st.lists(st.tuples(*[st.floats(0, 1e6) for _ in range(4)]), max_size=60), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_bound_is_never_earlier_than_what_was_drawn(
    notes: list[tuple[float, float, float, float]], one: float, other: float
) -> None:
    found, (p50, p90) = Calibration(), sorted((one, other))
    for note in notes:
        found.note(*note)
    assert p90 <= found.bound(p50, p90) < math.inf
