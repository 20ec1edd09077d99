"""Stellwerk's own log as a trace: what it says of every workload, and how it is read."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_log import EPOCH, demand, events_of, pool, told, written

from stellwerk.controller.log import Log
from stellwerk.scheduling.events import CheckpointReported, StopRequested, Woke
from stellwerk.scheduling.model import Fleet, Option, Part
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.submissions import Estimates
from stellwerk.simulation.traces import Job, read
from stellwerk.simulation.traces.log import recorded
from stellwerk.spec import load_fleet
from stellwerk.spec.problems import SpecError

FLEET = Fleet((pool(2),))
PLAIN = told((0, FLEET), (0, "nodes-0"), (0, "nodes-1"))


def refused(source: str | Path) -> str:
    with pytest.raises(SpecError) as caught:
        read(str(source))
    (problem,) = caught.value.problems
    return problem.render().replace(str(source), "FILE")


def test_a_job_is_what_the_workload_turned_out_to_be(tmp_path: Path) -> None:
    wanted = replace(demand("k1", 4, 100.0, name="lm", user="ann", queue="research"), priority=7)
    log = told((10, wanted), (15, ("k1", 1)), (45, ("k1", 1, "succeeded", None)))
    trace = read(str(written(tmp_path, [*PLAIN, *log])), "p100", ["p100"])
    assert trace.format == "log"
    assert trace.jobs == (
        Job("lm", "ann", "research", 0.0, 30.0, 4, 100.0, 7, "p100:4", None, 0.0, (("outcome", "succeeded"),)),
    )


def test_the_duration_is_the_running_time_of_all_attempts(tmp_path: Path) -> None:
    log = told(
        (0, demand("k", retries=3)),
        (5, ("k", 1)),
        (25, ("k", 1, "failed", "user-error")),  # 20 s
        (26, ("k", 2)),
        (36, StopRequested(EPOCH + 36, "k")),  # 10 s, and 4 s of draining
        (40, ("k", 2, "stopped", None)),
    )
    (job,) = read(str(written(tmp_path, [*PLAIN, *log])), None, ["p100"]).jobs
    assert (job.duration, job.tags) == (30.0, (("outcome", "stopped"),))


def test_what_is_not_over_takes_its_estimate_or_what_it_ran(tmp_path: Path) -> None:
    waiting, long, short = demand("waiting", 8, 70.0), demand("long", 4, 10.0), demand("short", 4, 500.0)
    unknown = demand("unknown", 8)
    log = told(
        (0, long), (0, short), (0, waiting), (0, unknown), (0, ("long", 1)), (0, ("short", 1)), (60, Woke(EPOCH + 60))
    )
    trace = read(str(written(tmp_path, [*PLAIN, *log])), None, ["p100"])
    assert {job.name: job.duration for job in trace.jobs} == {"long": 60.0, "short": 500.0, "waiting": 70.0}
    assert {job.tags for job in trace.jobs} == {(("outcome", "not-over"),)}
    assert trace.left_out == {"not over yet, and nobody said how long it takes": 1}


def test_what_never_ran_is_left_out(tmp_path: Path) -> None:
    log = told((0, demand("a", 8)), (0, demand("huge", 4000)), (0, demand("b", 8)), (5, StopRequested(EPOCH + 5, "b")))
    trace = read(str(written(tmp_path, [*PLAIN, *log, *told((6, ("a", 1)), (9, ("a", 1, "succeeded", None)))])))
    assert [job.name for job in trace.jobs] == ["a"]
    assert trace.left_out == {"ended without having run": 2}


def test_the_option_is_the_one_that_it_ran_on_and_roles_are_chips(tmp_path: Path) -> None:
    two = demand("two", 4)
    two = replace(two, options=(Option("p100:400", (Part("main", "p100", None, 400),)), *two.options))
    roles = (Part("learner", "p100", None, 2), Part("generator", "p100", None, 2, count=1))
    rl = replace(demand("rl"), options=(Option("learner=p100:2 generator=p100:2", roles),))
    mixed = replace(rl, key="mixed", options=(Option("x", (roles[0], Part("generator", "v100", None, 1))),))
    log = told((0, two), (0, rl), (0, ("two", 1)), (0, ("rl", 1)), (9, ("two", 1, "succeeded", None)))
    end = told((9, ("rl", 1, "succeeded", None)), (9, replace(mixed, runtime=5.0)))
    v100 = replace(pool(1, "v"), accelerator="v100")
    fleet = told((0, Fleet((*FLEET.pools, v100))), (0, "v-0"))
    trace = read(str(written(tmp_path, [*PLAIN, *fleet, *log, *end])), None, ["p100"])
    assert [(job.name, job.option, job.accelerator, job.chips) for job in trace.jobs] == [
        ("two", "p100:4", None, 4),
        ("rl", None, "p100", 4),
    ]
    assert trace.left_out == {"roles on several accelerators": 1}


def test_a_replay_of_the_trace_ends_as_the_log_did(tmp_path: Path) -> None:
    jobs = [(float(3 * i), float(20 + 7 * i % 50), demand(f"w{i}", (2, 4, 8)[i % 3])) for i in range(20)]
    events, ended = events_of(FLEET, jobs)
    trace = read(str(written(tmp_path, events)), None, ["p100"])
    declared = {
        "accelerators": {"p100": {}},
        "pools": [{"name": "nodes", "accelerator": "p100", "chips": 4, "units": 2}],
    }
    outcome = replay(load_fleet(declared), trace, Settings("default", estimates=Estimates("user")))
    assert {job.demand.name: job.end for job in outcome.jobs} == {
        key: pytest.approx((job.end or 0.0) - EPOCH) for key, job in ended.items()
    }


def test_a_folder_a_name_and_the_content_all_say_that_it_is_a_log(tmp_path: Path) -> None:
    file = written(tmp_path / "home", [*PLAIN, *told((0, demand("k", runtime=5.0)))])
    other = file.rename(file.with_name("yesterday.csv"))
    by_content, by_name = read(str(other)), read(f"{other}:log")
    other.rename(file)
    by_folder, by_folder_and_name = read(str(file.parent)), read(f"{file.parent}:log")
    assert by_content.jobs == by_name.jobs == by_folder.jobs == by_folder_and_name.jobs != ()


def test_a_log_is_read_as_it_is_at_one_moment_while_a_controller_writes(tmp_path: Path) -> None:
    log = Log.at(tmp_path / "log.db")
    log.append([*PLAIN, *told((0, demand("first", runtime=5.0)))])
    writer = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO events (at, type, payload) VALUES (1, 'Woke', '{\"at\": 1}')")
    assert len(recorded(str(tmp_path)).events) == len(PLAIN) + 1
    writer.execute("COMMIT")
    writer.close()
    assert len(recorded(str(tmp_path)).events) == len(PLAIN) + 2
    log.append(told((2, demand("second", runtime=5.0))))
    assert [job.name for job in read(str(tmp_path), None, ["p100"]).jobs] == ["first", "second"]
    log.close()


def test_a_log_at_rest_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    file = written(tmp_path / "home", PLAIN)
    before = file.read_bytes()
    os.chmod(file, 0o400)
    os.chmod(file.parent, 0o500)
    try:
        assert len(recorded(str(file)).events) == len(PLAIN)
    finally:
        os.chmod(file.parent, 0o700)
    assert file.read_bytes() == before


def test_archived_events_are_read_from_their_segments(tmp_path: Path) -> None:
    events = [*PLAIN, *told((0, demand("k", runtime=5.0)), (1, ("k", 1)), (7, ("k", 1, "succeeded", None)))]
    file = written(tmp_path, events)
    segment = tmp_path / "archive" / "events-1-4.jsonl.gz"
    segment.parent.mkdir()
    with sqlite3.connect(file) as database:
        rows = database.execute("SELECT seq, at, type, payload FROM events WHERE seq <= 4 ORDER BY seq").fetchall()
        keys = ("seq", "at", "type", "payload")
        lines = [json.dumps(dict(zip(keys, (*row[:3], json.loads(row[3])), strict=True))) for row in rows]
        segment.write_bytes(gzip.compress("\n".join(lines).encode()))
        database.execute("CREATE TABLE IF NOT EXISTS segments (first, last, file, sha256)")
        digest = hashlib.sha256(segment.read_bytes()).hexdigest()
        database.execute("INSERT INTO segments VALUES (1, 4, ?, ?)", (segment.name, digest))
        database.execute("DELETE FROM events WHERE seq <= 4")
    database.close()
    assert recorded(str(file)).events == tuple(events)
    segment.write_bytes(b"other")
    assert "which is damaged" in refused(file)
    segment.unlink()
    assert "cannot be read: No such file" in refused(file)


def spoiled(file: Path, statement: str, *values: object) -> Path:
    with sqlite3.connect(file) as database:
        database.execute(statement, values)
    database.close()
    return file


BAD = [
    ("UPDATE events SET payload = '[]'", "FILE: error[unreadable]: event 1 of the log cannot be read: "),
    ("UPDATE events SET payload = 'nonsense'", "FILE: error[unreadable]: event 1 of the log cannot be read: "),
    ("UPDATE events SET payload = 7", "FILE: error[unreadable]: event 1 of the log cannot be read: "),
    ("UPDATE events SET payload = x'ff'", "FILE: error[unreadable]: event 1 of the log cannot be read: "),
    ("UPDATE events SET type = 'Strange'", "FILE: error[unreadable]: event 1 of the log cannot be read: "),
    (
        "UPDATE events SET type = 'Woke', payload = '{\"at\": NaN}'",
        "FILE: error[unreadable]: event 1 of the log cannot be read: its time is not finite",
    ),
    ("UPDATE meta SET value = '99' WHERE key = 'schema'", "FILE: error[later-schema]: the event log has schema 99"),
    ("DROP TABLE events", "FILE: error[not-a-log]: this database has no events of Stellwerk"),
]


@pytest.mark.parametrize(("statement", "found"), BAD, ids=[statement for statement, _ in BAD])
def test_a_log_that_cannot_be_read_is_told(tmp_path: Path, statement: str, found: str) -> None:
    assert refused(spoiled(written(tmp_path, PLAIN), statement)).startswith(found)


def test_files_that_are_no_logs_are_told(tmp_path: Path) -> None:
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    assert refused(f"{tmp_path}/text.csv:log").startswith(f"{tmp_path}/text.csv: error[unreadable]")
    assert "error[no-such-file]: there is no event log here" in refused(f"{tmp_path}:log")
    database = sqlite3.connect(tmp_path / "other.db")
    database.execute("CREATE TABLE t (a)")
    database.close()
    assert "error[not-a-log]" in refused(tmp_path / "other.db")
    broken = written(tmp_path / "home", PLAIN)
    broken.write_bytes(broken.read_bytes()[:5000])
    assert "error[unreadable]: the event log cannot be read" in refused(broken)
    assert "error[wrong-format]: this is a database" in refused(f"{written(tmp_path / 'third', PLAIN)}:philly")


def test_checkpoints_and_unknown_keys_harm_nothing(tmp_path: Path) -> None:
    log = [CheckpointReported(EPOCH + 3, "nobody", 1, "memory://"), *told((4, ("nobody", 1)))]
    assert read(str(written(tmp_path, [*PLAIN, *log]))).jobs == ()
