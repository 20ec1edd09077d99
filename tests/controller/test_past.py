"""What is over is answered alike from memory and from the tables, and after every kind of start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller_world import FakeClock, World, WorldBackend
from pytest import approx, mark
from test_recovery import DEMAND, FLEET

from stellwerk.controller import views
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import recover
from stellwerk.observe.ledger import By
from stellwerk.scheduling.events import FleetChanged, Submitted

BY: tuple[By, ...] = ("workload", "queue", "pool", "attempt", "unit")


async def _open(home: Path, world: World) -> tuple[Controller, WorldBackend]:
    backend = WorldBackend(world)
    controller = Controller(home, backend, Log.at(home / "log.db"), world.clock, validate=True)
    await recover(controller)
    return controller, backend


async def _lived(home: Path, world: World, between: Callable[[Controller], object]) -> Controller:
    """Three workloads one after the other, the second with a failed attempt; one more waits."""
    controller, backend = await _open(home, world)
    controller.take([FleetChanged(world.clock.now(), FLEET)])
    for number in range(3):
        demand = replace(DEMAND, key=f"k{number}", name="same", retries=1, queue=f"q{number % 2}")
        controller.take([Submitted(world.clock.now(), demand)])
        backend.flush()
        for attempt in (1, 2) if number == 1 else (1,):
            world.start((demand.key, attempt))
            backend.flush()
            world.clock.advance(3600.0)
            last = (number, attempt) != (1, 1)
            world.end((demand.key, attempt), "succeeded" if last else "failed", None if last else "user-error")
            backend.flush()
        between(controller)
    controller.take([Submitted(world.clock.now(), replace(DEMAND, key="k9", name="waits"))])
    return controller


def _answers(controller: Controller, now: float) -> dict[str, Any]:
    state, ledger, past = controller.state, controller.ledger, controller.log.past
    middle = now - 5400.0
    return {
        "history": [views.listed(state, each) for each in controller.history()],
        "named": [each.key for each in controller.history("same", 2)],
        "show": [views.show(state, ledger, each, now) for each in controller.history()],
        "found": [each.key if (each := past.find(name)) else None for name in ("k0", "nobody")],
        "cost": {by: views.cost(state, ledger, by, now, 0.0, past.names()) for by in BY},
        "late": {by: views.cost(state, ledger, by, now, middle, past.names()) for by in BY},
    }


def _same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["history"] == other["history"]
    assert one["named"] == other["named"] == ["k2", "k1"]
    assert one["show"] == other["show"]
    for what in ("cost", "late"):
        for by in BY:
            for row, again in zip(one[what][by], other[what][by], strict=True):
                assert row == approx(again)


@mark.parametrize("snapshots", [False, True])
def test_history_show_and_cost_stay_answerable(tmp_path: Path, snapshots: bool) -> None:
    async def story() -> None:
        world = World(FakeClock())
        controller = await _lived(tmp_path, world, lambda each: each.snapshot() if snapshots else None)
        now = world.clock.now()
        before = _answers(controller, now)
        assert before["cost"]["queue"][0]["busy_s"] == approx(2 * 3600.0)
        assert before["late"]["pool"][0]["busy_s"] == approx(5400.0)
        assert len(controller.state.workloads) == (1 if snapshots else 4)
        assert [controller.living, len(before["show"][1]["attempts"])] == [1, 2]
        await controller.close()
        again, _ = await _open(tmp_path, world)
        assert list(again.state.workloads) == ["k9"]
        _same(before, _answers(again, now))
        known = again.workload("k1"), again.workload("k9")
        assert [each.key for each in known if each is not None] == ["k1", "k9"]
        await again.close()
        for file in (tmp_path / "snapshots").iterdir():
            file.unlink()
        replayed, _ = await _open(tmp_path, world)
        _same(before, _answers(replayed, now))
        assert replayed.living == 1
        await replayed.close()

    asyncio.run(story())


def test_the_same_attempt_is_billed_across_the_tables_and_memory(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(FakeClock())
        controller, backend = await _open(tmp_path, world)
        controller.take([FleetChanged(world.clock.now(), FLEET), Submitted(world.clock.now(), DEMAND)])
        backend.flush()
        world.clock.advance(60.0)
        world.start(("k", 1))
        backend.flush()
        controller.snapshot()
        world.clock.advance(600.0)
        bill = controller.ledger.attempt("k", 1, world.clock.now())
        assert (bill.seconds["starting"], bill.seconds["busy"]) == (60.0, 600.0)
        await controller.close()
        again, _ = await _open(tmp_path, world)
        assert again.ledger.attempt("k", 1, world.clock.now()) == bill
        await again.close()

    asyncio.run(story())
