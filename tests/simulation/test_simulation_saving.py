"""The best time between checkpoints: by hand, and that replays with it lose least."""

from __future__ import annotations

from typing import Any

import pytest

from stellwerk.scheduling.declared import fleet_of
from stellwerk.simulation.failures import load_failures
from stellwerk.simulation.outcome import Outcome
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.saving import cut_off_rate
from stellwerk.simulation.traces.model import Job, make_trace
from stellwerk.spec import load_fleet

HOUR = 3600.0


def outcome(failures: dict[str, Any], *rows: tuple[float, int], seed: int = 0, **pool: Any) -> Outcome:
    fleet = load_fleet(
        {
            "accelerators": {"p100": {}},
            "pools": [{"name": "nodes", "accelerator": "p100", "chips": 4, "units": 8, **pool}],
        }
    )
    jobs = [Job(f"j{i}", "ann", "default", 0.0, duration, chips) for i, (duration, chips) in enumerate(rows)]
    return replay(fleet, make_trace("t", jobs), Settings(failures=load_failures(failures), seed=seed), limited=False)


def best(failures: dict[str, Any], *rows: tuple[float, int], **pool: Any) -> Any:
    found = outcome(failures, *rows, **pool).checkpoints
    assert found is not None and found == outcome(failures, *rows, **pool).summary()["checkpoints"]
    return found["best_s"]


def hosts(mtbf: str = "20000h", **saving: str) -> dict[str, Any]:
    return {"hosts": {"mtbf": mtbf, "mttr": "1s"}, "checkpoints": {"every": "1h", "cost": "2m", **saving}}


def test_by_hand():
    one = (2 * 120 * 20_000 * HOUR) ** 0.5
    assert best(hosts(), (60, 4)) == pytest.approx(one)
    assert best(hosts(), (60, 16)) == pytest.approx(one / 2)  # a gang is cut off by every host of four units
    assert best(hosts(), (60, 1)) == pytest.approx(one)  # a cell is cut off with its unit
    # 4 chips for 300 s and 16 for 60 s: 1200 chip-seconds at one host's rate, 960 at that of four.
    assert best(hosts(), (300, 4), (60, 16)) == pytest.approx(one * (2160 / (1200 + 4 * 960)) ** 0.5)


def test_nothing_is_best_where_nothing_is_lost():
    assert best(hosts(cost="0s"), (60, 4)) is None
    assert best({"checkpoints": {"cost": "2m"}}, (60, 4)) is None
    assert best({"spot": {"every": "1h"}, "checkpoints": {"cost": "2m"}}, (60, 4)) is None  # the pool is not spot
    assert outcome(hosts(), (60, 4)).summary()["checkpoints"]["every_s"] == 3600


@pytest.mark.parametrize(("notice", "lost"), [("0s", True), ("30s", True), ("2m", False), ("5m", False)])
def test_a_notice_counts_when_it_is_too_short_to_save_in(notice: str, lost: bool):
    pool = {"name": "spot", "accelerator": "h100", "machine": "a3-highgpu-8g", "market": "spot", "units": 2}
    failures = load_failures({"spot": {"every": "100s", "notice": notice}, "checkpoints": {"cost": "2m"}})
    (declared,) = fleet_of(load_fleet({"pools": [pool]})).pools
    assert cut_off_rate(declared, failures) == (0.01 if lost else 0)


@pytest.mark.parametrize("seed", [1, 2])
def test_replays_lose_least_with_it(seed: int):
    """Eight workloads of 500 hours that are cut off some two hundred times."""

    def busy(every: float) -> float:
        failures = hosts("20h", every=f"{every:.0f}s")
        return sum(job.busy for job in outcome(failures, *[(500 * HOUR, 4)] * 8, seed=seed).jobs)

    found = best(hosts("20h"), (500 * HOUR, 4))
    at_best = busy(found)
    assert at_best < busy(found * 3) and at_best < busy(found / 3)
    lost = 1 - 8 * 500 * HOUR / at_best
    assert lost == pytest.approx((2 * 120 / (20 * HOUR)) ** 0.5, rel=0.25)
