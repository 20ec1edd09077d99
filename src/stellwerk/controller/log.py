"""The event log: append-only SQL, the one place where the controller remembers.

An event is durable before a command that follows from it is carried out, so `append` returns only after the commit.
SQLite runs in WAL mode with `synchronous=FULL`: a commit is then synced to disk. `NORMAL` would survive a killed
process but may lose the last commits to a power cut, and commands may have gone to machines that kept their power; a
second attempt on hardware that is still in use is worse than the millisecond that the sync takes. Another database is
chosen by URL.

Nothing is updated or deleted in `events` and `workloads`. Table `meta` holds the schema version and the declared fleet,
and leaves room for where a snapshot stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event as sa_event
from sqlalchemy.exc import DatabaseError

from stellwerk.scheduling.codec import decode_event, encode
from stellwerk.scheduling.events import Event

SCHEMA = 1

_metadata = sa.MetaData()
_sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_events = sa.Table(
    "events",
    _metadata,
    sa.Column("seq", _sequence, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("type", sa.String(40), nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sqlite_autoincrement=True,
)
_workloads = sa.Table(
    "workloads",
    _metadata,
    sa.Column("key", sa.String(80), primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("submission", sa.String(200), nullable=False, unique=True),
    sa.Column("submitted", sa.Double, nullable=False),
    sa.Column("declaration", sa.JSON, nullable=False),
)
_meta = sa.Table(
    "meta",
    _metadata,
    sa.Column("key", sa.String(40), primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)


class LogError(Exception):
    """The log cannot be used: another version wrote it, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A workload as it was declared. `submission` is the caller's own id, by which a repeated request is known."""

    key: str
    name: str
    submission: str
    submitted: float
    declaration: Mapping[str, Any]


class Log:
    """The log at a database URL. Used by one process and one thread at a time."""

    def __init__(self, url: str) -> None:
        """Open the log and create its tables when it is new; LogError when a later version wrote it."""
        self._engine = sa.create_engine(url)
        if self._engine.dialect.name == "sqlite":
            sa_event.listen(self._engine, "connect", _durable)
        try:
            self._connection = self._engine.connect()
        except DatabaseError as error:
            self._engine.dispose()
            raise LogError(f"the event log cannot be opened: {error.orig}") from error
        try:
            _metadata.create_all(self._connection)
            self._connection.commit()
            self._check_schema()
        except BaseException:
            self.close()
            raise

    @classmethod
    def at(cls, path: Path) -> Log:
        """The log in a SQLite file that only its owner can read."""
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        return cls(sa.URL.create("sqlite", database=str(path)).render_as_string())

    def append(
        self, events: Sequence[Event], *, declared: Declared | None = None, fleet: Mapping[str, Any] | None = None
    ) -> int:
        """Make events durable, with the declaration that they came with, all or none; the last one's number."""
        rows = [{"at": event.at, "type": type(event).__name__, "payload": encode(event)} for event in events]
        last = 0
        with self._connection.begin():
            for row in rows:
                inserted = self._connection.execute(_events.insert().values(row)).inserted_primary_key
                last = int(inserted[0]) if inserted else last
            if declared is not None:
                self._connection.execute(_workloads.insert().values(_row(declared)))
            if fleet is not None:
                self._put("fleet", dict(fleet))
        return last

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events in order, with their numbers, from the one after `after`; LogError when one cannot be read."""
        query = sa.select(_events).where(_events.c.seq > after).order_by(_events.c.seq)
        while rows := self._read(query.limit(1000)):
            for row in rows:
                try:
                    yield row.seq, decode_event(row.type, row.payload)
                except ValueError as error:
                    raise LogError(f"event {row.seq} of the log cannot be read: {error}") from error
            query = query.where(_events.c.seq > rows[-1].seq)

    def declared(self, *, key: str | None = None, submission: str | None = None) -> Declared | None:
        """The workload of that key or of that submission, if there is one."""
        chosen = _workloads.c.key == key if key is not None else _workloads.c.submission == submission
        rows = self._read(sa.select(_workloads).where(chosen))
        return Declared(*rows[0]) if rows else None

    def fleet(self) -> Mapping[str, Any] | None:
        """The fleet as last declared; None while pools come into being as workloads ask for them."""
        rows = self._read(sa.select(_meta.c.value).where(_meta.c.key == "fleet"))
        return rows[0].value if rows else None

    def close(self) -> None:
        """Give the database back."""
        self._connection.close()
        self._engine.dispose()

    def _read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._connection.begin():
            return self._connection.execute(query).all()

    def _put(self, key: str, value: Any) -> None:
        self._connection.execute(_meta.delete().where(_meta.c.key == key))
        self._connection.execute(_meta.insert().values(key=key, value=value))

    def _check_schema(self) -> None:
        rows = self._read(sa.select(_meta.c.value).where(_meta.c.key == "schema"))
        if not rows:
            with self._connection.begin():
                self._put("schema", SCHEMA)
        elif rows[0].value > SCHEMA:
            raise LogError(f"the event log has schema {rows[0].value}, and this version reads up to {SCHEMA}")


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
