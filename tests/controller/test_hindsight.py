"""What came of forecasts corrects the bounds of later ones, also after a restart."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
from controller_world import FakeClock, SmallMachine, World, WorldBackend, job

from stellwerk import spec
from stellwerk.controller.hindsight import MOST, Hindsight, bounded
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import recover
from stellwerk.controller.submission import Submissions
from stellwerk.scheduling.calibration import LEAST, SPELL
from stellwerk.scheduling.forecast import Outlook
from stellwerk.scheduling.model import Demand
from stellwerk.scheduling.state import State, WorkloadState, attempt_of, workload_of

HOUR = 3600.0


def waiting(state: State, key: str, at: float) -> WorkloadState:
    state.workloads[key] = workload = workload_of(Demand(key, key, "job", ()), at, len(state.workloads) + 1, at)
    return workload


def begin(workload: WorkloadState, at: float) -> None:
    workload.phase = "running"
    workload.attempts.append(attempt_of(1, 0, (), at))


def in_an_hour(now: float) -> Outlook:
    return Outlook(now + HOUR, now + HOUR, now + 2 * HOUR, now + 3 * HOUR)


def late(found: Hindsight, count: int, hours: float) -> None:
    """So many workloads, each told that it starts in an hour, start after so many."""
    state = State()
    for number in range(count):
        now = number * 2 * SPELL
        workload = waiting(state, f"w{number}", now)
        found.say({workload.key: in_an_hour(now)}, state, now)
        begin(workload, now + hours * HOUR)
        found.judge(state)


def test_bounds_are_those_that_earlier_forecasts_have_held(tmp_path: Path) -> None:
    file = tmp_path / "forecasts.jsonl"
    found = Hindsight(file)
    late(found, LEAST - 1, 3.0)
    assert bounded(found.calibration, in_an_hour(0.0), 0.0) == in_an_hour(0.0)
    found = Hindsight(file)
    late(found, 20, 3.0)
    outlook = bounded(found.calibration, in_an_hour(0.0), 0.0)
    assert outlook.start_p50 == HOUR and outlook.finish_p50 == 2 * HOUR
    assert outlook.start_p90 is not None and 2.5 * HOUR < outlook.start_p90 < 10 * HOUR
    assert outlook.finish_p90 == outlook.start_p90 + 2 * HOUR
    again = Hindsight(file)
    assert bounded(again.calibration, in_an_hour(0.0), 0.0) == outlook
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_starts_at_once_or_is_unknown_has_no_other_bound() -> None:
    found = Hindsight()
    late(found, 30, 3.0)
    for outlook in (Outlook(None, None, None, None), Outlook(5.0, 5.0, 9.0, 9.0), Outlook(90.0, None, None, None)):
        assert bounded(found.calibration, outlook, 5.0) == outlook


def test_only_the_first_answer_to_who_waits_is_judged(tmp_path: Path) -> None:
    file, state = tmp_path / "forecasts.jsonl", State()
    found = Hindsight(file)
    one, two, three = (waiting(state, key, 0.0) for key in ("one", "two", "three"))
    found.say({key: in_an_hour(0.0) for key in state.workloads}, state, 0.0)
    found.say({key: in_an_hour(900.0) for key in state.workloads}, state, 900.0)
    begin(one, 1800.0)
    two.phase = "ended"
    found.judge(state)
    found.judge(state)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [[0.0, HOUR, HOUR, 1800.0]]
    del state.workloads["three"]
    begin(three, 3600.0)
    found.judge(state)
    assert len(file.read_text().splitlines()) == 1


def test_a_damaged_file_is_read_as_far_as_it_can_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "forecasts.jsonl"
    late(Hindsight(file), MOST + 20, 2.0)
    with file.open("a") as writer:
        writer.write('{"a": 1}\n[1, 2\nnothing\n[1, 2, 3]\n[1, 2, 3, NaN]\n[1, 2, 3, 1e400]\n')
    found = Hindsight(file)
    assert found.calibration.ready and len(caplog.messages) == 6
    assert len(file.read_text().splitlines()) == MOST
    file.write_bytes(b"\xff\xfe")
    assert not Hindsight(file).calibration.ready
    file.unlink()
    file.mkdir()
    late(Hindsight(file), 1, 2.0)
    assert "could not be written" in caplog.messages[-1]


def test_a_controller_learns_from_what_it_told(tmp_path: Path) -> None:
    async def story() -> None:
        world = World(FakeClock())
        backend = WorldBackend(world, eager=True)
        controller = Controller(tmp_path, backend, Log.at(tmp_path / "log.db"), world.clock)
        submissions = Submissions(controller, SmallMachine(), user="ann")
        await recover(controller)
        submissions.change_fleet(
            spec.load_fleet({"pools": [{"name": "p", "accelerator": "tpu-v6e", "topology": "4x4", "units": 1}]})
        )
        running = (await submissions.submit(job("turn", runtime="1h"), None, "0")).key
        for number in range(1, LEAST + 8):
            world.start((running, 1))
            backend.flush()
            following = (await submissions.submit(job("turn", runtime="1h"), None, f"{number}")).key
            told = await controller.outlooks.of_all(controller.state, world.clock.now())
            outlook, said = told[following], world.clock.now()
            world.clock.advance(3 * HOUR)
            world.end((running, 1), "failed", "user-error")  # teaches nothing about durations
            backend.flush()
            running = following
        assert outlook.start_p50 == said + HOUR
        assert outlook.start_p90 is not None and outlook.start_p90 >= said + 2.5 * HOUR
        (option,) = (await submissions.plan(job("turn", runtime="1h"))).options
        assert option.start.p50 is not None and option.start.p90 is not None
        assert option.start.p90 - world.clock.now() >= 2.5 * HOUR
        await controller.close()

    asyncio.run(story())
