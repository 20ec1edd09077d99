from __future__ import annotations

import asyncio
from pathlib import Path

from controller_world import FakeClock, World, WorldBackend
from pytest import fixture

from stellwerk.backends.protocol import LiveAttempt
from stellwerk.controller.log import Declared, Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import reconcile, recover
from stellwerk.scheduling.commands import ProvisionUnit, ResizeAttempt, StartAttempt, StopAttempt
from stellwerk.scheduling.events import AttemptEnded, FleetChanged, StopRequested, Submitted
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, Pool

PART = Part("main", "tpu-v6e", "4x4", 16)
DEMAND = Demand("k", "name", "job", (Option("tpu-v6e:4x4", (PART,)),))
FLEET = Fleet((Pool("trillium", "tpu-v6e", "4x4", None, 16, 4, maximum=1),))


@fixture
def world() -> World:
    return World(FakeClock())


async def _running(home: Path, world: World) -> tuple[Controller, WorldBackend]:
    backend = WorldBackend(world)
    controller = Controller(home, backend, Log.at(home / "log.db"), world.clock, validate=True)
    await recover(controller)
    if not controller.state.pools:
        now = world.clock.now()
        declared = Declared("k", "name", "s", now, {})
        controller.take([FleetChanged(now, FLEET), Submitted(now, DEMAND)], declared=declared)
    backend.flush()
    return controller, backend


def test_what_runs_is_adopted_and_what_waits_keeps_its_turn(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        first, backend = await _running(tmp_path, world)
        world.start(("k", 1))
        backend.flush()
        first.log.close()
        second, backend = await _running(tmp_path, world)
        assert second.state.workloads["k"].phase == "running"
        assert world.launches == {("k", 1): 1}
        world.end(("k", 1), "succeeded", None)
        backend.flush()
        assert second.state.workloads["k"].outcome == "succeeded"
        await second.close()

    asyncio.run(story())


def test_what_happened_while_nobody_listened_is_taken_in(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        first, _ = await _running(tmp_path, world)
        first.log.close()
        world.start(("k", 1))
        world.end(("k", 1), "failed", "user-error")
        second, _ = await _running(tmp_path, world)
        assert second.state.workloads["k"].cause == "user-error"
        assert len(second.state.workloads["k"].attempts) == 1
        await second.close()

    asyncio.run(story())


async def _state(home: Path, world: World, *, started: bool, stopped: bool = False) -> Controller:
    controller, backend = await _running(home, world)
    if started:
        world.start(("k", 1))
        backend.flush()
    if stopped:
        controller.fold(StopRequested(world.clock.now(), "k", 5.0))
    return controller


def test_a_start_that_was_never_carried_out_is_repeated(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        controller = await _state(tmp_path, world, started=False)
        commands, events = reconcile(controller.state, [], 1.0)
        attempt = controller.state.workloads["k"].attempts[0]
        assert commands == [StartAttempt("k", 1, 0, attempt.grants)]
        assert events == []
        await controller.close()

    asyncio.run(story())


def test_a_running_attempt_that_is_gone_counts_as_infrastructure(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        controller = await _state(tmp_path, world, started=True)
        commands, events = reconcile(controller.state, [], 1.0)
        assert commands == []
        assert [(e.outcome, e.cause) for e in events if isinstance(e, AttemptEnded)] == [("failed", "infrastructure")]
        await controller.close()

    asyncio.run(story())


def test_a_stop_is_repeated_and_one_that_was_done_is_reported(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        controller = await _state(tmp_path, world, started=True, stopped=True)
        commands, events = reconcile(controller.state, [LiveAttempt("k", 1)], 1.0)
        assert [c.cause for c in commands if isinstance(c, StopAttempt)] == ["stopped-by-user"]
        assert events == []
        commands, events = reconcile(controller.state, [], 1.0)
        assert commands == []
        assert [(e.outcome, e.cause) for e in events if isinstance(e, AttemptEnded)] == [("stopped", "stopped-by-user")]
        await controller.close()

    asyncio.run(story())


def test_strays_are_stopped(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        controller = await _state(tmp_path, world, started=True)
        commands, _ = reconcile(controller.state, [LiveAttempt("k", 1), LiveAttempt("other", 3)], 1.0)
        assert commands == [StopAttempt("other", 3, "infrastructure", 0.0)]
        await controller.close()

    asyncio.run(story())


def test_units_under_way_are_ordered_again(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        backend = WorldBackend(world)
        controller = Controller(tmp_path, backend, Log.at(tmp_path / "log.db"), world.clock)
        await recover(controller)
        controller.take([FleetChanged(0.0, FLEET), Submitted(0.0, DEMAND)])
        commands, _ = reconcile(controller.state, [], 1.0)
        assert commands == [ProvisionUnit("trillium", "trillium-0", 1)]
        await controller.close()

    asyncio.run(story())


def test_a_resize_without_an_answer_is_ordered_again(tmp_path: Path, world: World) -> None:
    async def story() -> None:
        controller, backend = await _running(tmp_path, world)
        world.start(("k", 1))
        backend.flush()
        attempt = controller.state.workloads["k"].attempts[0]
        attempt.resizes = 3
        commands, events = reconcile(controller.state, [LiveAttempt("k", 1)], 1.0)
        assert (commands, events) == ([ResizeAttempt("k", 1, 3, attempt.grants)], [])
        attempt.settled = 3
        assert reconcile(controller.state, [LiveAttempt("k", 1)], 1.0) == ([], [])
        await controller.close()

    asyncio.run(story())
