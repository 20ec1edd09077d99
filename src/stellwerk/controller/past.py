"""What is over: workloads that ended and entries of the ledger that were closed, as tables beside the events.

Why: a controller that keeps all of this in memory grows with its history, and reads all of it whenever it starts. Both
tables follow from the events alone. Rows are written with the next events, so they cost no sync of their own, and all
that is missing is written before a snapshot is taken. Each row has in `upto` the number of the last event that was
folded when it was written; after a crash the rows beyond the snapshot that the controller starts from are deleted and
made anew from the events that it folds again. `meta.past` says up to which event the tables are whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from stellwerk.controller.tables import ended, put, spans, value
from stellwerk.observe.ledger import Account, Booking, By, Span
from stellwerk.scheduling.codec import dump, load
from stellwerk.scheduling.state import WorkloadState

_UNHELD = sa.case((spans.c.workload.is_(None), spans.c.pool), else_="").label("pool")
_KEYS: dict[By, tuple[sa.ColumnElement[Any], ...]] = {
    "workload": (_UNHELD, spans.c.workload),
    "queue": (_UNHELD, spans.c.queue),
    "pool": (spans.c.pool,),
    "attempt": (_UNHELD, spans.c.workload, spans.c.attempt),
    "unit": (spans.c.pool, spans.c.unit),
}
_COUNTED = (spans.c.use, spans.c.chips, spans.c.of, spans.c.price, spans.c.emulated)


@dataclass(frozen=True, slots=True)
class Gone:
    """What is over and not written yet, as of event `upto`."""

    upto: int
    ended: Sequence[WorkloadState] = ()
    spans: Sequence[Span] = ()


class Past:
    """The tables of what is over. Used by the log's own thread, over the log's connection."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def write(self, gone: Gone) -> None:
        """Write rows, within the transaction of the caller."""
        if gone.ended:
            self._connection.execute(ended.insert(), [_ended_row(gone.upto, each) for each in gone.ended])
        if gone.spans:
            self._connection.execute(spans.insert(), [_span_row(gone.upto, each) for each in gone.spans])

    def whole(self, upto: int) -> None:
        """The tables hold everything up to event `upto`; within the transaction of the caller."""
        put(self._connection, "past", upto)

    def upto(self) -> int:
        """The event up to which the tables hold everything."""
        with self._connection.begin():
            return int(value(self._connection, "past") or 0)

    def cut(self, upto: int) -> None:
        """Delete what came after event `upto`."""
        with self._connection.begin():
            for table in (ended, spans):
                self._connection.execute(table.delete().where(table.c.upto > upto))
            put(self._connection, "past", upto)

    def ended(self, name: str | None = None, limit: int | None = None) -> list[WorkloadState]:
        """Workloads that ended, the latest submitted first; of that `name`, and no more than `limit`."""
        query = sa.select(ended.c.record).order_by(ended.c.place.desc())
        if name is not None:
            query = query.where(ended.c.name == name)
        return [load(WorkloadState, row.record) for row in self._read(query.limit(limit))]

    def workload(self, key: str) -> WorkloadState | None:
        """The workload of that key."""
        rows = self._read(sa.select(ended.c.record).where(ended.c.key == key))
        return load(WorkloadState, rows[0].record) if rows else None

    def find(self, name: str) -> WorkloadState | None:
        """The workload of that key, or the last that had that name."""
        return self.workload(name) or next(iter(self.ended(name, 1)), None)

    def names(self) -> dict[str, str]:
        """Names by key."""
        return {row.key: row.name for row in self._read(sa.select(ended.c.key, ended.c.name))}

    def sums(self, by: By, since: float) -> Iterator[tuple[float, Booking]]:
        """See `ledger.Kept`."""
        begin = sa.case((spans.c.start < since, since), else_=spans.c.start)
        columns = (*_KEYS[by], *_COUNTED)
        query = sa.select(*columns, sa.func.sum(spans.c.end - begin).label("seconds"))
        for row in self._read(query.where(spans.c.end > since).group_by(*columns).order_by(*columns)):
            yield row.seconds, _booking(row._mapping)  # pyright: ignore[reportPrivateUsage]

    def of_attempt(self, workload: str, attempt: int) -> Iterator[Span]:
        """See `ledger.Kept`."""
        chosen = sa.and_(spans.c.workload == workload, spans.c.attempt == attempt)
        for row in self._read(sa.select(spans).where(chosen).order_by(spans.c.id)):
            yield Span(row.start, row.end, _booking(row._mapping))  # pyright: ignore[reportPrivateUsage]

    def _read(self, query: sa.Select[*tuple[Any, ...]]) -> Sequence[sa.Row[Any]]:
        with self._connection.begin():
            return self._connection.execute(query).all()


def _ended_row(upto: int, workload: WorkloadState) -> dict[str, Any]:
    name, key = workload.demand.name, workload.demand.key
    return {"key": key, "name": name, "place": workload.order, "upto": upto, "record": dump(workload)}


def _span_row(upto: int, span: Span) -> dict[str, Any]:
    booking = span.booking
    fields = {**booking.account._asdict(), **booking._asdict()}
    del fields["account"]
    return fields | {"upto": upto, "start": span.start, "end": span.end}


def _booking(row: Any) -> Booking:
    held = row.get("workload", row.get("queue"))
    account = Account(row["pool"], row.get("unit", ""), row.get("queue"), held, row.get("attempt"))
    return Booking(account, row["use"], row["chips"], row["of"], row["price"], bool(row["emulated"]))


def newest(states: Iterable[WorkloadState], kept: Iterable[WorkloadState]) -> list[WorkloadState]:
    """Workloads of both, each once, the latest submitted first."""
    found = {each.key: each for each in (*kept, *states)}
    return sorted(found.values(), key=lambda each: each.order, reverse=True)
