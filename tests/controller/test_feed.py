from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from controller_world import FakeClock, World, WorldBackend
from test_recovery import DEMAND, FLEET

from stellwerk.controller.feed import KEPT_ENDED, Feed
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import recover
from stellwerk.scheduling.events import FleetChanged, Submitted


def _report(home: Path, number: int, *records: dict[str, Any] | str) -> None:
    folder = home / "workloads" / "k" / f"attempt-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "reports.jsonl").open("a") as file:
        for record in records:
            file.write(record if isinstance(record, str) else json.dumps(record) + "\n")


async def _story(home: Path) -> tuple[Controller, WorldBackend]:
    """A workload that loses a host after a checkpoint, and runs again."""
    world = World(FakeClock())
    backend = WorldBackend(world)
    controller = Controller(home, backend, Log.at(home / "log.db"), world.clock, validate=True)
    await recover(controller)
    now = world.clock.now()
    controller.take([FleetChanged(now, FLEET), Submitted(now, DEMAND)])
    backend.flush()
    world.start(("k", 1))
    backend.flush()
    at = world.clock.now() + 1
    _report(home, 1, {"time": at, "step": 40, "checkpoint": None, "metrics": {"loss": 2.5}})
    world.clock.advance(2.0)
    controller.feed.refresh("k")
    world.save(("k", 1), 40)
    world.lose_host("trillium-0")
    backend.flush()
    world.start(("k", 2))
    backend.flush()
    world.clock.advance(1.0)
    world.end(("k", 2), "succeeded", None)
    backend.flush()
    return controller, backend


MESSAGES = [
    ("state", "waiting: needs 1 unit of trillium, 0 of 0 free"),
    ("state", "attempt 1 is starting with tpu-v6e:4x4 on trillium-0"),
    ("state", "attempt 1 is running"),
    ("progress", "step 40  loss 2.5"),
    ("checkpoint", "checkpoint at step 40"),
    ("note", "host 0 of trillium-0 lost; attempt 2 will resume from step 40"),
    ("state", "attempt 1 is being stopped: infrastructure"),
    ("state", "attempt 1 failed: infrastructure"),
]


def test_a_watcher_reads_what_happened_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        controller, _ = await _story(tmp_path)
        items = controller.feed.items("k", 0)
        told = [(item.kind, item.message) for item in items]
        assert told[1 : len(MESSAGES)] == MESSAGES[1:]
        assert told[0][1].startswith("waiting: needs 1 unit")
        assert told[-2:] == [("state", "attempt 2 succeeded"), ("state", "succeeded")]
        assert [item.seq for item in items] == sorted({item.seq for item in items})
        assert controller.feed.items("k", items[3].seq) == items[4:]
        await controller.close()

    asyncio.run(story())


def test_after_a_restart_a_watcher_sees_nothing_twice_and_misses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        controller, backend = await _story(tmp_path)
        before = controller.feed.items("k", 0)
        await controller.close()
        again = Controller(tmp_path, backend, Log.at(tmp_path / "log.db"), backend.world.clock)
        await recover(again)
        again.feed.refresh("k")
        after = again.feed.items("k", 0)
        assert sorted(item.message for item in after) == sorted(item.message for item in before)
        assert again.feed.items("k", before[-1].seq) == []
        await again.close()

    asyncio.run(story())


def test_what_is_no_report_is_passed_over_and_half_lines_wait(tmp_path: Path) -> None:
    async def story() -> None:
        controller, _ = await _story(tmp_path)
        newest = controller.feed.items("k", 0)[-1].seq
        good = {"time": 1_000_100.0, "step": None, "checkpoint": None, "metrics": {"loss": float("nan"), "acc": None}}
        bad = [
            "nonsense\n",
            "[1]\n",
            '{"time": "x", "metrics": {}}\n',
            '{"time": 1e300, "metrics": {}}\n',
            '{"metrics": 3}\n',
        ]
        _report(tmp_path, 2, *bad, good, '{"time": 1000101.0, ')
        controller.feed.refresh("k")
        assert [item.message for item in controller.feed.items("k", newest)] == ["loss -  acc -"]
        _report(tmp_path, 2, '"step": 7, "metrics": {}}\n')
        controller.feed.refresh("k")
        assert [item.message for item in controller.feed.items("k", newest)][1:] == ["step 7"]
        assert json.dumps([item.to_json() for item in controller.feed.items("k", 0)], allow_nan=False)
        await controller.close()

    asyncio.run(story())


def test_only_the_newest_ended_workloads_keep_their_items(tmp_path: Path) -> None:
    from dataclasses import replace

    from stellwerk.scheduling.scheduler import Scheduler

    scheduler, feed = Scheduler(), Feed(tmp_path)
    for number in range(KEPT_ENDED + 5):
        event = Submitted(float(number), replace(DEMAND, key=f"k{number}"))
        feed.observe(event, scheduler.state, scheduler.handle(event), scheduler.over)
    assert feed.items("k0", 0) == []
    assert [item.message for item in feed.items(f"k{KEPT_ENDED + 4}", 0)][-1].startswith("failed: impossible")
    feed.refresh("k0")
