"""A controller is back where it was, from a snapshot or from the first event, whatever has happened to the files."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from controller_world import Crash, FakeClock, Fuse, World, WorldBackend
from pytest import LogCaptureFixture, MonkeyPatch, mark, raises
from test_recovery import DEMAND, FLEET

from stellwerk.controller import snapshot
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import recover, replay, restore
from stellwerk.controller.snapshot import Snapshots
from stellwerk.scheduling.apply import FOLD
from stellwerk.scheduling.events import FleetChanged, SnapshotTaken, Submitted, Woke


async def _open(home: Path, world: World) -> tuple[Controller, WorldBackend]:
    backend = WorldBackend(world)
    controller = Controller(home, backend, Log.at(home / "log.db"), world.clock, validate=True)
    await recover(controller)
    return controller, backend


def _live(controller: Controller, backend: WorldBackend, number: int) -> None:
    """One workload comes, runs, saves and ends; another comes and waits."""
    world = backend.world
    key = f"k{number}"
    if not controller.state.pools:
        controller.take([FleetChanged(world.clock.now(), FLEET)])
    controller.take([Submitted(world.clock.now(), replace(DEMAND, key=key, priority=number))])
    backend.flush()
    world.start((key, 1))
    world.save((key, 1), 7)
    backend.flush()
    world.clock.advance(100.0)
    controller.take([Submitted(world.clock.now(), replace(DEMAND, key=f"waits{number}", priority=-1, name="w"))])
    world.end((key, 1), "succeeded", None)
    backend.flush()
    for each in sorted(world.live):
        world.end(each, "succeeded", None)
    backend.flush()


async def _lived(home: Path, snapshots: int) -> World:
    """A controller that was killed some time after so many snapshots."""
    world = World(FakeClock())
    controller, backend = await _open(home, world)
    for number in range(snapshots):
        _live(controller, backend, number)
        controller.snapshot()
        controller.snapshots.wait()
    _live(controller, backend, snapshots)
    controller.log.close()
    return world


def _found(home: Path, fold: Callable[[Controller], None] = restore) -> tuple[dict[str, str], list[str]]:
    """What a new controller knows, and what ended."""
    log = Log.at(home / "log.db")
    controller = Controller(home, WorldBackend(World(FakeClock())), log)
    fold(controller)
    found = controller.dump(), [each.key for each in controller.history()]
    log.close()
    return found


def _files(home: Path) -> list[Path]:
    return sorted((home / "snapshots").iterdir())


def _passed_over(caplog: LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]


def test_the_snapshot_and_the_first_event_lead_to_the_same_byte_for_byte(tmp_path: Path) -> None:
    asyncio.run(_lived(tmp_path, 3))
    known, ended = _found(tmp_path)
    assert (known, ended) == _found(tmp_path, replay) == _found(tmp_path)
    assert list(known) == ["scheduler", "ledger", "feed", "outlooks"]
    assert len(ended) == 8 and "workloads" not in json.loads(known["scheduler"])


def test_two_are_kept_and_are_their_owners_alone(tmp_path: Path) -> None:
    asyncio.run(_lived(tmp_path, 4))
    files = _files(tmp_path)
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    assert Snapshots(tmp_path / "snapshots").before() == int(files[0].stem[-12:])


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _garble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-30] ^= 1
    file.write_bytes(content)


def _foreign(file: Path) -> None:
    head, _, body = file.read_bytes().partition(b"\n")
    file.write_bytes(json.dumps(json.loads(head) | {"schema": 99}).encode() + b"\n" + body)


def _nonsense(file: Path) -> None:
    file.write_bytes(b"[]\n")


def _locked(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = [
    (_cut, "damaged"),
    (_garble, "damaged"),
    (_foreign, "schema 99"),
    (_nonsense, "first line"),
    (_locked, "cannot be read"),
]


@mark.parametrize("damage, why", DAMAGES)
def test_a_damaged_or_foreign_snapshot_is_passed_over(
    tmp_path: Path, damage: Callable[[Path], None], why: str, caplog: LogCaptureFixture
) -> None:
    asyncio.run(_lived(tmp_path, 3))
    known = _found(tmp_path)
    older, newest = _files(tmp_path)
    damage(newest)
    assert _found(tmp_path) == known
    assert [why in line and str(newest) in line for line in _passed_over(caplog)] == [True]
    damage(older)
    assert _found(tmp_path) == known
    assert len(_passed_over(caplog)) == 3


def test_a_snapshot_that_cannot_be_decoded_leaves_nothing_behind(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    asyncio.run(_lived(tmp_path, 2))
    known = _found(tmp_path)
    log = Log.at(tmp_path / "log.db")
    mark = log.mark(int(_files(tmp_path)[1].stem[-12:]))
    assert mark is not None
    Snapshots(tmp_path / "snapshots").write(
        int(_files(tmp_path)[1].stem[-12:]), mark[0], known[0] | {"feed": '{"threads":1}'}
    )
    log.close()
    assert _found(tmp_path) == known
    assert "cannot be read" in _passed_over(caplog)[0]


def test_a_snapshot_of_another_log_is_passed_over(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for home in (one, other):
        home.mkdir()
        asyncio.run(_lived(home, 2))
    _files(other)[1].unlink()
    (one / "snapshots" / "snapshot-000000999999.jsonl").write_bytes(_files(other)[0].read_bytes())
    log = Log.at(one / "log.db")
    log.append([Woke(9e9)])
    log.close()
    known = _found(one, replay)
    assert _found(one) == known
    older = Log.at(tmp_path / "older.db")
    older.append([Woke(1.0), SnapshotTaken(1.0)])
    assert list(Snapshots(one / "snapshots").usable(older)) == []
    older.close()
    assert all("was not taken after event" in line for line in _passed_over(caplog))


def test_what_was_over_must_be_known_up_to_a_snapshot(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    asyncio.run(_lived(tmp_path, 2))
    known = _found(tmp_path)
    log = Log.at(tmp_path / "log.db")
    log.past.cut(0)
    log.close()
    assert _found(tmp_path) == known
    assert all("what was over is known up to event 0" in line for line in _passed_over(caplog))


@mark.parametrize("point", range(14))
def test_a_kill_at_any_step_of_writing_costs_nothing(tmp_path: Path, point: int, monkeypatch: MonkeyPatch) -> None:
    """Every call that changes the disk while a snapshot is taken is the last one, in turn."""
    world = asyncio.run(_lived(tmp_path, 2))
    fuse = Fuse()
    for name in ("open", "fsync", "replace", "unlink", "close"):
        monkeypatch.setattr(snapshot_os := os, name, _burning(getattr(snapshot_os, name), fuse))
    monkeypatch.setattr(Snapshots, "write_soon", Snapshots.write)

    async def story() -> None:
        controller, _ = await _open(tmp_path, world)
        fuse.left = point
        try:
            controller.snapshot()
        except Crash:
            controller.log.close()
        else:
            await controller.close()
        fuse.left = None

    asyncio.run(story())
    monkeypatch.undo()
    assert _found(tmp_path) == _found(tmp_path, replay)
    asyncio.run(_once_more(tmp_path, world))
    assert len(_files(tmp_path)) == 2
    assert not any(file.suffix == ".new" for file in _files(tmp_path))


def _burning(call: Callable[..., object], fuse: Fuse) -> Callable[..., object]:
    def burn(*arguments: object, **options: object) -> object:
        fuse.burn()
        return call(*arguments, **options)

    return burn


async def _once_more(home: Path, world: World) -> None:
    controller, backend = await _open(home, world)
    _live(controller, backend, 9)
    controller.snapshot()
    await controller.close()


def test_a_full_disk_is_said_and_the_controller_goes_on(
    tmp_path: Path, caplog: LogCaptureFixture, monkeypatch: MonkeyPatch
) -> None:
    async def story() -> None:
        controller, backend = await _open(tmp_path, World(FakeClock()))

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(snapshot, "write_file", full)
        _live(controller, backend, 0)
        controller.snapshot()
        controller.snapshots.wait()
        _live(controller, backend, 1)
        assert len(controller.history()) == 4
        await controller.close()

    asyncio.run(story())
    assert any("could not be written: [Errno 28]" in record.getMessage() for record in caplog.records)


def test_one_is_taken_when_it_is_due_and_when_the_controller_is_closed(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    async def story() -> None:
        world = World(FakeClock())
        controller, backend = await _open(tmp_path, world)
        monkeypatch.setattr("stellwerk.controller.loop.SHARE", 0.0)
        monkeypatch.setattr("stellwerk.controller.loop.EVERY", 5)
        _live(controller, backend, 0)
        _live(controller, backend, 1)
        taken = [seq for seq, event in controller.log.events() if isinstance(event, SnapshotTaken)]
        assert taken[:2] == [6, 12]
        monkeypatch.undo()
        _live(controller, backend, 2)
        await controller.close()
        assert int(_files(tmp_path)[-1].stem[-12:]) == controller.folded > 12
        again, _ = await _open(tmp_path, world)
        events = [event for _, event in again.log.events()]
        assert [type(event) for event in events[-2:]] == [SnapshotTaken, Woke]
        await again.close()
        with closing(Log.at(tmp_path / "log.db")) as log:
            assert [event for _, event in log.events()] == events, "nothing new, no snapshot"

    asyncio.run(story())


def test_a_controller_that_failed_leaves_no_snapshot(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async def story() -> None:
        controller, backend = await _open(tmp_path, World(FakeClock()))
        _live(controller, backend, 0)
        monkeypatch.setitem(FOLD, Woke, lambda book, event: 1 / 0)
        with raises(ZeroDivisionError):
            controller.report(Woke(0.0))
        await controller.close()
        assert not (tmp_path / "snapshots").exists()

    asyncio.run(story())


def test_how_much_was_folded_is_logged(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    asyncio.run(_lived(tmp_path, 1))
    with caplog.at_level(logging.INFO):
        _found(tmp_path)
        _found(tmp_path, replay)
    first = int(_files(tmp_path)[0].stem[-12:]) + 1
    assert any(line.startswith(f"folded the events from number {first} to ") for line in caplog.messages)
    assert any(line.startswith("folded the events from number 1 to ") for line in caplog.messages)
