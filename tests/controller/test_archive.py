"""Events that leave the database for files are read as before, and none is ever lost."""

from __future__ import annotations

import asyncio
import gzip
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from controller_world import Crash, Fuse
from pytest import LogCaptureFixture, MonkeyPatch, mark, raises
from test_log import EVENTS
from test_snapshot import _burning, _found, _lived

from stellwerk.controller import archive as archiving
from stellwerk.controller.archive import Archive, Segment, SegmentError, archive
from stellwerk.controller.log import Log, LogError
from stellwerk.controller.recovery import replay
from stellwerk.controller.snapshot import Snapshots
from stellwerk.scheduling.events import Woke


def _log(folder: Path, count: int = 10) -> Log:
    """A log with an event of each kind, then one each second."""
    log = Log.at(folder / "log.db")
    log.append(EVENTS)
    log.append([Woke(float(at)) for at in range(5, count + 1)])
    return log


def _archive(log: Log, before: int, older_than: float = 1e12) -> list[Segment]:
    return asyncio.run(archive(log, before=before, older_than=older_than))


def _read(folder: Path) -> list[tuple[int, object]]:
    log = Log.at(folder / "log.db")
    try:
        return list(log.events())
    finally:
        log.close()


def test_they_are_read_from_their_files_as_from_the_table(tmp_path: Path) -> None:
    log = _log(tmp_path)
    everything = list(log.events())
    (segment,) = _archive(log, 7)
    assert (segment.first, segment.last, segment.file) == (1, 6, "events-000000000001-000000000006.jsonl.gz")
    assert [record.seq for record in log.records(99, 1e12, 99)] == [7, 8, 9, 10]
    assert list(log.events()) == everything
    assert list(log.events(4)) == everything[4:]
    assert list(log.events(8)) == everything[8:]
    assert log.append([Woke(11.0)]) == 11
    _archive(log, 9)
    log.close()
    assert _read(tmp_path) == [*everything, (11, Woke(11.0))]
    with gzip.open(tmp_path / "archive" / segment.file, "rt") as lines:
        assert next(lines).startswith('{"seq":1,"at":1.0,"type":"Submitted","payload":{')


def test_only_what_is_old_and_before_the_snapshot_goes(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "SEGMENT", 3)
    log = _log(tmp_path)
    assert _archive(log, 0) == []
    assert _archive(log, 11, older_than=0.5) == []
    assert [(each.first, each.last) for each in _archive(log, 11, older_than=8.0)] == [(1, 3), (4, 6), (7, 7)]
    assert [(each.first, each.last) for each in _archive(log, 10)] == [(8, 9)]
    assert [(each.first, each.last) for each in log.segments()] == [(1, 3), (4, 6), (7, 7), (8, 9)]
    assert [seq for seq, _ in log.events()] == list(range(1, 11))
    log.close()


def test_the_files_are_their_owners_alone_and_it_is_said_where_events_went(
    tmp_path: Path, caplog: LogCaptureFixture
) -> None:
    log = _log(tmp_path)
    with caplog.at_level("INFO"):
        (segment,) = _archive(log, 7)
    file = tmp_path / "archive" / segment.file
    assert f"events 1 to 6 were archived in {file}" in caplog.messages
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    log.close()


@mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_missing_or_damaged_segment_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    log = _log(tmp_path)
    (segment,) = _archive(log, 7)
    file = tmp_path / "archive" / segment.file
    if damage == "missing":
        file.rename(file.with_name("elsewhere"))
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-9] if damage == "cut" else gzip.compress(gzip.decompress(content)[:-2] + b" \n"))
    with raises(LogError, match=f"{segment.file}, which holds events 1 to 6 of the log, (cannot be read|is damaged)"):
        list(log.events())
    assert [seq for seq, _ in log.events(6)] == [7, 8, 9, 10], "what comes after needs no segment"
    log.close()


def test_a_log_that_does_not_know_where_its_segments_are_says_so(tmp_path: Path) -> None:
    log = _log(tmp_path)
    _archive(log, 7)
    log.close()
    log = Log(f"sqlite:///{tmp_path / 'log.db'}")
    with raises(LogError, match="events 1 to 6 are in events-000000000001-"):
        list(log.events())
    assert _archive(log, 9) == []
    log.close()


@mark.parametrize("point", range(12))
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, point: int, monkeypatch: MonkeyPatch) -> None:
    log = _log(tmp_path)
    everything = list(log.events())
    fuse = Fuse()
    for name in ("open", "fsync", "replace", "close", "mkdir", "unlink"):
        monkeypatch.setattr(os, name, _burning(getattr(os, name), fuse))
    for owner, name in ((Log, "records"), (Log, "archived"), (Archive, "_check")):
        monkeypatch.setattr(owner, name, _around(getattr(owner, name), fuse))
    fuse.left = point
    with suppress(Crash):
        _inline(log, 7, monkeypatch)
    fuse.left = None
    monkeypatch.undo()
    log.close()
    assert _read(tmp_path) == everything
    log = Log.at(tmp_path / "log.db")
    _archive(log, 9)
    noted = {segment.file for segment in log.segments()}
    assert {file.name for file in (tmp_path / "archive").iterdir()} == noted
    log.close()
    assert _read(tmp_path) == everything


def _inline(log: Log, before: int, monkeypatch: MonkeyPatch) -> None:
    """Archive in this thread, so that a crash is raised here and at once."""

    async def here(call: Callable[..., object], *arguments: object) -> object:
        return call(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", here)
    steps = archive(log, before=before, older_than=1e12)
    with raises(StopIteration):
        steps.send(None)


def _around(call: Callable[..., object], fuse: Fuse) -> Callable[..., object]:
    def burn(*arguments: object, **options: object) -> object:
        fuse.burn()
        found = call(*arguments, **options)
        fuse.burn()
        return found

    return burn


def test_what_fails_in_the_transaction_stays_in_the_table(tmp_path: Path) -> None:
    log = _log(tmp_path)
    everything = list(log.events())
    with sqlite3.connect(tmp_path / "log.db") as database:
        database.execute("CREATE TRIGGER no BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'no'); END")
    database.close()
    with raises(Exception, match="no"):
        _archive(log, 7)
    assert log.segments() == []
    assert list(log.events()) == everything
    log.close()


def test_a_strange_file_in_the_folder_is_left_alone(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    log = _log(tmp_path)
    strange = tmp_path / "archive" / "events-000000000001-000000000002.jsonl.gz"
    strange.parent.mkdir()
    strange.write_bytes(b"strange")
    _archive(log, 7)
    assert strange.read_bytes() == b"strange"
    assert f"{strange} is no segment of this log and is left alone" in caplog.messages
    log.close()


def test_a_segment_that_was_not_written_as_meant_is_refused(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    log = _log(tmp_path)
    records = log.records(5, 1e12, 99)
    monkeypatch.setattr(archiving, "_unpacked", lambda packed: iter(records[1:]))
    with raises(SegmentError, match="does not hold what was written to it"):
        Archive(tmp_path / "archive").write(records)
    assert list((tmp_path / "archive").iterdir()) == []
    log.close()


def test_a_controller_folds_an_archived_log_from_the_first_event(tmp_path: Path) -> None:
    asyncio.run(_lived(tmp_path, 3))
    known = _found(tmp_path)
    log = Log.at(tmp_path / "log.db")
    before = Snapshots(tmp_path / "snapshots").before()
    (segment,) = _archive(log, before)
    assert segment.last == before - 1
    log.close()
    assert _found(tmp_path) == _found(tmp_path, replay) == known
