"""Units that a provider leaves for a while only: flex-start machines, seven days at most.

A pool's `lifetime` counts from the moment that a unit is whole. Some minutes before its end (`timers.notice`) the unit
is treated as if the provider had given notice: it is handed out no more, its holders are told and have that time to
save their state, which costs none of their retries, and when it is left it is given back. Who needs it is then
provisioned a new one.

Limits: work that is longer than the lifetime and saves no checkpoint begins anew each time; nothing here keeps it off
such a pool.
"""

from __future__ import annotations

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.lifecycle import stop
from stellwerk.scheduling.policy import elastic
from stellwerk.scheduling.state import UnitState
from stellwerk.scheduling.timers import notice


def over(book: Book, unit: UnitState) -> None:
    """The time of a unit is over."""
    pool = book.state.pools.get(unit.pool)
    if unit.phase == "up" and pool is not None and pool.lifetime is not None:
        leave(book, unit, "its time is over", notice(pool.lifetime))


def leave(book: Book, unit: UnitState, detail: str, grace: float) -> None:
    """A unit will be taken away: it is handed out no more, and whoever holds it has `grace` seconds."""
    if unit.leaving:
        return
    unit.leaving, unit.detail = True, detail
    book.unit_changed(unit)
    stop_holders(book, unit, grace)


def stop_holders(book: Book, unit: UnitState, grace: float) -> None:
    """Stop every attempt that holds some of a unit, or let an elastic one leave it; it is not the fault of any."""
    for key in list(unit.held):
        workload = book.state.workloads[key]
        if workload.phase != "stopping" and not elastic.give_up(book, workload, unit.name, grace):
            stop(book, workload, "infrastructure", grace)
