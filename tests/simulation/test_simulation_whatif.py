"""What-ifs on logs of simulated worlds: both sides are the same replay, and a change is what the core makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_log import EPOCH, demand, events_of, pool, recorded, told, until

from stellwerk.scheduling.events import Event, StopRequested, Woke
from stellwerk.scheduling.model import Fleet, Limits, Option, Part, Queue
from stellwerk.simulation.changed import Change, parse_pool, parse_quota
from stellwerk.simulation.whatif import Comparison, Line, Question, what_if
from stellwerk.spec.problems import Flaw

FLEET = Fleet((pool(1),))
QUEUED = [(0.0, 100.0, demand("a")), (10.0, 50.0, demand("b")), (20.0, 30.0, demand("c"))]


def ask(events: list[Event], change: Change | None = None, **more: Any) -> Comparison:
    now = more.pop("now", None)
    now = events[-1].at if now is None else EPOCH + now
    since = more.pop("since", None)
    question = Question(change or Change(), now, None if since is None else EPOCH + since, **more)
    return what_if(recorded(events), question)


def add(text: str) -> Change:
    return Change(pools=(parse_pool(text),))


def line(found: Comparison, name: str) -> Line:
    return next(each for each in found.lines if each.name == name)


def starts(found: Comparison, *names: str) -> list[tuple[float | None, float | None]]:
    """Median starts as it is and with the change, from the beginning of the logs."""

    def after(at: float | None) -> float | None:
        return None if at is None else round(at - EPOCH, 6)

    lines = [line(found, name) for name in names]
    return [(each.as_it_is and after(each.as_it_is.start[0]), after(each.changed.start[0])) for each in lines]


def test_one_unit_more_is_as_if_it_had_always_been() -> None:
    events, _ = events_of(FLEET, QUEUED)
    found = ask(events, add("nodes=+1"), named=("a", "b", "c"))
    assert starts(found, "a", "b", "c") == [(0, 0), (100, 10), (150, 60)]
    assert (found.samples, found.replayed, found.open, found.since) == (1, 3, 0, EPOCH)
    as_it_is, changed = found.as_it_is, found.changed
    assert (as_it_is.wait_s["mean"], changed.wait_s["mean"]) == (220 / 3, 40 / 3)
    assert (as_it_is.completion_s["max"], changed.completion_s["max"]) == (160, 100)
    assert (as_it_is.chips, changed.chips, as_it_is.ended, changed.ended) == (4, 8, 3, 3)
    # until the last start as it is, 150 s: all of one unit; and what runs by then of two
    assert (as_it_is.utilization, changed.utilization) == (1.0, pytest.approx(180 / 300))
    # both until the later of the two is done, 180 s, at 8 dollars an hour and unit
    assert (as_it_is.cost, changed.cost) == (pytest.approx(0.4), pytest.approx(0.8))


def test_what_is_is_what_was() -> None:
    jobs = [(7.0 * i, 20.0 + 13 * i % 90, demand(f"w{i}", (1, 2, 4, 8)[i % 4])) for i in range(40)]
    events, ended = events_of(Fleet((pool(3),)), jobs)
    found = ask(events, named=tuple(ended))
    assert {each.name: each.as_it_is and each.as_it_is.finish[0] for each in found.lines} == {
        key: pytest.approx(job.end, abs=1e-3) for key, job in ended.items()
    }


ROWS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 200), st.sampled_from([1, 2, 4, 8]), st.sampled_from([None, 0.5, 2])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 400), since=st.sampled_from([None, 0, 50, 150, 400]), seed=st.integers(0, 2))
def test_a_change_of_nothing_differs_by_nothing(rows: list[Any], cut: int, since: int | None, seed: int) -> None:
    jobs = [
        (float(at), float(took), demand(f"w{i}", chips, None if factor is None else factor * took))
        for i, (at, took, chips, factor) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]
    events, _ = events_of(Fleet((pool(2), pool(2, "more", minimum=0, provision=20.0))), jobs)
    past = until(events, cut)
    if not past:
        return
    found = ask(past, now=float(cut), since=since, seed=seed, samples=2)
    assert found.as_it_is == found.changed
    assert all(each.as_it_is == each.changed for each in found.lines)
    again = ask(past, now=float(cut), since=since, seed=seed, samples=2)
    assert found == again


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, cut=st.integers(1, 400))
def test_the_state_goes_on_as_the_world_did_when_durations_are_known(rows: list[Any], cut: int) -> None:
    """Cut a finished log at a moment: from its state on, the replay gives the rest of it."""
    ordered = sorted(rows, key=lambda row: row[0])
    jobs = [(float(at), float(took), demand(f"w{i}", chips)) for i, (at, took, chips, _) in enumerate(ordered)]
    events, ended = events_of(Fleet((pool(3),)), jobs)
    found = ask(events, since=cut + 0.5, named=tuple(ended))
    for each in found.lines:
        assert each.as_it_is is not None
        assert each.as_it_is.start[0] == pytest.approx(ended[each.name].start, abs=1e-3)
        assert each.as_it_is.finish[0] == pytest.approx(ended[each.name].end, abs=1e-3)


def test_what_is_not_over_goes_on_as_drawn_and_alike_on_both_sides() -> None:
    past = [(float(i), 10.0, demand(f"old{i}", 1, 20.0, name="lm", user="ann")) for i in range(10)]
    new = [(200.0, 80.0, demand("a", 4, 100.0, name="lm", user="ann")), (210.0, 1.0, demand("b", 4, 40.0))]
    events, _ = events_of(FLEET, [*past, *new])
    found = ask(until(events, 220.0), add("nodes=2"), now=220.0, since=220.0)
    # every old one took half of its estimate, so does everything now: a until 250, b from then, or at once
    assert starts(found, "b") == [(250, 220)]
    b = line(found, "b")
    assert b.as_it_is is not None
    assert (b.as_it_is.finish, b.changed.finish) == ((EPOCH + 270,) * 2, (EPOCH + 240,) * 2)
    assert (found.replayed, found.open, found.unknown, found.samples) == (2, 2, 0, 20)
    a = line(found, "lm")
    assert a.as_it_is == a.changed and a.state == "running"


def test_of_what_nothing_is_known_there_is_no_end_unless_one_is_assumed() -> None:
    events = told((0, FLEET), (0, "nodes-0"), (0, demand("a")), (0, ("a", 1)), (5, demand("b")))
    endless = ask(events)
    assert (starts(endless, "a", "b"), endless.unknown) == ([(0, 0), (None, None)], 2)
    assert endless.as_it_is.started == 1 and endless.as_it_is.ended == 0
    assumed = ask(events, assumed=60.0)
    assert (starts(assumed, "b"), assumed.unknown) == ([(60, 60)], 0)


def test_a_cluster_never_ends_by_itself() -> None:
    events = told(
        (0, FLEET), (0, "nodes-0"), (0, demand("c", kind="cluster", runtime=9.0)), (1, ("c", 1)), (5, demand("b"))
    )
    found = ask(events, add("nodes=2"), assumed=10.0)
    assert (starts(found, "c", "b"), found.unknown) == ([(0, 0), (None, 5)], 0)


def test_a_submission_is_only_in_the_change_and_comes_now() -> None:
    events, _ = events_of(FLEET, QUEUED)
    new = (demand("new-1", 4, 60.0), demand("new-2", 4, 60.0))
    found = ask(until(events, 120.0), Change(submit=new), now=120.0, since=120.0, assumed=30.0)
    assert [(each.name, each.as_it_is is None) for each in found.lines] == [
        ("c", False), ("b", False), ("new-1", True), ("new-2", True),
    ]  # fmt: skip
    (_, c), (_, first), (_, second) = starts(found, "c", "new-1", "new-2")
    assert c is not None and first is not None and second is not None
    assert c < first < second
    assert found.as_it_is.wait_s == found.changed.wait_s
    assert found.as_it_is.started == found.changed.started


def test_the_change_may_come_in_between() -> None:
    events, _ = events_of(FLEET, QUEUED)
    found = ask(events, add("nodes=+1"), since=40.0, named=("a", "b", "c"))
    assert starts(found, "a", "b", "c") == [(0, 0), (100, 40), (150, 90)]
    assert found.changed.wait_s["max"] == 70  # of b and c; a had started before


def test_fewer_units_stop_nothing_that_runs() -> None:
    events, _ = events_of(Fleet((pool(2, idle=0.0),)), QUEUED)
    found = ask(events, add("nodes=-1"), since=15.0, named=("a", "b", "c"))
    assert starts(found, "a", "b", "c") == [(0, 0), (10, 10), (60, 60)]
    assert found.changed.preemptions == 0
    assert starts(ask(events, add("nodes=-1"), named=("a", "b", "c")), "a", "b", "c") == [(0, 0), (10, 100), (60, 150)]


def test_a_unit_that_is_added_now_takes_its_provisioning_time() -> None:
    events, _ = events_of(Fleet((pool(1, provision=25.0),)), QUEUED)
    found = ask(events, add("nodes=+1"), since=40.0, named=("b",))
    assert starts(found, "b") == [(100, 65)]


def test_starts_take_as_long_as_they_took() -> None:
    events = told(
        (0, FLEET), (0, "nodes-0"), (0, demand("a")), (0, demand("b")),
        (20, ("a", 1)), (50, ("a", 1, "succeeded", None)), (60, ("b", 1)), (70, ("b", 1, "succeeded", None)),
    )  # fmt: skip
    found = ask(events, named=("a", "b"))
    assert starts(found, "b") == [(50, 50)]
    assert line(found, "b").changed.finish[0] == EPOCH + 70
    assert found.as_it_is.utilization == 1.0  # chips are held from the grant on


def test_policy_and_preemption_are_changes_too() -> None:
    jobs = [(0.0, 100.0, demand("low", 4, 100.0, priority=-100)), (5.0, 10.0, demand("high", 4, 10.0, priority=100))]
    events, _ = events_of(FLEET, jobs)
    found = ask(events, Change(preempt=True), named=("low", "high"))
    assert starts(found, "low", "high") == [(0, 0), (100, 5)]
    assert (found.as_it_is.preemptions, found.changed.preemptions) == (0, 1)
    assert line(found, "low").changed.finish[0] == EPOCH + 100 + 10 + 30  # the restart of four chips
    queued = [
        (0.0, 50.0, demand("first", 4, 50.0)),
        (1.0, 50.0, demand("long", 4, 50.0)),
        (2.0, 5.0, demand("short", 4, 5.0)),
    ]
    events, _ = events_of(FLEET, queued)
    assert starts(ask(events, Change(policy="sjf"), named=("short",)), "short") == [(100, 50)]


def test_a_quota_is_a_change_too() -> None:
    queue = Queue("q", (("p100", 4),), borrow=0)
    jobs = [(0.0, 30.0, demand("a", queue="q")), (0.0, 30.0, demand("b", queue="q"))]
    events, _ = events_of(Fleet((pool(2),), (queue,)), jobs)
    assert starts(ask(events, Change(quotas=(parse_quota("q:p100=+4", ["p100"]),)), named=("b",)), "b") == [(30, 0)]


def test_what_people_stopped_while_it_waited_stays_stopped_and_what_ran_runs_as_long() -> None:
    events = told(
        (0, FLEET), (0, "nodes-0"), (0, demand("a")), (0, ("a", 1)), (1, demand("b")),
        (30, StopRequested(EPOCH + 30, "b")), (40, StopRequested(EPOCH + 40, "a")), (41, ("a", 1, "stopped", None)),
    )  # fmt: skip
    found = ask(events, add("nodes=2"), named=("a", "b"), assumed=100.0)
    assert starts(found, "a", "b") == [(0, 0), (None, 1)]
    assert line(found, "a").changed.finish[0] == EPOCH + 40
    assert line(found, "b").changed.finish[0] == EPOCH + 30


def test_what_could_not_run_may_run_with_the_change() -> None:
    events = told((0, FLEET), (0, "nodes-0"), (0, demand("wide", 8, 60.0)), (50, Woke(EPOCH + 50)))
    found = ask(events, add("nodes=2"), named=("wide",))
    assert starts(found, "wide") == [(None, 0)]


def test_limits_of_what_is_over_are_in_its_running_time_and_others_count() -> None:
    limits = Limits(run=20.0)
    events = told(
        (0, FLEET), (0, "nodes-0"), (0, demand("a", retries=1, limits=limits)),
        (0, ("a", 1)), (15, ("a", 1, "failed", "user-error")), (15, ("a", 2)), (30, ("a", 2, "succeeded", None)),
        (30, demand("b", limits=Limits(wait=40.0))), (30, demand("c", limits=limits)),
    )  # fmt: skip
    found = ask(events, named=("a",), now=35.0, assumed=1000.0)
    assert line(found, "a").changed.finish[0] == EPOCH + 30
    # b starts; c waits, for b has no end for long, or b waits for c
    finishes = {each.name: each.changed.finish[0] for each in found.lines}
    assert finishes["b"] == EPOCH + 1030 < (finishes["c"] or 0.0) <= EPOCH + 1050


def test_another_option_takes_as_much_longer_as_the_estimates_say() -> None:
    fast = replace(pool(1, "fast"), accelerator="h100")
    options = (
        Option("h100:4", (Part("main", "h100", None, 4),), runtime=10.0),
        Option("p100:4", (Part("main", "p100", None, 4),), runtime=40.0),
    )
    either = replace(demand("either"), options=options)
    jobs = [(0.0, 300.0, replace(demand("busy", runtime=300.0), options=options[:1])), (1.0, 80.0, either)]
    events, ended = events_of(Fleet((fast, pool(1))), jobs)
    assert (ended["either"].start, ended["either"].end) == (EPOCH + 61, EPOCH + 141)  # out of patience, on the slower
    found = ask(events, add("fast=2"), named=("either",))
    assert line(found, "either").changed.finish == (EPOCH + 1 + 20, EPOCH + 1 + 20)


def test_a_fleet_that_is_declared_anew_is_changed_anew() -> None:
    events, _ = events_of(FLEET, QUEUED[:1])
    other = Fleet((replace(pool(2), price=None), pool(1, "new")))
    more = told((110, other), (110, "nodes-1"), (110, "new-0"), *[(120, demand(f"x{i}", 4, 9.0)) for i in range(4)])
    found = ask([*events, *more], add("nodes=+1"), samples=3)
    assert (found.as_it_is.chips, found.changed.chips) == (12, 16)
    assert found.as_it_is.started == found.changed.started == 5
    assert [got for _, got in starts(found, "x0", "x3")] == [120, 120]
    assert found.as_it_is.cost is None


WRONG = [
    ("nodes", 'change: "nodes" changes no pool; write for example POOL=+2, POOL=-1 or POOL=4'),
    ("=+2", 'change: "=+2" changes no pool'),
    ("nodes=two", 'change: "two" in "nodes=two" is no number of units or chips; write +2, -1 or 4'),
    ("nodes=1.5", 'change: "1.5" in'),
    ("nodes=-2", "change: nodes has 1 units; -2 leaves -1"),
    ("nodes=+99999999", "change: "),
    ("node=+1", 'unknown-pool: the fleet has no pool "node"; it has nodes; did you mean nodes?'),
    ("q:p100", 'change: "q:p100" changes no quota'),
    ("q:p101=1", "unknown-accelerator: "),
    ("r:p100=1", 'unknown-queue: the fleet has no queue "r"; it has q'),
    ("q:h100=+4", "no-quota: q has no quota of h100, so nothing can be added to it; write q:h100=N"),
    ("q:p100=-5", "change: q has a quota of 4 chips of p100; -5 leaves -1"),
]


@pytest.mark.parametrize(("text", "found"), WRONG, ids=[text for text, _ in WRONG])
def test_a_change_that_cannot_be_is_refused(text: str, found: str) -> None:
    fleet = Fleet((pool(1),), (Queue("q", (("p100", 4),)),))
    with pytest.raises(Flaw) as caught:
        if ":" in text:
            Change(quotas=(parse_quota(text, ["p100"]),)).check(fleet)
        else:
            add(text).check(fleet)
    assert f"{caught.value.code}: {caught.value}".startswith(found)


def test_changes_in_words() -> None:
    fleet = Fleet((pool(2), pool(4, "elastic", minimum=1)), (Queue("q", (("p100", 4),)),))
    change = Change(
        pools=(parse_pool("nodes=+1"), parse_pool("elastic=-4")),
        quotas=(parse_quota("q:p100=8", ["p100"]), parse_quota("q:h100=8")),
        policy="sjf",
        preempt=True,
        submit=(demand("x"),),
    )
    change.check(fleet)
    assert change.told(fleet) == [
        "nodes: 2 -> 3 units", "elastic: 4 -> 0 units", "q: no -> 8 chips of h100", "q: 4 -> 8 chips of p100",
        "policy sjf instead of default", "the policy preempts", "submitted: x (p100:4)",
    ]  # fmt: skip
    assert [(p.minimum, p.maximum) for p in change.apply(fleet).pools] == [(3, 3), (0, 0)]
    assert Change().told(fleet) == [] and Change().apply(fleet) == fleet
