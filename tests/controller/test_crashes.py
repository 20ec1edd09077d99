"""After a crash at any point, in any order of what happens: nothing is lost, doubled or left behind."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller_world import Crash, FakeClock, FragileController, Fuse, SmallMachine, World, WorldBackend, job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import mark

from stellwerk.controller.log import Log
from stellwerk.controller.recovery import recover
from stellwerk.controller.submission import Submissions
from stellwerk.scheduling.codec import canonical
from stellwerk.scheduling.state import State

_ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["tpu-v6e:4x4", "tpu-v6e:4x4*2", "tpu-v6e:4x4*1..2"])),
    st.tuples(st.just("stop"), st.integers(0, 5)),
    st.tuples(st.just("start"), st.integers(0, 3)),
    st.tuples(st.just("save"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.sampled_from(["succeeded", "user-error", "infrastructure"])),
    st.tuples(st.just("lose"), st.integers(0, 1)),
    st.tuples(st.just("advance"), st.sampled_from([1.0, 60.0, 700.0])),
    st.tuples(st.just("fuse"), st.integers(0, 12)),
    st.tuples(st.just("kill"), st.none()),
)


class _Story:
    """One controller after another over one world and one log."""

    def __init__(self, home: Path, eager: bool) -> None:
        self.home, self.eager = home, eager
        self.clock = FakeClock()
        self.world = World(self.clock)
        self.fuse = Fuse()
        self.runner = asyncio.Runner()
        self.controller: FragileController | None = None
        self.keys: dict[str, str] = {}

    @property
    def state(self) -> State:
        return self.up().state

    def up(self) -> FragileController:
        """The running controller; a crash during recovery is followed by another recovery."""
        while self.controller is None:
            log = Log.at(self.home / "log.db")
            self.backend = WorldBackend(self.world, eager=self.eager)
            controller = FragileController(self.fuse, self.home, self.backend, log, self.clock, validate=True)
            try:
                self.runner.run(_to_task(recover(controller)))
                self.controller = controller
            except Crash:
                self._gone(log)
        return self.controller

    def down(self) -> None:
        if self.controller is not None:
            log, self.controller = self.controller.log, None
            self._gone(log)

    def survive(self, action: Callable[[], object]) -> bool:
        """Whether the controller came through."""
        try:
            action()
            return True
        except Crash:
            self.down()
            return False

    def submit(self, option: str) -> None:
        """Hand a workload in as a client does: the same submission again, until there is an answer."""
        submission = f"submission-{len(self.keys)}"
        done = False
        while not done:
            submissions = Submissions(self.up(), SmallMachine())

            def once(submissions: Submissions = submissions) -> None:
                workload = job("job", option, retries=1)
                declared = self.runner.run(_to_task(submissions.submit(workload, None, submission)))
                self.keys[submission] = declared.key

            done = self.survive(once)

    def act(self, what: str, how: Any) -> None:
        world, live = self.world, sorted(self.world.live)
        match what:
            case "submit":
                self.submit(how)
            case "stop" if how < len(self.keys):
                key = list(self.keys.values())[how]
                self.survive(lambda: self.up().request_stop(key, 5.0))
            case "start" if how < len(live):
                world.start(live[how])
            case "save" if how < len(live):
                world.save(live[how], how)
            case "end" if live:
                world.end(live[0], "succeeded" if how == "succeeded" else "failed", None if how == "succeeded" else how)
            case "lose":
                world.lose_host(f"tpu-v6e-4x4-{how}")
            case "advance":
                self.survive(lambda: self.clock.advance(how))
            case "fuse":
                self.fuse.left = how
            case "kill":
                self.down()
            case _:
                pass
        if self.controller is not None:
            self.survive(self.backend.flush)

    def finish(self) -> None:
        """Let everything run to its end, undisturbed."""
        self.fuse.left = None
        for _ in range(100):
            self.up()
            self.backend.flush()
            assert all(workload.phase != "stopping" for workload in self.state.workloads.values())
            for key in sorted(self.world.live):
                self.world.start(key)
                self.world.end(key, "succeeded", None)
            self.backend.flush()
            self.clock.advance(61.0)
            self.backend.flush()
            if not self.up().living:
                return

    def _gone(self, log: Log) -> None:
        log.close()
        self.clock.forget()


async def _to_task(awaited: Any) -> Any:
    """Crash is raised out of the task at once, as it would end the process."""
    return await awaited


def _check(story: _Story) -> None:
    state, world = story.state, story.world
    assert {w.key for w in state.workloads.values()} == set(story.keys.values())
    assert [w.phase for w in state.workloads.values()] == ["ended"] * len(state.workloads)
    assert world.live == {}
    assert all(count == 1 for count in world.launches.values())
    for workload in state.workloads.values():
        assert world.succeeded[workload.key] == (workload.outcome == "succeeded") or workload.cause == "stopped-by-user"
        assert sum(world.launches[(workload.key, a.number)] for a in workload.attempts) <= len(workload.attempts)
    assert all(not unit.held for unit in state.units.values())
    assert {name: unit.incarnation for name, unit in state.units.items()} == world.units


def _check_replay(story: _Story) -> None:
    """A new controller folds the log into the same state."""
    before = canonical(story.state)
    story.down()
    controller = FragileController(story.fuse, story.home, story.backend, Log.at(story.home / "log.db"), story.clock)
    for _seq, event in controller.log.events():
        controller.fold(event)
    assert canonical(controller.state) == before
    controller.log.close()


@mark.parametrize("eager", [False, True])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=st.lists(_ACTIONS, max_size=40))
def test_crashes_lose_and_double_nothing(eager: bool, actions: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = _Story(Path(folder), eager)
        try:
            for what, how in actions:
                story.act(what, how)
            story.finish()
            _check(story)
            _check_replay(story)
        finally:
            story.down()
            story.runner.close()


@mark.parametrize("point", range(48))
def test_a_crash_at_each_point_of_one_story(point: int, tmp_path: Path) -> None:
    story = _Story(tmp_path, eager=point % 2 == 0)
    script = [("submit", "tpu-v6e:4x4*2"), ("submit", "tpu-v6e:4x4"), ("start", 0), ("save", 0), ("lose", 1)]
    try:
        story.act("fuse", point)
        for what, how in [*script, ("start", 0), ("stop", 1), ("start", 0), ("end", "succeeded")]:
            story.act(what, how)
        story.finish()
        _check(story)
        _check_replay(story)
    finally:
        story.down()
        story.runner.close()
