"""What a controller expects: learnt from the events as they are folded, told to people."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controller_world import FakeClock, SmallMachine, World, WorldBackend, job

from stellwerk import spec
from stellwerk.controller import views
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.outlooks import EVENTS, Outlooks
from stellwerk.controller.recovery import recover
from stellwerk.controller.submission import Submissions
from stellwerk.controller.times import rfc3339
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.history import ENOUGH
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, Pool
from stellwerk.scheduling.scheduler import Scheduler

FLEET = {"pools": [{"name": "trillium", "accelerator": "tpu-v6e", "topology": "4x4", "units": 1, "price": 2.0}]}


class Site:
    """A controller with one slice."""

    def __init__(self, home: Path, world: World | None = None) -> None:
        self.backend = WorldBackend(world or World(FakeClock()), eager=True)
        self.controller = Controller(home, self.backend, Log.at(home / "log.db"), self.backend.world.clock)
        self.submissions = Submissions(self.controller, SmallMachine(), user="ann")
        self.count = 0

    async def open(self) -> None:
        await recover(self.controller)
        self.submissions.change_fleet(spec.load_fleet(FLEET))

    async def submit(self, name: str, **keys: object) -> str:
        self.count += 1
        declared = await self.submissions.submit(job(name, **keys), None, f"{name}{self.count}")
        return declared.key

    async def take_turns(self, seconds: float, count: int = ENOUGH) -> None:
        """Workloads that say an hour and run so long, one after another."""
        for _ in range(count):
            key = await self.submit("turn", runtime="1h")
            self.run(key)
            self.pass_time(seconds)
            self.end(key)

    def run(self, key: str) -> None:
        self.backend.world.start((key, 1))
        self.backend.flush()

    def end(self, key: str, outcome: str = "succeeded", cause: str | None = None) -> None:
        self.backend.world.end((key, 1), outcome, cause)
        self.backend.flush()

    def pass_time(self, seconds: float) -> None:
        self.backend.world.clock.advance(seconds)

    @property
    def now(self) -> float:
        return self.backend.world.clock.now()


def test_a_controller_learns_how_long_things_take_and_knows_it_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path)
        await site.open()
        await site.take_turns(900.0)
        first = await site.submit("turn", runtime="1h")
        site.run(first)
        second = await site.submit("turn", runtime="1h")
        for _ in range(2):
            demand = site.controller.state.workloads[second].demand
            assert demand.user == "ann"
            found = await site.controller.outlooks.of_all(site.controller.state, site.now)
            assert found[first].finish_p90 == site.now + 900
            assert found[second].start_p50 == found[second].start_p90 == site.now + 900
            assert found[second].finish_p50 == site.now + 1800
            assert site.controller.outlooks.history.knows(demand, 0)
            told = Outlooks()
            told.load(site.controller.outlooks.dump())
            assert told.dump() == site.controller.outlooks.dump()
            await site.controller.close()
            site = Site(tmp_path, site.backend.world)
            await recover(site.controller)
        await site.controller.close()

    asyncio.run(story())


def test_what_failed_teaches_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path)
        await site.open()
        keys = [await site.submit(f"turn{number}", runtime="1h") for number in range(ENOUGH)]
        for key in keys:
            site.run(key)
            site.end(key, "failed", "user-error")
        demand = site.controller.state.workloads[keys[0]].demand
        assert not site.controller.outlooks.history.knows(demand, 0)
        await site.controller.close()

    asyncio.run(story())


def test_plan_and_listing_say_when_from_what_was_learnt(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path)
        await site.open()
        await site.take_turns(900.0)
        first = await site.submit("turn", runtime="1h")
        site.run(first)
        site.pass_time(300.0)
        before = repr(site.controller.state)
        (option,) = (await site.submissions.plan(job("turn", runtime="1h"))).options
        assert repr(site.controller.state) == before
        assert option.verdict == "later"
        assert (option.start.p50, option.finish.p90) == (site.now + 600, site.now + 1500)
        assert (option.cost.p50, option.cost.p90) == (8.0, 8.0)
        await site.submit("turn", runtime="1h")
        state, outlooks = site.controller.state, await site.controller.outlooks.of_all(site.controller.state, site.now)
        running, waiting = views.listing(state, ended=False, outlooks=outlooks)
        assert running["finish"]["p50"] == rfc3339(site.now + 600) == waiting["start"]["p50"]
        assert views.listing(state, ended=False)[1]["start"] == {"p50": None, "p90": None}
        await site.controller.close()

    asyncio.run(story())


def test_an_answer_holds_until_something_happens(tmp_path: Path) -> None:
    async def story() -> None:
        site = Site(tmp_path)
        await site.open()
        await site.submit("a", runtime="1h")
        outlooks, state = site.controller.outlooks, site.controller.state
        first, again = await asyncio.gather(*(outlooks.of_all(state, site.now) for _ in range(2)))
        assert first is again
        await site.submit("b", runtime="1h")
        assert await outlooks.of_all(state, site.now) is not first
        await site.controller.close()

    asyncio.run(story())


def test_of_thousands_the_first_have_a_time_and_the_others_none() -> None:
    pool = Pool("h100", "h100", None, None, 8, 1, 4, 4)
    option = Option("h100:8", (Part("main", "h100", None, 8),))
    scheduler = Scheduler(explained=0)
    scheduler.handle(ev.FleetChanged(0.0, Fleet((pool,))))
    for index in range(4):
        scheduler.handle(ev.UnitAppeared(0.0, "h100", f"h100-{index}", 1))
    for index in range(3000):
        demand = Demand(f"w{index}", f"w{index}", "job", (option,), runtime=600.0)
        scheduler.handle(ev.Submitted(0.0, demand))
    found = asyncio.run(Outlooks().of_all(scheduler.state, 0.0))
    assert found["w4"].start_p50 == found["w4"].start_p90 == 600.0
    known = [key for key, outlook in found.items() if outlook.start_p50 is not None]
    assert 100 < len(known) < EVENTS
    assert found["w2999"].start_p50 is None
