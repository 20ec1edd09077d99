"""Failures: declarations with places, exact availability, and a sampled model that converges to it."""

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from availability import cube_availability, optical_goodput, static_goodput
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.scheduling.model import Pool
from stellwerk.simulation.failing import Failure, failure_events
from stellwerk.simulation.failures import load_failures
from stellwerk.spec.problems import SpecError

POD = Pool("pod", "tpu-v4", "16x16x16", None, chips=4096, hosts=1024, maximum=1, minimum=1)
SPOT = Pool("h100-spot", "h100", None, None, chips=8, hosts=1, maximum=3, market="spot")


@pytest.mark.parametrize(
    ("host", "optical", "static"), [(0.999, 0.840, 0.774), (0.995, 0.751, 0.277), (0.99, 0.747, 0.076)]
)
def test_goodput_of_a_pod_with_slices_of_1024_chips(host: float, optical: float, static: float):
    assert optical_goodput(host, 16) == pytest.approx(optical, abs=5e-4)
    assert static_goodput(host, 16) == pytest.approx(static, abs=5e-4)


@given(st.floats(0, 1), st.sampled_from([1, 2, 3, 8, 16, 64]))
def test_goodput_is_a_share_and_switching_never_harms(host: float, cubes: int):
    optical, static = optical_goodput(host, cubes), static_goodput(host, cubes)
    assert -1e-9 <= static <= optical + 1e-9 <= 1 + 2e-9
    if cubes == 1:
        assert optical == pytest.approx(cube_availability(host))


def test_an_availability_is_a_share():
    with pytest.raises(ValueError, match="not between 0 and 1"):
        cube_availability(1.5)


@pytest.mark.parametrize("host", [0.999, 0.995, 0.99])
def test_sampled_hosts_converge_to_the_exact_goodput(host: float):
    failures = load_failures({"hosts": {"availability": host, "mttr": "1h"}})
    optical, static = sampled_goodput(failure_events(failures, [POD], seed=1), until=3600.0 * 1500)
    assert optical == pytest.approx(optical_goodput(host, 16), abs=0.01)
    assert static == pytest.approx(static_goodput(host, 16), abs=0.02)


def sampled_goodput(events: Iterator[Failure], until: float) -> tuple[float, float]:
    """Share of a pod that 16-cube slices can use over time: of any usable cubes, and of fixed blocks."""
    down, last, optical, static = [0] * 64, 0.0, 0.0, 0.0
    for event in events:
        span = min(event.at, until) - last
        optical += span * (down.count(0) // 16) / 4
        static += span * sum(not any(down[block : block + 16]) for block in range(0, 64, 16)) / 4
        last += span
        if event.at >= until:
            break
        down[event.host // 16] += 1 if event.kind == "host-down" else -1
    return optical / until, static / until


EVERYTHING = {
    "hosts": {"mtbf": "2d", "mttr": "3h"},
    "spot": {"every": "8h"},
    "stock_outs": {"every": "1d", "last": "2h"},
    "pools": {"h100-spot": {"spot": {"every": "2h", "notice": "2m"}}},
}


def test_events_are_possible_in_order_and_the_same_for_the_same_seed():
    events = list(islice(failure_events(load_failures(EVERYTHING), [POD, SPOT], seed=5), 4000))
    assert events == list(islice(failure_events(load_failures(EVERYTHING), [POD, SPOT], seed=5), 4000))
    assert events != list(islice(failure_events(load_failures(EVERYTHING), [POD, SPOT], seed=6), 4000))
    assert all(a.at <= b.at for a, b in pairwise(events))
    down: set[tuple[str, int | None, int | None]] = set()
    out: set[str] = set()
    for event in events:
        place = (event.pool, event.unit, event.host)
        if event.kind in ("host-down", "host-up"):
            assert (place in down) == (event.kind == "host-up")
            down ^= {place}
        elif event.kind == "preempted":
            assert event.pool == "h100-spot" and event.deadline == pytest.approx(event.at + 120)
        else:
            assert event.pool == "h100-spot" and (event.pool in out) == (event.kind == "in-stock")
            out ^= {event.pool}
    assert {event.kind for event in events} == {"host-down", "host-up", "preempted", "stock-out", "in-stock"}


def test_what_happens_to_one_pool_does_not_depend_on_the_others():
    failures = load_failures(EVERYTHING)
    alone = list(islice(failure_events(failures, [SPOT], seed=5), 50))
    among = (event for event in failure_events(failures, [POD, SPOT], seed=5) if event.pool == SPOT.name)
    assert list(islice(among, 50)) == alone


def test_drawn_events_stay_as_they_are():
    """The same figures on every platform and with every numpy."""
    events = failure_events(load_failures({"hosts": {"mtbf": "30d", "mttr": "1h"}}), [POD], seed=0)
    first, *_, last = islice(events, 1000)
    assert first == Failure(6152.425129, "host-down", "pod", 0, 468)
    assert last == Failure(1200648.804808, "host-down", "pod", 0, 440)


def test_nothing_is_declared_and_nothing_fails():
    failures = load_failures({})
    assert list(failure_events(failures, [POD, SPOT])) == []
    assert failures.costs.restart.steps == ((1, 7.0), (8, 30.0))
    assert failures.costs.checkpoints.every is None


def test_two_of_three_say_the_third():
    hosts = load_failures({"hosts": {"availability": 0.75, "mtbf": "3h"}}).hosts
    assert hosts is not None and (hosts.up, hosts.down) == (10_800.0, pytest.approx(3600.0))
    hosts = load_failures({"hosts": {"availability": 0.75, "mttr": "1h"}}).hosts
    assert hosts is not None and (hosts.up, hosts.down) == (pytest.approx(10_800.0), 3600.0)


def test_a_file(tmp_path: Path):
    path = tmp_path / "failures.yaml"
    path.write_text(
        "hosts: {mtbf: 30d, mttr: 1h}\nrestart: {64: 45s, 1: 5s, more: 2m}\ncheckpoints: {every: 30m, cost: 20s}\n"
    )
    costs = load_failures(path).costs
    assert (costs.restart.steps, costs.restart.more) == (((1, 5.0), (64, 45.0)), 120.0)
    assert (costs.checkpoints.every, costs.checkpoints.cost) == (1800.0, 20.0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hosts: {mtbf: 30d}\n", "FILE:1:8: error[hosts]: "),
        ("hosts: {mtbf: 0s, mttr: 1h}\n", "FILE:1:8: error[wrong-value]: "),
        ("hosts: {availability: 1.5, mttr: 1h}\n", "FILE:1:23: error[wrong-value]: `availability` is 1.5"),
        ("spott: {every: 1h}\n", "did you mean spot?"),
        ("spot: {every: 0s}\n", "FILE:1:15: error[wrong-value]: "),
        ("spot: {}\n", "FILE:1:7: error[missing-key]: `every` is missing"),
        ("restart: {1: 7s}\n", "FILE:1:10: error[restart]: "),
        ("restart: {few: 7s, more: 1m}\n", 'FILE:1:11: error[restart]: "few" is neither'),
        ("checkpoints: {every: soon}\n", "FILE:1:22: error[duration]: "),
        ("pools:\n  other: {}\n", 'FILE:2:3: error[unknown-pool]: the fleet has no pool "other"'),
        ("- 1\n", "FILE:1:1: error[not-a-mapping]"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, found: str):
    path = tmp_path / "failures.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_failures(path, frozenset({"pod"}))
    assert found in str(caught.value).replace(str(path), "FILE")
