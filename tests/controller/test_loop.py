from __future__ import annotations

import asyncio
from pathlib import Path

from controller_world import FakeClock, World, WorldBackend
from pytest import raises
from test_recovery import DEMAND, FLEET

from stellwerk.backends.protocol import Launch
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller, Failed
from stellwerk.controller.recovery import recover
from stellwerk.scheduling.events import Event, FleetChanged, Submitted, Woke
from stellwerk.scheduling.model import Limits


async def _controller(home: Path, backend: WorldBackend) -> Controller:
    controller = Controller(home, backend, Log.at(home / "log.db"), backend.world.clock, validate=True)
    await recover(controller)
    return controller


def test_an_event_is_in_the_log_before_a_command_that_follows_from_it(tmp_path: Path) -> None:
    class Reading(WorldBackend):
        seen: list[set[str]]

        def launch(self, launch: Launch) -> None:
            other = Log.at(tmp_path / "log.db")
            self.seen = [{type(event).__name__ for _, event in other.events()}]
            other.close()
            super().launch(launch)

    async def story() -> None:
        backend = Reading(World(FakeClock()), eager=True)
        controller = await _controller(tmp_path, backend)
        controller.take([FleetChanged(0.0, FLEET), Submitted(0.0, DEMAND)])
        assert backend.seen == [{"Woke", "FleetChanged", "Submitted", "UnitAppeared"}]
        await controller.close()

    asyncio.run(story())


def test_a_backend_that_cannot_start_an_attempt_has_failed_it(tmp_path: Path) -> None:
    class Refusing(WorldBackend):
        def launch(self, launch: Launch) -> None:
            raise OSError("no more processes")

    async def story() -> None:
        controller = await _controller(tmp_path, Refusing(World(FakeClock()), eager=True))
        controller.take([FleetChanged(0.0, FLEET), Submitted(0.0, DEMAND)])
        first = controller.state.workloads["k"].attempts[0]
        assert (first.outcome, first.cause) == ("failed", "infrastructure")
        assert "no more processes" in first.message
        await controller.close()

    asyncio.run(story())


def test_time_in_the_log_never_runs_backwards(tmp_path: Path) -> None:
    async def story() -> None:
        controller = await _controller(tmp_path, WorldBackend(World(FakeClock())))
        controller.take([Woke(2_000_000.0), Woke(5.0)])
        controller.report(Woke(7.0))
        assert [event.at for _, event in controller.log.events()][-3:] == [2_000_000.0] * 3
        await controller.close()

    asyncio.run(story())


def test_the_controller_wakes_the_scheduler_when_it_asked_to_be(tmp_path: Path) -> None:
    from dataclasses import replace

    async def story() -> None:
        backend = WorldBackend(World(FakeClock()))
        controller = await _controller(tmp_path, backend)
        now = backend.world.clock.now()
        demand = replace(DEMAND, limits=Limits(wait=60.0))
        controller.take([FleetChanged(now, FLEET), Submitted(now, demand)])
        backend.world.clock.advance(59.0)
        assert controller.state.workloads["k"].phase == "waiting"
        backend.world.clock.advance(2.0)
        assert controller.state.workloads["k"].cause == "wait-limit"
        await controller.close()

    asyncio.run(story())


def test_after_an_error_in_the_fold_nothing_more_is_taken_in(tmp_path: Path) -> None:
    class Unsound(Controller):
        def fold(self, event: Event) -> list[object]:  # type: ignore[override]
            if isinstance(event, Submitted):
                raise AssertionError("unsound")
            return super().fold(event)  # type: ignore[return-value]

    async def story() -> None:
        world = World(FakeClock())
        controller = Unsound(tmp_path, WorldBackend(world), Log.at(tmp_path / "log.db"), world.clock)
        await recover(controller)
        with raises(AssertionError, match="unsound"):
            controller.report(Submitted(0.0, DEMAND))
        assert controller.failed.is_set()
        with raises(Failed):
            controller.report(Woke(1.0))
        await controller.close()

    asyncio.run(story())


def test_news_wakes_everyone_who_waits(tmp_path: Path) -> None:
    async def story() -> None:
        controller = await _controller(tmp_path, WorldBackend(World(FakeClock())))
        waits = [asyncio.create_task(controller.news(60.0)) for _ in range(3)]
        await asyncio.sleep(0)
        controller.report(Woke(1.0))
        await asyncio.gather(*waits)
        await controller.close()

    asyncio.run(story())
