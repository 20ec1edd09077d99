"""The fold: what each event changes in the state, and what follows from it at once.

News about an attempt or an incarnation that has been replaced is ignored. Orders that follow from an event without any
choice (stop the gang that lost a host) are given here; everything that is a choice is the cycle's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stellwerk.scheduling import events as ev
from stellwerk.scheduling import plain
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.dispatch import arrived
from stellwerk.scheduling.lifecycle import attempt_ended, end, stop
from stellwerk.scheduling.policy import elastic, fallback, lifetime, provisioning
from stellwerk.scheduling.state import CoolDown, UnitState, WorkloadState, workload_of


def submitted(book: Book, event: ev.Submitted) -> None:
    """A workload was declared: it starts at once if nobody waits before it, else it waits."""
    state, demand = book.state, event.demand
    if demand.key in state.workloads:
        return
    state.submissions += 1
    state.workloads[demand.key] = workload = workload_of(demand, state.now, state.submissions, state.now)
    arrived(book, workload)


def _stop_requested(book: Book, event: ev.StopRequested) -> None:
    workload = book.state.workloads.get(event.workload)
    if workload is None or workload.phase == "ended":
        return
    if workload.phase == "waiting":
        end(book, workload, "stopped", "stopped-by-user", "stopped while it waited")
    else:
        stop(book, workload, "stopped-by-user", event.grace)


def _fleet_changed(book: Book, event: ev.FleetChanged) -> None:
    state = book.state
    state.fleet = event.fleet
    state.pools = {pool.name: pool for pool in event.fleet.pools}
    state.queues = {queue.name: queue for queue in event.fleet.queues}
    state.shares = {name: share for name, share in state.shares.items() if name in state.queues}
    book.rebuild()
    for workload in list(book.waiting.values()):
        never = book.class_of(workload.demand).never
        if None not in never and not workload.attempts:
            end(book, workload, "failed", "impossible", never[0].message if never[0] else "")
    if book.fair:
        for account in list(book.accounts.values()):
            book.weigh(account)


def _unit_appeared(book: Book, event: ev.UnitAppeared) -> None:
    state, unit = book.state, book.state.units.get(event.unit)
    if unit is None:
        pool = state.pools.get(event.pool)
        if pool is None or event.incarnation <= state.incarnations.get(event.unit, 0):
            return
        state.incarnations[event.unit] = event.incarnation
        unit = UnitState(event.unit, pool.name, event.incarnation, "up", pool.chips, pool.hosts, state.now)
        unit.idle_since = state.now
        state.units[event.unit] = unit
        book.unit_changed(unit)
    elif event.incarnation == unit.incarnation and unit.phase in ("provisioning", "recycling"):
        unit.phase, unit.since, unit.idle_since, unit.detail = "up", state.now, state.now, ""
        unit.hosts_down.clear()
        book.unit_changed(unit)


def _host_changed(book: Book, event: ev.HostChanged) -> None:
    unit = _current(book, event.unit, event.incarnation)
    if unit is None:
        return
    if event.up:
        unit.hosts_down.discard(event.host)
        return
    unit.hosts_down.add(event.host)
    if unit.phase == "up":
        unit.phase, unit.since = "broken", book.state.now
        unit.detail = event.detail or f"host {event.host} lost"
        book.unit_changed(unit)
        lifetime.stop_holders(book, unit, 0.0)


def _drain_noticed(book: Book, event: ev.DrainNoticed) -> None:
    unit = _current(book, event.unit, event.incarnation)
    if unit is not None:
        lifetime.leave(book, unit, "will be taken away", max(0.0, event.deadline - book.state.now))


def _unit_gone(book: Book, event: ev.UnitGone) -> None:
    unit = _current(book, event.unit, event.incarnation)
    if unit is not None:
        lifetime.stop_holders(book, unit, 0.0)
        book.unit_gone(unit)


def _provision_refused(book: Book, event: ev.ProvisionRefused) -> None:
    state, unit = book.state, _current(book, event.unit, event.incarnation)
    meant = unit.meant if unit is not None else None
    if unit is not None and unit.phase in ("provisioning", "recycling"):
        book.unit_gone(unit)
    if event.pool in state.pools:
        until = state.now + provisioning.cool_down(event.code)
        state.cool_downs[event.pool] = CoolDown(until, event.code, event.detail)
        book.timers.set(("pool", event.pool), until)
        book.touch(book.lanes[event.pool])
        if meant is not None and meant in state.workloads:
            fallback.refused(book, state.workloads[meant], event.pool, event.code)


def _attempt_started(book: Book, event: ev.AttemptStarted) -> None:
    workload = _live(book, event.workload, event.attempt)
    if workload is not None and workload.phase == "starting":
        workload.phase = "running"
        workload.attempts[-1].running = book.state.now
        book.schedule(workload)


def _checkpoint_reported(book: Book, event: ev.CheckpointReported) -> None:
    workload = _live(book, event.workload, event.attempt)
    if workload is None:
        return
    now, attempt = book.state.now, workload.attempts[-1]
    since = attempt.running if attempt.running is not None else attempt.began
    if workload.checkpoint_at is not None:
        since = max(since, workload.checkpoint_at)
    workload.worked += max(0.0, now - since)
    workload.checkpoint, workload.checkpoint_at = event.uri, now
    workload.checkpoint_step = event.step
    workload.setbacks = 0


def _attempt_ended(book: Book, event: ev.AttemptEnded) -> None:
    workload = book.state.workloads.get(event.workload)
    if workload is None or workload.phase in ("waiting", "ended"):
        return
    attempt = workload.attempts[-1]
    if attempt.number == event.attempt and not (book.bare and plain.end(book, workload, attempt, event)):
        attempt_ended(book, workload, attempt, event)


def _attempt_resized(book: Book, event: ev.AttemptResized) -> None:
    workload = _live(book, event.workload, event.attempt)
    if workload is not None and workload.attempts[-1].resizes == event.resize:
        elastic.resized(book, workload)


def _load_reported(book: Book, event: ev.LoadReported) -> None:
    workload = book.state.workloads.get(event.workload)
    if workload is not None and workload.phase != "ended":
        elastic.load_reported(book, workload, event.load)


def _woke(book: Book, event: ev.Woke) -> None:
    book.state.wake_at = None


def _snapshot_taken(book: Book, event: ev.SnapshotTaken) -> None:
    state = book.state
    state.workloads = {key: each for key, each in state.workloads.items() if each.phase != "ended"}
    book.rebuild()


def _current(book: Book, name: str, incarnation: int) -> UnitState | None:
    unit = book.state.units.get(name)
    return unit if unit is not None and unit.incarnation == incarnation else None


def _live(book: Book, key: str, attempt: int) -> WorkloadState | None:
    workload = book.state.workloads.get(key)
    if workload is None or workload.phase in ("waiting", "ended") or workload.attempts[-1].number != attempt:
        return None
    return workload


FOLD: dict[type[Any], Callable[[Book, Any], None]] = {
    ev.StopRequested: _stop_requested,
    ev.FleetChanged: _fleet_changed,
    ev.UnitAppeared: _unit_appeared,
    ev.HostChanged: _host_changed,
    ev.UnitGone: _unit_gone,
    ev.ProvisionRefused: _provision_refused,
    ev.AttemptStarted: _attempt_started,
    ev.CheckpointReported: _checkpoint_reported,
    ev.LoadReported: _load_reported,
    ev.DrainNoticed: _drain_noticed,
    ev.AttemptResized: _attempt_resized,
    ev.Woke: _woke,
    ev.SnapshotTaken: _snapshot_taken,
}
"""What each kind of event does, but for the two that `fold` names."""


def fold(book: Book, event: ev.Event) -> None:
    """Fold an event into the state: those of which every workload has one are looked for first."""
    if isinstance(event, ev.AttemptEnded):
        _attempt_ended(book, event)
    elif isinstance(event, ev.Submitted):
        submitted(book, event)
    else:
        FOLD[type(event)](book, event)
