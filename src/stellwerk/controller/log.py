"""The event log: append-only SQL, the one place where the controller remembers.

An event is durable before a command that follows from it is carried out, so `append` returns only after the commit.
SQLite runs in WAL mode with `synchronous=FULL`: a commit is then synced to disk. `NORMAL` would survive a killed
process but may lose the last commits to a power cut, and commands may have gone to machines that kept their power; a
second attempt on hardware that is still in use is worse than the millisecond that the sync takes. Another database is
chosen by URL.

Nothing is updated in `events` and `workloads`, and an event leaves its table only for a segment of the archive
(`stellwerk.controller.archive`), where `events` reads it as before. Table `meta` holds the schema version and the
declared fleet; what follows from the events alone is in the tables of `stellwerk.controller.past`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event as sa_event
from sqlalchemy.exc import DatabaseError

from stellwerk.controller import tables
from stellwerk.controller.archive import Archive, Record, Segment, SegmentError
from stellwerk.controller.past import Gone, Past
from stellwerk.controller.tables import SCHEMA, metadata
from stellwerk.scheduling.codec import decode_event, encode
from stellwerk.scheduling.events import Event

_events, _segments, _workloads = tables.events, tables.segments, tables.workloads


PAGE = 1000
"""Events that are read from the table at a time."""


class LogError(Exception):
    """The log cannot be used: another version wrote it, or it or a segment of it is damaged or missing."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A workload as it was declared. `submission` is the caller's own id, by which a repeated request is known."""

    key: str
    name: str
    submission: str
    submitted: float
    declaration: Mapping[str, Any]


