"""What must hold after every event, in any order, under any crash; checked when the scheduler validates.

The numbers are those of `docs/architecture.md`. The checks read the state only, never the indexes that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stellwerk.scheduling.commands import Command, ProvisionUnit, StartAttempt
from stellwerk.scheduling.placement.units import serves, units_needed
from stellwerk.scheduling.policy import queues
from stellwerk.scheduling.state import State, WorkloadState


class Violation(AssertionError):
    """An invariant does not hold."""


def check(state: State, commands: Sequence[Command]) -> None:
    """Raise `Violation` naming every invariant that does not hold."""
    found = [
        *_held_once(state),
        *_whole(state),
        *_waiting_holds_nothing(state),
        *_whole_units_only(state, commands),
        *_within_quota(state),
        *_reasons(state),
        *_retries(state),
        *_pool_sizes(state, commands),
    ]
    if found:
        raise Violation("; ".join(found))


def _held_once(state: State) -> Iterator[str]:
    """1: no cell is held by two live attempts; what units say is held is what attempts hold."""
    held: dict[str, Counter[str]] = {}
    for workload in state.workloads.values():
        for grant in workload.live.grants if workload.live else ():
            unit = state.units.get(grant.unit)
            if unit is not None and unit.incarnation == grant.incarnation:
                held.setdefault(grant.unit, Counter())[workload.key] += grant.chips
    for unit in state.units.values():
        if sum(unit.held.values()) > unit.chips:
            yield f"1: {unit.name} has {unit.chips} chips and {unit.held} are held"
        if dict(held.get(unit.name, {})) != unit.held:
            yield f"1: {unit.name} says {unit.held}, attempts say {dict(held.get(unit.name, {}))}"


def _whole(state: State) -> Iterator[str]:
    """2: an attempt holds everything its option asks for, in one pool for each part."""
    for workload in state.workloads.values():
        attempt = workload.live
        for part in workload.demand.options[attempt.option].parts if attempt else ():
            grants = [grant for grant in attempt.grants if grant.role == part.role] if attempt else []
            pools = {grant.pool for grant in grants}
            if sum(grant.chips for grant in grants) != part.chips * part.count or len(pools) != 1:
                yield f"2: {workload.key} holds {grants} of {part}"
            pool = state.pools.get(next(iter(pools), ""))
            if pool is not None and serves(pool, part):
                whole, cell = units_needed(pool, part)
                if len(grants) != part.count * (whole + bool(cell)):
                    yield f"2: {workload.key} holds {len(grants)} cells of {part}"


def _waiting_holds_nothing(state: State) -> Iterator[str]:
    """3: a waiting workload holds nothing, nor does an ended one."""
    for unit in state.units.values():
        for key in unit.held:
            if state.workloads[key].live is None:
                yield f"3: {key} is {state.workloads[key].phase} and holds {unit.name}"


def _whole_units_only(state: State, commands: Sequence[Command]) -> Iterator[str]:
    """4: what is handed out stands on units that are whole, in their present incarnation."""
    for start in commands:
        if not isinstance(start, StartAttempt):
            continue
        for grant in start.grants:
            unit = state.units.get(grant.unit)
            if unit is None or unit.phase != "up" or unit.incarnation != grant.incarnation or unit.hosts_down:
                yield f"4: {start.workload} was given {grant.unit}/{grant.incarnation}, which is {unit}"


def _within_quota(state: State) -> Iterator[str]:
    """5: no queue was given more than its quota and what it may borrow (a lowered quota stops nothing that runs)."""
    for queue in state.queues.values():
        held = queues.usage(state, queue.name)
        newest = max((w.live.began for w in _holders(state, queue.name) if w.live), default=0.0)
        for accelerator, quota in queue.quota or ():
            if held[accelerator] > quota + (queue.borrow or 0) and newest >= state.now:
                yield f"5: queue {queue.name} holds {held[accelerator]} of {accelerator}"


def _holders(state: State, queue: str) -> Iterator[WorkloadState]:
    return (workload for workload in state.workloads.values() if workload.demand.queue == queue)


def _reasons(state: State) -> Iterator[str]:
    """7: every waiting workload has a reason for each option."""
    for workload in state.workloads.values():
        complete = len(workload.reasons) == len(workload.demand.options) and all(workload.reasons)
        if workload.phase == "waiting" and not complete:
            yield f"7: {workload.key} waits with reasons {workload.reasons}"


def _retries(state: State) -> Iterator[str]:
    """8: infrastructure failures never use up the user's retries."""
    for workload in state.workloads.values():
        own = sum(1 for attempt in workload.attempts if attempt.cause in ("user-error", "out-of-memory"))
        if workload.failures != own:
            yield f"8: {workload.key} failed {own} times by itself, and {workload.failures} are counted"


def _pool_sizes(state: State, commands: Sequence[Command]) -> Iterator[str]:
    """A pool is never grown beyond its maximum."""
    sizes = Counter(unit.pool for unit in state.units.values())
    for name in {command.pool for command in commands if isinstance(command, ProvisionUnit)}:
        if sizes[name] > state.pools[name].maximum:
            yield f"pool {name} was grown to {sizes[name]} of {state.pools[name].maximum}"
