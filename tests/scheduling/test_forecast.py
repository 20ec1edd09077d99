"""Forecasts: what history and arrivals say, futures drawn from them, bounds that learn from their errors."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_policies import site_of, timed
from world import demand, gpus, nodes

from stellwerk.scheduling.arrivals import LEAST, SHORTEST, WINDOW, Arrivals
from stellwerk.scheduling.calibration import LEAST as LEAST_JUDGED
from stellwerk.scheduling.calibration import SPELL, Calibration
from stellwerk.scheduling.forecast import UNKNOWN, Futures, Outlook, forecast, quantile
from stellwerk.scheduling.history import ENOUGH, MOST_GROUPS, History

HOUR = 3600.0


def learnt(*ratios: float, user: str = "ann", said: float = 100.0) -> History:
    history = History()
    for ratio in ratios:
        history.learn(timed("z", 8, said, user=user), 0, ratio * said)
    return history


def test_while_nothing_is_known_an_estimate_is_believed() -> None:
    history = History()
    assert history.draw(timed("a", 8, 100.0), 0, 0.0, 0.3) == 100.0
    assert history.draw(demand("a", gpus(8)), 0, 0.0, 0.3) is None
    assert not history.knows(timed("a", 8, 100.0), 0)
    outlived = history.draw(timed("a", 8, 100.0), 0, 130.0, 0.5)
    assert outlived is not None and outlived > 130.0


def test_the_most_particular_group_with_enough_is_drawn_from() -> None:
    history = learnt(*[0.5] * ENOUGH)
    assert history.draw(timed("b", 8, 200.0, user="bob"), 0, 0.0, 0.5) == 100.0
    for _ in range(ENOUGH):
        history.learn(timed("y", 8, 100.0, user="bob"), 0, 20.0)
    assert history.draw(timed("b", 4, 200.0, user="bob"), 0, 0.0, 0.5) == 40.0
    assert history.draw(timed("b", 4, 200.0, user="ann"), 0, 0.0, 0.5) == 100.0


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(0.01, 3.0), min_size=ENOUGH, max_size=60),
    st.floats(0.0, 400.0),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_what_runs_is_drawn_to_run_on(ratios: list[float], ran: float, place: float) -> None:
    history = learnt(*ratios)
    whole = history.draw(timed("a", 8, 100.0, user="ann"), 0, ran, place)
    assert whole is not None and whole >= ran
    assert whole == history.copy().draw(timed("a", 8, 100.0, user="ann"), 0, ran, place)


def test_a_copy_learns_on_its_own() -> None:
    history = learnt(*[0.5] * ENOUGH)
    other = history.copy()
    for _ in range(ENOUGH):
        other.learn(timed("z", 8, 100.0, user="ann"), 0, 10.0)
    assert history.draw(timed("a", 8, 100.0, user="ann"), 0, 0.0, 0.0) == 50.0
    assert other.draw(timed("a", 8, 100.0, user="ann"), 0, 0.0, 0.0) == 10.0


def test_what_was_learnt_is_written_down_and_read_again() -> None:
    history = learnt(0.5, 0.25, 1.5)
    history.learn(demand("b", gpus(8)), 0, 30.0)
    history.arrivals.note(5.0, timed("a", 8, 100.0, user="ann"))
    other = History()
    other.load(history.dump())
    assert other.dump() == history.dump()
    for each in (history, other):
        for _ in range(ENOUGH):
            each.learn(timed("z", 8, 100.0, user="ann"), 0, 70.0)
    assert other.dump() == history.dump()
    before = history.dump()
    for wrong in ("", "[]", "[[], [], [{}]]", "[[1], [], []]"):
        with pytest.raises((ValueError, KeyError, TypeError)):
            history.load(wrong)
    assert history.dump() == before


def test_old_groups_are_forgotten_and_the_common_ones_are_not() -> None:
    history = History()
    for number in range(MOST_GROUPS):
        history.learn(timed(f"w{number}", 8, 100.0, user="ann"), 0, 50.0)
    assert history.draw(timed("new", 8, 100.0, user="bob"), 0, 0.0, 0.5) == 50.0
    assert history.dump().count('"name"') < 2 * MOST_GROUPS


def test_arrivals_repeat_the_window_from_any_moment() -> None:
    arrivals = Arrivals()
    for number in range(LEAST - 1):
        arrivals.note(number * HOUR * 2, timed(f"j{number}", 8, 1.0))
    span = LEAST * HOUR * 2
    assert list(islice(arrivals.to_come(span, 0.5), 3)) == []
    arrivals.note((LEAST - 1) * HOUR * 2, timed("last", 8, 1.0))
    coming = list(islice(arrivals.to_come(span, 0.5), 2 * LEAST))
    times = [at for at, _ in coming]
    assert times == sorted(times) and times[0] >= span
    assert len({demand.key for _, demand in coming}) == 2 * LEAST
    assert [demand.name for _, demand in coming[:2]] == ["j9", "j10"]
    assert times[LEAST] - times[0] == span


def test_a_first_burst_is_not_taken_for_what_always_happens() -> None:
    arrivals = Arrivals()
    for number in range(500):
        arrivals.note(float(number), timed(f"j{number}", 8, 1.0))
    assert list(islice(arrivals.to_come(600.0, 0.5), 1)) == []
    assert len(list(islice(arrivals.to_come(SHORTEST, 0.5), 1))) == 1


def test_arrivals_of_long_ago_are_forgotten() -> None:
    arrivals = Arrivals()
    for at in (0.0, WINDOW, WINDOW + 1.0):
        arrivals.note(at, timed("a", 8, 1.0))
    kept = islice(arrivals.copy().to_come(WINDOW + 2.0, 0.0), 1)
    assert list(kept) == []


def test_a_start_that_is_certain_is_exact() -> None:
    site = site_of(nodes(1))
    site.submit(timed("one", 8, 100.0), timed("two", 8, 50.0))
    site.obey()
    found = forecast(site.scheduler, History())
    assert found["one"] == Outlook(0.0, 0.0, 100.0, 100.0)
    assert found["two"] == Outlook(100.0, 100.0, 150.0, 150.0)


def test_of_work_of_unknown_length_nothing_is_said() -> None:
    site = site_of(nodes(1))
    site.submit(demand("one", gpus(8)), timed("two", 8, 50.0))
    site.obey()
    assert forecast(site.scheduler, History())["two"] == UNKNOWN


def test_only_those_asked_for_and_no_more_events_than_allowed() -> None:
    site = site_of(nodes(1))
    site.submit(*(timed(f"w{number}", 8, 10.0) for number in range(50)))
    site.obey()
    only = forecast(site.scheduler, History(), only=("w3",))
    assert only == {"w3": Outlook(30.0, 30.0, 40.0, 40.0)}
    cut = forecast(site.scheduler, History(), futures=Futures(events=100))
    assert cut["w3"].start_p90 == 30.0
    assert cut["w49"] == UNKNOWN


def test_of_many_the_oldest_of_each_class_are_looked_at() -> None:
    site = site_of(nodes(1))
    site.submit(*(timed(f"w{number}", 8, 10.0) for number in range(50)), timed("urgent", 8, 5.0, priority=1))
    site.obey()
    found = forecast(site.scheduler, History(), futures=Futures(3, waiting=20))
    whole = forecast(site.scheduler, History(), futures=Futures(3))
    known = [key for key, outlook in found.items() if outlook.start_p50 is not None]
    assert known == ["w0", *(f"w{number}" for number in range(1, 11)), "urgent"]
    assert all(found[key] == whole[key] for key in known)
    cut = forecast(site.scheduler, History(), submit=[timed("new", 8, 1.0)], futures=Futures(3, waiting=20))
    assert cut["new"] == UNKNOWN


def test_what_comes_later_delays_whom_it_passes() -> None:
    site = site_of(nodes(2))
    site.submit(timed("long", 8, 1000.0), timed("big", 16, 100.0), timed("medium", 8, 990.0))
    site.obey()
    site.now = 10.0
    site.submit(timed("waits", 8, 2000.0))
    history = History()
    for number in range(200):
        history.arrivals.note(site.now - (200 - number) * 440.0, timed(f"short{number}", 8, 430.0))
    alone = forecast(site.scheduler, history, futures=Futures(4, others=False))
    among = forecast(site.scheduler, history, futures=Futures(4, horizon=5000.0))
    assert alone["big"].start_p50 == 1000.0 == among["big"].start_p50
    assert alone["waits"].start_p50 == 1100.0
    assert among["waits"].start_p50 is None or among["waits"].start_p50 >= 1100.0


def test_preempted_work_goes_on_where_it_was() -> None:
    site = site_of(nodes(1), policy="default", preempt=True)
    site.submit(timed("low", 8, 100.0))
    site.obey()
    site.now = 40.0
    site.submit(timed("high", 8, 10.0, priority=1))
    found = forecast(site.scheduler, History(), submit=[timed("last", 8, 5.0)])
    assert found["high"].start_p50 == 40.0
    assert found["last"].start_p50 == 110.0


def test_quantiles_are_told_where_they_are_known() -> None:
    inf = float("inf")
    assert quantile([], 0.5) is None
    assert quantile([4.0, 2.0, 8.0], 0.5) == 4.0
    assert quantile([1.0, 2.0, 3.0, inf], 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0, inf], 0.9) is None
    assert quantile([1.0, inf, inf], 0.5) is None


@pytest.mark.parametrize("stretch", [0.5, 1.0, 3.0])
def test_bounds_hold_for_nine_of_ten_whatever_the_draws_say(stretch: float) -> None:
    rng, calibration, held = random.Random(7), Calibration(), list[bool]()
    for number in range(3000):
        said = rng.lognormvariate(7.0, 1.5)
        came = stretch * said * rng.lognormvariate(0.0, 0.6)
        bound = calibration.bound(said, said * 1.1)
        held.append(came <= bound)
        calibration.note(number * SPELL, said, bound, came)
    assert 0.88 <= sum(held[500:]) / len(held[500:]) <= 0.92


def test_while_few_are_judged_a_bound_is_twice_the_median_or_what_was_drawn() -> None:
    calibration = Calibration()
    for number in range(LEAST_JUDGED - 1):
        calibration.note(number * SPELL, 100.0, 110.0, 1000.0)
    assert (calibration.bound(100.0, 110.0), calibration.bound(100.0, 310.0)) == (200.0, 310.0)
    calibration.note(LEAST_JUDGED * SPELL, 100.0, 110.0, 1000.0)
    assert calibration.bound(100.0, 110.0) >= 1000.0


def test_what_is_submitted_together_counts_once_and_by_the_worst() -> None:
    calibration = Calibration()
    for number in range(LEAST_JUDGED):
        for came in (90.0, 400.0, 100.0):
            calibration.note(number * SPELL, 100.0, 1e9, came)
    for _ in range(1000):
        calibration.note(LEAST_JUDGED * SPELL, 100.0, 1e9, 5000.0)
    bound = calibration.bound(100.0, 100.0)
    assert 300.0 < bound < 5000.0


def test_a_forecast_sees_units_on_their_way() -> None:
    site = site_of(nodes(0, maximum=1, provision=300.0))
    site.submit(timed("a", 8, 100.0))
    assert forecast(site.scheduler, History())["a"].start_p90 == 300.0