class Log:
    """The log at a database URL. Used by one process and one thread at a time, but for `records`."""

    def __init__(self, url: str, archive: Path | None = None) -> None:
        """Open the log and create its tables when it is new; LogError when a later version wrote it.

        `archive` is the folder of its archived segments.
        """
        self.archive = None if archive is None else Archive(archive)
        self._engine = sa.create_engine(url)
        if self._engine.dialect.name == "sqlite":
            sa_event.listen(self._engine, "connect", _durable)
        try:
            self._connection = self._engine.connect()
        except DatabaseError as error:
            self._engine.dispose()
            raise LogError(f"the event log cannot be opened: {error.orig}") from error
        self.past = Past(self._connection)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def at(cls, path: Path) -> Log:
        """The log in a SQLite file that only its owner can read, with its archive beside it."""
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        return cls(sa.URL.create("sqlite", database=str(path)).render_as_string(), path.parent / "archive")

    def append(
        self,
        events: Sequence[Event],
        *,
        declared: Declared | None = None,
        fleet: Mapping[str, Any] | None = None,
        gone: Gone | None = None,
    ) -> int:
        """Make events durable, with the declaration that they came with, all or none; the last one's number.

        `gone` is what is over by earlier events and was not written yet.
        """
        rows = [{"at": event.at, "type": type(event).__name__, "payload": encode(event)} for event in events]
        last = 0
        with self._connection.begin():
            for row in rows:
                inserted = self._connection.execute(_events.insert().values(row)).inserted_primary_key
                last = int(inserted[0]) if inserted else last
            if declared is not None:
                self._connection.execute(_workloads.insert().values(_row(declared)))
            if fleet is not None:
                tables.put(self._connection, "fleet", dict(fleet))
            if gone is not None:
                self.past.write(gone)
        return last

    def keep(self, gone: Gone, *, whole: bool = False) -> None:
        """Write what is over; `whole` when nothing that is over by event `gone.upto` is missing then."""
        with self._connection.begin():
            self.past.write(gone)
            if whole:
                self.past.whole(gone.upto)

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events in order, with their numbers, from the one after `after`; LogError when one cannot be read.

        Those that were archived are read from their segments.
        """
        for record in self._archived(after):
            after = record.seq
            yield record.seq, _decoded(record)
        page = sa.select(_events).order_by(_events.c.seq).limit(PAGE)
        while rows := self._read(page.where(_events.c.seq > after)):
            for row in rows:
                yield row.seq, _decoded(Record(*row))
            after = rows[-1].seq

    def _archived(self, after: int) -> Iterator[Record]:
        for segment in self.segments():
            if segment.last > after:
                if self.archive is None:
                    raise LogError(
                        f"events {segment.first} to {segment.last} are in {segment.file}, and where is unknown"
                    )
                try:
                    yield from (record for record in self.archive.read(segment) if record.seq > after)
                except SegmentError as error:
                    raise LogError(str(error)) from error

    def segments(self) -> list[Segment]:
        """The archived segments, in order."""
        return [Segment(*row) for row in self._read(sa.select(_segments).order_by(_segments.c.first))]

    def records(self, before: int, older_than: float, most: int) -> list[Record]:
        """The first events in the table, at most so many, that are before number `before` and time `older_than`.

        They are read over a connection of their own, so another thread may ask.
        """
        query = sa.select(_events).where(_events.c.seq < before).order_by(_events.c.seq).limit(most)
        with self._engine.connect() as connection:
            rows = [Record(*row) for row in connection.execute(query)]
        return rows[: next((place for place, row in enumerate(rows) if row.at >= older_than), len(rows))]

    def archived(self, segment: Segment) -> None:
        """The events of a segment that is durable leave the table; all or none of it."""
        inside = sa.and_(_events.c.seq >= segment.first, _events.c.seq <= segment.last)
        with self._connection.begin():
            self._connection.execute(_segments.insert().values(**segment.row()))
            self._connection.execute(_events.delete().where(inside))

    def mark(self, seq: int) -> tuple[str, str] | None:
        """A digest of event `seq` and the kind of the one after it; None when there are no two such events."""
        query = sa.select(_events).where(_events.c.seq >= seq).order_by(_events.c.seq).limit(2)
        rows = self._read(query)
        if len(rows) < 2 or rows[0].seq != seq:
            return None
        text = json.dumps([*rows[0][:3], rows[0].payload], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest(), rows[1].type

    def declared(self, *, key: str | None = None, submission: str | None = None) -> Declared | None:
        """The workload of that key or of that submission, if there is one."""
        chosen = _workloads.c.key == key if key is not None else _workloads.c.submission == submission
        rows = self._read(sa.select(_workloads).where(chosen))
        return Declared(*rows[0]) if rows else None

    def fleet(self) -> Mapping[str, Any] | None:
        """The fleet as last declared; None while pools come into being as workloads ask for them."""
        with self._connection.begin():
            return tables.value(self._connection, "fleet")

    def close(self) -> None:
        """Give the database back."""
        self._connection.close()
        self._engine.dispose()

    def _read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._connection.begin():
            return self._connection.execute(query).all()

    def _open(self) -> None:
        """Check who wrote the log before anything is changed; make what it lacks."""
        found = 0
        if sa.inspect(self._connection).has_table("meta"):
            found = int(tables.value(self._connection, "schema") or 0)
        self._connection.rollback()
        if found > SCHEMA:
            raise LogError(f"the event log has schema {found}, and this version reads up to {SCHEMA}")
        metadata.create_all(self._connection)
        if found < SCHEMA:
            tables.put(self._connection, "schema", SCHEMA)
        self._connection.commit()


def _decoded(record: Record) -> Event:
    try:
        return decode_event(record.type, record.payload)
    except ValueError as error:
        raise LogError(f"event {record.seq} of the log cannot be read: {error}") from error


def _row(declared: Declared) -> dict[str, Any]:
    return {
        "key": declared.key,
        "name": declared.name,
        "submission": declared.submission,
        "submitted": declared.submitted,
        "declaration": dict(declared.declaration),
    }


def _durable(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"):
        connection.execute(f"PRAGMA {pragma}")
