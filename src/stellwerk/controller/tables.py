"""The tables of the log's database, and its notes (`meta`)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

SCHEMA = 2
"""1: events, workloads, meta. 2: also what is over, and segments of events that were archived."""

metadata = sa.MetaData()
_sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", _sequence, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("type", sa.String(40), nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sqlite_autoincrement=True,
)
workloads = sa.Table(
    "workloads",
    metadata,
    sa.Column("key", sa.String(80), primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("submission", sa.String(200), nullable=False, unique=True),
    sa.Column("submitted", sa.Double, nullable=False),
    sa.Column("declaration", sa.JSON, nullable=False),
)
meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.String(40), primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)
ended = sa.Table(
    "ended",
    metadata,
    sa.Column("key", sa.String(80), primary_key=True),
    sa.Column("name", sa.String(40), nullable=False),
    sa.Column("place", sa.BigInteger, nullable=False, index=True),
    sa.Column("upto", sa.BigInteger, nullable=False, index=True),
    sa.Column("record", sa.Text, nullable=False),
    sa.Index("ix_ended_name_place", "name", "place"),
)
spans = sa.Table(
    "spans",
    metadata,
    sa.Column("id", _sequence, primary_key=True, autoincrement=True),
    sa.Column("upto", sa.BigInteger, nullable=False, index=True),
    sa.Column("start", sa.Double, nullable=False),
    sa.Column("end", sa.Double, nullable=False),
    sa.Column("pool", sa.String(80), nullable=False),
    sa.Column("unit", sa.String(80), nullable=False),
    sa.Column("queue", sa.String(80)),
    sa.Column("workload", sa.String(80), index=True),
    sa.Column("attempt", sa.Integer),
    sa.Column("use", sa.String(16), nullable=False),
    sa.Column("chips", sa.Integer, nullable=False),
    sa.Column("of", sa.Integer, nullable=False),
    sa.Column("price", sa.Double),
    sa.Column("emulated", sa.Boolean, nullable=False),
)
segments = sa.Table(
    "segments",
    metadata,
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("file", sa.String(100), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
)


def put(connection: sa.Connection, key: str, content: Any) -> None:
    """Note something, within the transaction of the caller."""
    connection.execute(meta.delete().where(meta.c.key == key))
    connection.execute(meta.insert().values(key=key, value=content))


def value(connection: sa.Connection, key: str) -> Any:
    """What was noted, within the transaction of the caller; None when nothing was."""
    return connection.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar()
