from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

from pytest import raises
from sqlalchemy import Engine
from sqlalchemy import event as sa_event

from stellwerk.controller.log import PAGE, Declared, Log, LogError
from stellwerk.scheduling.events import AttemptEnded, FleetChanged, Submitted, Woke
from stellwerk.scheduling.model import Demand, Fleet, Limits, Option, Part, Pool, Queue

DEMAND = Demand(
    "k", "n", "train", (Option("tpu-v6e:4x4", (Part("main", "tpu-v6e", "4x4", 16),)),), limits=Limits(run=5.0)
)
EVENTS = [
    Submitted(1.0, DEMAND),
    FleetChanged(
        1.5, Fleet((Pool("p", "tpu-v6e", "4x4", None, 16, 4, 2),), (Queue("q", (("tpu-v6e", 32),)),), memory=9)
    ),
    AttemptEnded(2.0, "k", 1, "failed", "user-error", "Ümläut \N{SNOWMAN}", 3),
    Woke(3.25),
]


def _declared(key: str = "k", submission: str = "s") -> Declared:
    return Declared(key, "n", submission, 1.0, {"kind": "train", "env": {"A": "1"}})


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    assert log.append(EVENTS[:2]) == 2
    assert log.append(EVENTS[2:]) == 4
    log.close()
    log = Log.at(tmp_path / "log.db")
    assert [event for _, event in log.events()] == EVENTS
    assert [seq for seq, _ in log.events(after=2)] == [3, 4]
    log.close()


def test_many_events_are_read_in_order(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    log.append([Woke(float(at)) for at in range(2500)])
    assert [event.at for _, event in log.events()] == [float(at) for at in range(2500)]
    log.close()


def test_every_page_of_events_costs_the_same_to_read(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    log.append([Woke(float(at)) for at in range(3 * PAGE)])
    asked: list[str] = []

    def note(connection: object, cursor: object, statement: str, *others: object) -> None:
        asked.append(statement)

    sa_event.listen(Engine, "before_cursor_execute", note)
    try:
        assert sum(1 for _ in log.events()) == 3 * PAGE
    finally:
        sa_event.remove(Engine, "before_cursor_execute", note)
        log.close()
    pages = [statement for statement in asked if "FROM events" in statement]
    assert len(pages) == 4
    assert len(set(pages)) == 1


def test_a_submission_and_its_declaration_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    log.append([EVENTS[0]], declared=_declared(), fleet={"pools": []})
    with raises(Exception, match="UNIQUE"):
        log.append([Woke(9.0)], declared=_declared(key="other"))
    assert [type(event) for _, event in log.events()] == [Submitted]
    assert log.declared(submission="s") == log.declared(key="k") == _declared()
    assert log.declared(key="other") is None
    assert log.fleet() == {"pools": []}
    log.append([], fleet={"pools": [1]})
    assert log.fleet() == {"pools": [1]}
    log.close()


def test_the_file_is_its_owners_and_commits_are_synced(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    log.append([Woke(1.0)])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert log._connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert log._connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    log._connection.rollback()
    log.close()


def test_a_log_of_a_later_version_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    log.append([Woke(1.0)])
    log.close()
    with sqlite3.connect(tmp_path / "log.db") as database:
        database.execute("UPDATE events SET type = 'Sneezed'")
    database.close()
    log = Log.at(tmp_path / "log.db")
    with raises(LogError, match=r"event 1 of the log cannot be read: .*Sneezed"):
        list(log.events())
    log.close()
    with sqlite3.connect(tmp_path / "log.db") as database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    database.close()
    with raises(LogError, match="schema 99"):
        Log.at(tmp_path / "log.db")
    (tmp_path / "other.db").write_bytes(b"this is no database at all" * 100)
    with raises(LogError, match="cannot be opened"):
        Log.at(tmp_path / "other.db")
