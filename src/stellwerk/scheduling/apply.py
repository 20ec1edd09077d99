"""The fold: what each event changes in the state, and what follows from it at once.

News about an attempt or an incarnation that has been replaced is ignored. Orders that follow from an event without any
choice (stop the gang that lost a host) are yielded here; everything that is a choice is the cycle's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import Command
from stellwerk.scheduling.lifecycle import attempt_ended, end, stop
from stellwerk.scheduling.policy.provisioning import COOL_DOWN
from stellwerk.scheduling.state import CoolDown, State, UnitState, WorkloadState


def apply(state: State, event: ev.Event) -> Iterator[Command]:
    """Fold `event` into `state`; time never runs backwards, whatever clocks say."""
    state.now = max(state.now, event.at)
    yield from _apply(event, state)


@singledispatch
def _apply(event: ev.Event, state: State) -> Iterator[Command]:
    raise TypeError(f"{type(event).__name__} is not an event")


@_apply.register
def _(event: ev.Submitted, state: State) -> Iterator[Command]:
    if event.demand.key not in state.workloads:
        state.submissions += 1
        state.workloads[event.demand.key] = WorkloadState(
            event.demand, state.now, state.submissions, waiting_since=state.now
        )
    yield from ()


@_apply.register
def _(event: ev.StopRequested, state: State) -> Iterator[Command]:
    workload = state.workloads.get(event.workload)
    if workload is None or workload.phase == "ended":
        return
    if workload.phase == "waiting":
        end(workload, state.now, "stopped", "stopped-by-user", "stopped while it waited")
    else:
        yield stop(state, workload, "stopped-by-user", event.grace)


@_apply.register
def _(event: ev.FleetChanged, state: State) -> Iterator[Command]:
    state.fleet = event.fleet
    state.pools = {pool.name: pool for pool in event.fleet.pools}
    state.queues = {queue.name: queue for queue in event.fleet.queues}
    yield from ()


@_apply.register
def _(event: ev.UnitAppeared, state: State) -> Iterator[Command]:
    unit = state.units.get(event.unit)
    if unit is None:
        pool = state.pools.get(event.pool)
        if pool is not None and event.incarnation > state.incarnations.get(event.unit, 0):
            state.incarnations[event.unit] = event.incarnation
            state.units[event.unit] = UnitState(
                event.unit,
                pool.name,
                event.incarnation,
                "up",
                pool.chips,
                pool.hosts,
                state.now,
                idle_since=state.now,
            )
    elif event.incarnation == unit.incarnation and unit.phase in ("provisioning", "recycling"):
        unit.phase, unit.since, unit.idle_since, unit.detail = "up", state.now, state.now, ""
        unit.hosts_down.clear()
    yield from ()


@_apply.register
def _(event: ev.HostChanged, state: State) -> Iterator[Command]:
    unit = _current(state, event.unit, event.incarnation)
    if unit is None:
        return
    if event.up:
        unit.hosts_down.discard(event.host)
        return
    unit.hosts_down.add(event.host)
    if unit.phase == "up":
        unit.phase, unit.since = "broken", state.now
        unit.detail = event.detail or f"host {event.host} lost"
        yield from _stop_holders(state, unit, 0.0)


@_apply.register
def _(event: ev.DrainNoticed, state: State) -> Iterator[Command]:
    unit = _current(state, event.unit, event.incarnation)
    if unit is not None and not unit.leaving:
        unit.leaving, unit.detail = True, "will be taken away"
        yield from _stop_holders(state, unit, max(0.0, event.deadline - state.now))


@_apply.register
def _(event: ev.UnitGone, state: State) -> Iterator[Command]:
    unit = _current(state, event.unit, event.incarnation)
    if unit is not None:
        yield from _stop_holders(state, unit, 0.0)
        del state.units[event.unit]


@_apply.register
def _(event: ev.ProvisionRefused, state: State) -> Iterator[Command]:
    unit = _current(state, event.unit, event.incarnation)
    if unit is not None and unit.phase in ("provisioning", "recycling"):
        del state.units[event.unit]
    if event.pool in state.pools:
        state.cool_downs[event.pool] = CoolDown(state.now + COOL_DOWN, event.code, event.detail)
    yield from ()


@_apply.register
def _(event: ev.AttemptStarted, state: State) -> Iterator[Command]:
    workload = _live(state, event.workload, event.attempt)
    if workload is not None and workload.phase == "starting":
        workload.phase = "running"
        workload.attempts[-1].running = state.now
    yield from ()


@_apply.register
def _(event: ev.CheckpointReported, state: State) -> Iterator[Command]:
    workload = _live(state, event.workload, event.attempt)
    if workload is not None:
        workload.checkpoint, workload.checkpoint_at = event.uri, state.now
        workload.checkpoint_step = event.step
        workload.setbacks = 0
    yield from ()


@_apply.register
def _(event: ev.AttemptEnded, state: State) -> Iterator[Command]:
    workload = _live(state, event.workload, event.attempt)
    if workload is not None:
        attempt_ended(state, workload, event)
    yield from ()


@_apply.register
def _(event: ev.LoadReported, state: State) -> Iterator[Command]:
    yield from ()


@_apply.register
def _(event: ev.Woke, state: State) -> Iterator[Command]:
    state.wake_at = None
    state.cool_downs = {name: cool for name, cool in state.cool_downs.items() if cool.until > state.now}
    yield from ()


def _current(state: State, name: str, incarnation: int) -> UnitState | None:
    unit = state.units.get(name)
    return unit if unit is not None and unit.incarnation == incarnation else None


def _live(state: State, key: str, attempt: int) -> WorkloadState | None:
    workload = state.workloads.get(key)
    if workload is None or workload.live is None or workload.attempts[-1].number != attempt:
        return None
    return workload


def _stop_holders(state: State, unit: UnitState, grace: float) -> Iterator[Command]:
    for key in list(unit.held):
        workload = state.workloads[key]
        if workload.phase != "stopping":
            yield stop(state, workload, "infrastructure", grace)
