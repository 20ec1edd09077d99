"""Goals: what they mean, and what is wrong with them."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_log import demand

from stellwerk.simulation.driver import Job
from stellwerk.simulation.goals import Goal, parse_goal
from stellwerk.spec.problems import Flaw


def job(wait: float | None, run: float | None = 10.0, chips: int = 4, queue: str = "default") -> Job:
    made = Job(100.0, demand("k", chips, queue=queue), 1.0)
    made.start = None if wait is None else 100.0 + wait
    made.end = None if made.start is None or run is None else made.start + run
    return made


def values(text: str, *jobs: Job, utilization: float = 0.5) -> tuple[float, ...]:
    outcome: Any = SimpleNamespace(jobs=list(jobs), utilization=utilization)
    return parse_goal(text).values(outcome)


def met(text: str, *jobs: Job, utilization: float = 0.5) -> bool:
    goal = parse_goal(text)
    found = zip(goal.clauses, values(text, *jobs, utilization=utilization), strict=True)
    return all(clause.met(value) for clause, value in found)


def test_figures_of_waits_and_completions() -> None:
    jobs = [job(float(wait)) for wait in (0, 10, 20, 30, 40)]
    text = "mean wait < 1m and p50 wait < 1m and p90 wait < 1m and max wait < 1m and p50 completion < 1m"
    assert values(text, *jobs) == (20, 20, 36, 40, 30)
    assert values("p99 wait < 1s", *jobs) == (pytest.approx(39.6),)


def test_a_bound_is_within_or_beyond() -> None:
    assert met("max wait <= 40s", job(40.0)) and not met("max wait < 40s", job(40.0))
    assert met("utilization >= 50%", job(0.0)) and not met("utilization > 0.5", job(0.0))
    assert met("max wait < 1h 30m", job(5399.0)) and not met("max wait < 1h30m and utilization > 0.9", job(0.0))


def test_work_that_never_starts_or_ends_misses() -> None:
    assert values("mean wait < 1d and max wait < 1d and p50 wait < 1d", job(5.0), job(5.0), job(None)) == (inf, inf, 5)
    assert values("p90 completion < 1d and p50 wait < 1d", job(5.0), job(5.0, None)) == (inf, 5)
    assert parse_goal("max wait < 1d").clauses[0].short(inf) == inf


def test_parts() -> None:
    jobs = [job(5.0, chips=8, queue="research"), job(7.0, chips=16), job(9.0, chips=1)]
    text = "max wait < 1s for research and max wait < 1s for chips > 8 and max wait < 1s for chips <= 8"
    assert values(text, *jobs) == (5, 7, 9)
    assert values("max wait < 1s for chips = 16 and max wait < 1s", *jobs) == (7, 9)
    assert values("max wait < 1s for chips", job(3.0, queue="chips"), job(9.0)) == (3,)  # a queue of that name


def test_a_goal_is_written_as_it_was_read() -> None:
    for text in (
        "p90 wait < 10m",
        "mean completion <= 1h30m for research and utilization > 60%",
        "max wait < 5 for chips >= 8",
    ):
        assert str(parse_goal(text)) == text
    assert (
        str(parse_goal("  P90   Wait<10m  AND utilization>=.5".replace(".5", "0.5")))
        == "p90 wait < 10m and utilization >= 0.5"
    )


def test_by_how_much_a_value_misses() -> None:
    wait, share = parse_goal("p90 wait < 10m and utilization > 60%").clauses
    assert (wait.short(599.0), wait.short(720.0), share.short(0.7)) == (0, 120, 0)
    assert share.short(0.5) == pytest.approx(0.1)
    assert (wait.show(720.0), wait.show(inf), share.show(0.5)) == ("12m 00s", "never", "50.0 %")
    assert (wait.upwards, share.upwards, wait.title, share.title) == (True, False, "p90 wait", "utilization")


def flaw_of(text: str) -> str:
    with pytest.raises(Flaw) as caught:
        parse_goal(text)
    return f"{caught.value.offset}: {caught.value}"


WRONG = [
    ("", "0: the goal ends here; allowed are mean, p50, p90, p99, max or utilization; write for example"),
    ("p90", "3: the goal ends here; allowed are wait or completion"),
    ("p95 wait < 1m", '0: "p95" is not a figure; allowed are mean, p50, p90, p99, max or utilization; did you mean'),
    ("p90 wiat < 1m", '4: "wiat" is not a measure; allowed are wait or completion; did you mean wait?'),
    ("p90 wait > 1m", '9: ">" is not the sign of a wait; allowed are < or <='),
    ("p90 wait 1m", '9: "1m" is not the sign of a wait'),
    ("p90 wait <", '10: "" is not a duration; write for example'),
    ("p90 wait < soon", '11: "soon" is not a duration; write for example'),
    ("p90 wait < 10x", '11: "10x" is not a duration; allowed are numbers with ms, s, m, h, d or w'),
    ("utilization < 0.5", '12: "<" is not the sign of a utilization; allowed are > or >='),
    ("utilization > 50", '14: "50" is not a share; allowed are 0 to 1, or 0% to 100%'),
    ("utilization > 50% for q", "18: utilization is of the whole fleet; leave out what follows"),
    ("p90 wait < 1m or p50 wait < 1m", '14: "or" is not what joins two conditions; allowed is and'),
    ("p90 wait < 1m and", "17: the goal ends here; allowed are mean, p50"),
    ("p90 wait < 1m for", "17: `for` names no work; write for QUEUE, or for chips > 8"),
    ("p90 wait < 1m for chips > many", '26: "many" is not a number of chips'),
]


@pytest.mark.parametrize(("text", "found"), WRONG, ids=[text or "nothing" for text, _ in WRONG])
def test_what_cannot_be_read_is_told_with_its_place(text: str, found: str) -> None:
    assert flaw_of(text).startswith(found)


def test_a_part_without_work_is_refused() -> None:
    goal: Goal = parse_goal("max wait < 1h for reserch")
    with pytest.raises(Flaw, match=r"the trace has no work for reserch; allowed is research; did you mean research\?"):
        goal.check([job(0.0, queue="research")])
    goal.check([job(0.0, queue="reserch")])
