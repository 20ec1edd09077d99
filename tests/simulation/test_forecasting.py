"""Forecasts in a replay: made at submit and again, learning only from the past, and judged."""

from __future__ import annotations

import csv
from pathlib import Path

from stellwerk.scheduling.forecast import Futures
from stellwerk.simulation.forecast_figures import Judged, figures, judged
from stellwerk.simulation.forecasting import Forecaster, Told, calibrated, forecasting
from stellwerk.simulation.outcome import Outcome
from stellwerk.simulation.replay import Settings, replay, world_for
from stellwerk.simulation.report import write_report
from stellwerk.simulation.submissions import Estimates
from stellwerk.simulation.traces.model import Job, Trace, make_trace
from stellwerk.spec import load_fleet

FLEET = load_fleet(
    {
        "accelerators": {"p100": {"memory": "16GiB", "price": 1.46}},
        "pools": [{"name": "philly", "accelerator": "p100", "chips": 8, "units": 2}],
    }
)


HOUR = 3600.0


def trace(count: int = 20, every: float = 90.0) -> Trace:
    jobs = [
        Job(f"j{n}", "ann", "default", n * every, (60.0, 600.0, 90.0, 240.0)[n % 4], (1, 4, 8, 16)[n % 4])
        for n in range(count)
    ]
    return make_trace("made", jobs, accelerator="p100")


def foretold(settings: Settings | None = None, jobs: Trace | None = None) -> Outcome:
    return replay(FLEET, jobs or trace(), settings or Settings(forecast=True))


def told(outcome: Outcome) -> list[Told]:
    assert outcome.forecasts is not None
    return list(outcome.forecasts)


def test_every_submit_has_a_forecast_and_who_starts_at_once_is_told_so() -> None:
    outcome = foretold()
    first = [each for each in told(outcome) if each.first]
    assert sorted(each.key for each in first) == sorted(job.demand.key for job in outcome.jobs)
    starts = {job.demand.key: job.start for job in outcome.jobs}
    for each in first:
        assert each.certain == (starts[each.key] == each.at)
        assert not each.certain or each.p50 == each.p90 == each.at


def test_forecasts_change_nothing_and_are_the_same_again_and_by_many() -> None:
    settings = Settings(forecast=True, estimates=Estimates.parse("1-5"))
    one, again = foretold(settings), foretold(settings)
    plain = foretold(Settings(estimates=settings.estimates))
    many = foretold(Settings(forecast=True, estimates=settings.estimates, processes=2))
    assert one.forecasts == again.forecasts == many.forecasts
    assert [job.start for job in one.jobs] == [job.start for job in plain.jobs]
    assert plain.forecasts is None and "forecast" not in plain.summary()


def test_with_exact_estimates_and_nobody_to_come_the_last_knows_its_start() -> None:
    outcome = foretold(Settings("fifo", forecast=True))
    last = max(outcome.jobs, key=lambda job: job.at).demand.key
    starts = {job.demand.key: job.start for job in outcome.jobs}
    (made,) = [each for each in told(outcome) if each.key == last and each.first]
    assert made.p50 == starts[last]


def test_nothing_is_known_of_what_comes_later() -> None:
    """What was said until a moment does not depend on what comes after it."""
    long = trace(30)
    short = Trace(long.name, long.jobs[:20])
    made = list[list[Told]]()
    for each in (long, short):
        from stellwerk.scheduling.declared import fleet_of
        from stellwerk.simulation.submissions import submissions

        fleet = fleet_of(FLEET)
        world = world_for(fleet, submissions(each, fleet, Estimates.parse("1-5"), 3), Settings())
        forecaster = Forecaster(world, Futures(3), again=0)
        with forecasting(world, forecaster.observe):
            world.run(19 * 90.0)
        made.append(forecaster.told)
    assert made[0] == made[1]
    assert any(not each.certain for each in made[0])


def test_answers_that_change_are_told_again_in_the_order_of_time() -> None:
    made = told(foretold())
    assert [each.at for each in made] == sorted(each.at for each in made)
    later = [each for each in made if not each.first]
    assert later
    last: dict[str, Told] = {}
    for each in made:
        assert each.key not in last or (last[each.key].p50, last[each.key].p90) != (each.p50, each.p90)
        last[each.key] = each


def test_a_bound_learns_only_from_those_that_started_before() -> None:
    first = [Told(f"k{n}", n * HOUR, n * HOUR + 100.0, n * HOUR + 100.0) for n in range(20)]
    starts = {each.key: each.at + 1000.0 for each in first}
    early = [Told("e", 900.0, 1000.0, 1000.0), *first]
    late = [Told("l", 90_000.0, 90_100.0, 90_100.0), *first]
    bounds = {each.key: each.p90 for each in [*calibrated(early, starts), *calibrated(late, starts)]}
    assert bounds["e"] == 1100.0
    assert bounds["l"] is not None and bounds["l"] > 90_700.0


def test_figures_of_a_known_case() -> None:
    found = [
        Judged(0.0, 0.0, 0.0, certain=True),
        Judged(300.0, 330.0, 400.0),
        Judged(7200.0, 7900.0, 7000.0),
        Judged(100.0, None, None),
    ]
    shown = figures(found)
    assert shown["all"] == {"starts": 4, "within_1m": 0.5, "within_10m": 0.5, "within_10pct": 0.75}
    waited = shown["waited"]
    assert (waited["starts"], waited["unknown"], waited["coverage_p90"]) == (3, 1, 0.5)
    assert waited["error_s"]["under 10 min"] == {"starts": 2, "mean_s": 30.0}
    assert waited["error_s"]["under 6 h"] == {"starts": 1, "mean_s": 700.0}
    assert waited["error_s"]["more"] == {"starts": 0, "mean_s": None}
    assert judged([Told("a", 5.0, 7.0, None)], {"a": 9.0}) == [Judged(4.0, 2.0, None)]


def test_the_files_of_a_forecast(tmp_path: Path) -> None:
    outcome = foretold()
    write_report(outcome, tmp_path)
    with (tmp_path / "forecasts.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["name", "at_s", "p50_s", "p90_s", "start_s"]
    assert len(rows) == len(told(outcome))
    assert "started by p90" in (tmp_path / "report.html").read_text()
    assert outcome.summary()["forecast"]["waited"]["starts"] > 0
