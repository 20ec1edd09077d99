"""The cheapest fleet: against brute force, on functions and on replays."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduling.declared import fleet_of
from stellwerk.scheduling.model import Fleet
from stellwerk.simulation.goals import parse_goal
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.report.sizes import write_sizes
from stellwerk.simulation.sizing import Answer, Search, Units, default_bounds, price_of, resized, size, to_json
from stellwerk.simulation.submissions import Estimates, submissions
from stellwerk.simulation.traces.model import Job, Trace, make_trace
from stellwerk.spec import load_fleet
from stellwerk.spec.problems import Flaw

OWN = frozenset({"p100"})
FLEET = """\
# what we rent
accelerators:
  p100: {price: 1.5}
  v100: {price: 4}
pools:
  - {name: old, accelerator: p100, chips: 4, units: 2}  # two nodes
  - name: new
    accelerator: v100
    chips: 8
    units: {min: 1, max: 3, buffer: 1}
    provision: 60s
"""


def fleet(text: str = FLEET) -> Any:
    from ruamel.yaml import YAML

    return load_fleet(YAML(typ="safe").load(text))


def one(**more: Any) -> Any:
    """A fleet of one pool of four-chip nodes."""
    node = {"name": "nodes", "accelerator": "p100", "chips": 4, "units": 2, **more}
    return load_fleet({"accelerators": {"p100": {"price": 2.0}}, "pools": [node]})


def trace(rows: list[tuple[int, int, int]], option: str = "p100") -> Trace:
    jobs = (Job(f"j{i}", "ann", "default", *row, option=f"{option}:{row[2]}") for i, row in enumerate(rows))
    return make_trace("small", jobs)


# The search alone, on functions in which more never hurts

WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    prices=WEIGHTS,
    work=st.integers(0, 60),
    idle=st.integers(5, 80),
    high=st.integers(1, 7),
    axis=st.integers(0, 2),
    speeds=st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_the_search_finds_what_brute_force_finds(
    prices: list[int], work: int, idle: int, high: int, axis: int, speeds: list[int]
) -> None:
    def simulate(units: Units) -> tuple[bool, bool]:
        power = sum(count * speed for count, speed in zip(units, speeds, strict=False))
        return power >= work, sum(units) * 4 <= idle

    def price(units: Units) -> tuple[float, int, Units]:
        return float(sum(count * each for count, each in zip(units, prices, strict=True))), sum(units), units

    search = Search([(0, high)] * len(prices), min(axis, len(prices) - 1), price, simulate)
    every = [units for units in product(range(high + 1), repeat=len(prices)) if all(simulate(units))]
    # of those that meet the waits the least on its line decides; larger ones are busy for less
    assert search.cheapest() == min(every, key=price, default=None)
    assert len(search.known) <= (high + 1) ** len(prices)


def test_one_pool_takes_as_many_replays_as_a_bisection() -> None:
    asked = list[int]()

    def simulate(units: Units) -> tuple[bool, bool]:
        asked.append(units[0])
        return units[0] >= 617, True

    assert Search([(0, 1000)], 0, lambda units: (float(units[0]), 0, units), simulate).cheapest() == (617,)
    assert len(asked) <= 12 and len(set(asked)) == len(asked) and 616 in asked


def test_where_more_hurts_the_sizes_next_below_are_still_looked_at() -> None:
    search = Search(
        [(0, 15)], 0, lambda units: (float(units[0]), 0, units), lambda units: (units[0] in (6, 8, 9, 10, 11, 15), True)
    )
    assert search.cheapest() == (8,)
    search = Search(
        [(0, 15)], 0, lambda units: (float(units[0]), 0, units), lambda units: (units[0] not in (9, 11), True)
    )
    assert search.cheapest() == (0,)


# Replays

ROWS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 100), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=14
)
GOALS = (
    "mean wait < 20s",
    "p90 wait < 40s and utilization > 30%",
    "max completion < 150s",
    "p50 wait < 1s for chips < 4",
)


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, goal=st.sampled_from(GOALS[:3]), policy=st.sampled_from(["fifo", "default"]))
def test_one_pool_against_brute_force(rows: list[tuple[int, int, int]], goal: str, policy: Any) -> None:
    declared, demand, wanted = one(), trace(rows), parse_goal(goal)
    chosen = Settings(policy, estimates=Estimates("user"))
    answer = size(declared, demand, wanted, chosen, bounds={"nodes": (1, 9)})

    def meets(count: int) -> tuple[bool, bool]:
        values = wanted.values(replay(resized(declared, (count,)), demand, chosen))
        pairs = list(zip(wanted.clauses, values, strict=True))
        up = all(clause.met(value) for clause, value in pairs if clause.upwards)
        return up, all(clause.met(value) for clause, value in pairs)

    every = {count: meets(count) for count in range(1, 10)}
    up = [waits for waits, _ in every.values()]
    best = next((count for count, (_, whole) in every.items() if whole), None)
    if up == sorted(up):  # no anomaly: more never hurts
        assert (answer.best.units[0] if answer.best else None) == best
    elif answer.best is not None:
        assert every[answer.best.units[0]][1]
        assert not any(every.get(answer.best.units[0] - 1, (False, False)))


def two_pools() -> tuple[Any, Trace]:
    declared = load_fleet(
        {
            "accelerators": {"p100": {"price": 1.0}, "v100": {"price": 3.0}},
            "pools": [
                {"name": "p", "accelerator": "p100", "chips": 4, "units": 1},
                {"name": "v", "accelerator": "v100", "chips": 4, "units": 1},
            ],
        }
    )
    rows = [(i * 10, 35 + i % 7 * 20, (1, 2, 4, 4, 8)[i % 5]) for i in range(30)]
    jobs = [
        Job(f"j{i}", "ann", ("a", "b")[i % 2], *row, option=f"{('p100', 'v100')[i % 3 == 0]}:{row[2]}")
        for i, row in enumerate(rows)
    ]
    return declared, make_trace("two", jobs)


@pytest.mark.parametrize("goal", ["p90 wait < 30s", "mean wait < 5s and utilization > 20%", "max completion < 4m"])
def test_two_pools_against_brute_force(goal: str) -> None:
    declared, demand = two_pools()
    wanted, pools = parse_goal(goal), fleet_of(declared).pools
    answer = size(declared, demand, wanted, bounds={"p": (0, 8), "v": (0, 8)})
    met = [
        units
        for units in product(range(9), repeat=2)
        if all(
            clause.met(value)
            for clause, value in zip(
                wanted.clauses, wanted.values(replay(resized(declared, units), demand, limited=False)), strict=True
            )
        )
    ]
    best = min(met, key=lambda units: price_of(pools, units))
    assert answer.best is not None
    assert answer.best.units == best
    assert len(answer.tried) < 40 < 81
    assert not any(each.meets for each in answer.smaller)
    assert {each.units for each in answer.smaller} == {(best[0] - 1, best[1]), (best[0], best[1] - 1)}


def test_default_bounds_are_the_largest_and_all_at_once() -> None:
    rows = [(0, 100, 4), (10, 100, 12), (20, 100, 2), (110, 50, 8), (300, 10, 4)]
    declared = one()
    fleet_ = fleet_of(declared)
    jobs = submissions(trace(rows), fleet_, Estimates(), own=OWN)
    assert list(default_bounds(fleet_, jobs).values()) == [(3, 5)]  # 1 + 3 + 0.625, then 3 + 0.625 - ... + 2
    answer = size(declared, trace(rows), parse_goal("max wait < 1s"))
    assert answer.bounds == ((3, 5),)
    assert answer.best is not None and answer.best.units == (5,)


def test_pools_that_can_stand_for_each_other_may_be_empty() -> None:
    declared = load_fleet(
        {
            "pools": [
                {"name": "own", "accelerator": "h100", "machine": "a3-highgpu-8g", "units": 1, "price": 9},
                {
                    "name": "spot",
                    "accelerator": "h100",
                    "machine": "a3-highgpu-8g",
                    "market": "spot",
                    "units": 1,
                    "price": 1,
                },
            ]
        }
    )
    demand = trace([(0, 60, 8), (0, 60, 8), (5, 60, 16)], "h100")
    answer = size(declared, demand, parse_goal("max wait < 1s"))
    assert answer.bounds == ((0, 4), (0, 4))
    assert answer.best is not None and answer.best.units == (0, 4)
    assert [each.units for each in answer.smaller] == [(0, 3)]


def test_a_pod_keeps_its_size() -> None:
    pod = replace(fleet_of(one()).pools[0], layout="optical", maximum=64)
    assert default_bounds(Fleet((pod,)), submissions(trace([(0, 9, 4)]), Fleet((pod,)), Estimates(), own=OWN)) == {
        pod: (64, 64)
    }


def test_nothing_within_the_bounds_meets_it() -> None:
    rows = [(0, 100, 4), (0, 100, 4), (0, 100, 4)]
    answer = size(one(), trace(rows), parse_goal("max wait < 1s"), bounds={"nodes": (1, 2)})
    assert answer.best is None and answer.nearest is answer.largest
    assert to_json(answer)["nearest"]["gives"] == [
        {"clause": "max wait < 1s", "value": 100.0, "bound": 1.0, "met": False, "short": 99.0}
    ]
    answer = size(one(), trace(rows), parse_goal("max wait < 1s and utilization > 100%"), bounds={"nodes": (1, 9)})
    assert answer.best is None and answer.nearest.units == (3,)


def test_work_that_fits_nowhere_is_never_done() -> None:
    answer = size(one(), trace([(0, 10, 4), (0, 10, 8)], "h100"), parse_goal("p90 wait < 1h"))
    assert answer.best is None
    assert to_json(answer)["nearest"]["gives"][0]["value"] is None


def test_too_many_fleets_are_refused() -> None:
    declared, demand = two_pools()
    with pytest.raises(Flaw, match=r"p 0\.\.9000000, v 0\.\.9000000 are too many fleets to look at"):
        size(declared, demand, parse_goal("p90 wait < 1s"), bounds={"p": (0, 9_000_000), "v": (0, 9_000_000)})


def test_pools_that_grow_stay_pools_that_grow() -> None:
    declared = resized(fleet(), (0, 2))
    assert [(pool.units.min, pool.units.max, pool.units.buffer) for pool in declared.pools] == [(0, 0, 0), (1, 2, 1)]
    assert [pool.units.max for pool in fleet().pools] == [2, 3]


def test_unknown_prices_count_chips() -> None:
    answer = size(load_fleet({"pools": [{"name": "n", "accelerator": "cpu", "chips": 4, "units": 1}]}),
                  trace([(0, 9, 4), (0, 9, 4)], "cpu"), parse_goal("max wait < 1s"))  # fmt: skip
    assert answer.best is not None
    told = to_json(answer)
    assert (told["fleet"]["chips"], told["fleet"]["price_per_hour"]) == (8, None)


def found(tmp_path: Path) -> tuple[Answer, Any, Path]:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    demand = trace([(0, 100, 4), (0, 100, 4), (5, 100, 8)])
    declared = load_fleet(file)
    goal = parse_goal("max wait < 1s and utilization > 1%")
    return size(declared, demand, goal, bounds={"new": (0, 2)}), declared, file


def test_the_files(tmp_path: Path) -> None:
    answer, declared, file = found(tmp_path)
    out = tmp_path / "deep" / "out"
    written = write_sizes(answer, declared, file, out)
    assert sorted(path.name for path in written) == [
        "candidates.csv", "fleet.yaml", "goal1.svg", "goal2.svg", "summary.json",
    ]  # fmt: skip
    assert answer.best is not None and answer.best.units == (4, 0)
    text = (out / "fleet.yaml").read_text()
    assert "# what we rent" in text and "# two nodes" in text
    assert [(pool.units.min, pool.units.max) for pool in load_fleet(out / "fleet.yaml").pools] == [(4, 4), (0, 0)]
    with (out / "candidates.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert next((row["old"], row["new"]) for row in rows if row["met"] == "yes") == ("4", "0")
    assert json.loads((out / "summary.json").read_text()) == json.loads(json.dumps(to_json(answer)))
    for plot in ("goal1.svg", "goal2.svg"):
        ElementTree.fromstring((out / plot).read_text())


def test_a_fleet_that_was_found_meets_the_goal_when_it_is_replayed(tmp_path: Path) -> None:
    answer, declared, file = found(tmp_path)
    out = tmp_path / "out"
    write_sizes(answer, declared, file, out)
    outcome = replay(load_fleet(out / "fleet.yaml"), trace([(0, 100, 4), (0, 100, 4), (5, 100, 8)]))
    assert all(
        clause.met(value) for clause, value in zip(answer.goal.clauses, answer.goal.values(outcome), strict=True)
    )
