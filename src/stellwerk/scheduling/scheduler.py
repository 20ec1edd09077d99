"""The scheduler: events in, commands out, nothing else.

`handle` first folds the event into the state (`apply`), then runs one cycle over it, which reads as its phases:

1. limits      end what has waited, started, run or cost for too long
2. placement   in order of the queue, give each waiting workload everything one open option asks for, or nothing;
               of what still waits, say why, per option, and make the units it lacks
3. pools       bring every pool to the size it should have; rebuild broken units that nobody holds
4. wake        ask to be woken when time alone will change an answer

A workload that is blocked closes the pools of its open options to all that come after it, so the order is kept
and nobody starves. There is no clock, no I/O and no randomness here: the time is in the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stellwerk.scheduling import limits, reasons
from stellwerk.scheduling.apply import apply
from stellwerk.scheduling.commands import Command, RecycleUnit, StartAttempt, WakeAt
from stellwerk.scheduling.evaluation import Verdict, judge
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.invariants import check
from stellwerk.scheduling.lifecycle import end, grant
from stellwerk.scheduling.model import Demand, Grant, Option, Reason
from stellwerk.scheduling.placement.units import Supply, memory_of, place, serves
from stellwerk.scheduling.policy import fallback, provisioning, queues
from stellwerk.scheduling.state import State, WorkloadState

_MENDED_BY_UNITS = frozenset({"capacity", "provisioning", "shape", "reserved", "broken"})


class Scheduler:
    """Decides for one fleet. With `validate` every invariant is checked after every event (slow; for tests)."""

    def __init__(self, *, validate: bool = False, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self._validate = validate

    def handle(self, event: Event) -> list[Command]:
        """Fold `event` into the state and decide; the commands are to be carried out in order."""
        commands = list(apply(self.state, event))
        commands.extend(self._cycle())
        if self._validate:
            check(self.state, commands)
        return commands

    def evaluate(self, demand: Demand, at: float) -> list[Verdict]:
        """What would come of each option if `demand` were submitted at `at`; changes nothing."""
        supply = Supply.of(self.state)
        for workload in queues.waiting_in_order(self.state):
            if workload.demand.priority >= demand.priority:
                _close(self.state, supply, workload, self._opens(workload))
        return [judge(self.state, demand, index, supply, at) for index in range(len(demand.options))]

    def _cycle(self) -> Iterator[Command]:
        yield from limits.enforce(self.state)
        yield from self._place_waiting()
        yield from provisioning.resize(self.state)
        yield from self._rebuild()
        yield from self._wake()

    def _place_waiting(self) -> Iterator[Command]:
        supply, claimed = Supply.of(self.state), Counter[str]()
        for workload in queues.waiting_in_order(self.state):
            start = self._try_options(workload, supply)
            if start is not None:
                yield start
            elif workload.phase == "waiting":
                yield from self._provision_for(workload, supply, claimed)
                _close(self.state, supply, workload, self._opens(workload))

    def _provision_for(self, workload: WorkloadState, supply: Supply, claimed: Counter[str]) -> Iterator[Command]:
        """Make the units that the first open option of a blocked workload lacks, if that would let it start."""
        opens = self._opens(workload)
        for index, why in enumerate(workload.reasons):
            if opens[index] > self.state.now or not {reason.code for reason in why} <= _MENDED_BY_UNITS:
                continue
            option = workload.demand.options[index]
            orders = list(provisioning.complete(self.state, option, supply, claimed))
            if orders:
                yield from orders
                now = reasons.waiting(self.state, option, supply)
                workload.reasons = (*workload.reasons[:index], now, *workload.reasons[index + 1 :])
            return

    def _try_options(self, workload: WorkloadState, supply: Supply) -> StartAttempt | None:
        state, demand = self.state, workload.demand
        never = self._never(workload)
        if all(never) and not workload.attempts:
            message = never[0].message if never[0] else ""
            end(workload, state.now, "failed", "impossible", message)
            return None
        opens = self._opens(workload)
        why: list[tuple[Reason, ...]] = []
        for index, option in enumerate(demand.options):
            found = self._judge(workload, option, opens[index], supply, never[index])
            if not isinstance(found, tuple):
                grants = found.grants
                supply.take(grants, memory_of(state, grants))
                return grant(state, workload, index, grants)
            why.append(found)
        workload.reasons = tuple(why)
        return None

    def _judge(
        self, workload: WorkloadState, option: Option, opens: float, supply: Supply, never: Reason | None
    ) -> _Placed | tuple[Reason, ...]:
        state = self.state
        if never is not None:
            return (never,)
        if workload.hold_until > state.now:
            return (reasons.held_back(workload.hold_until, state.now, workload.setbacks),)
        queue = queues.queue_of(state, workload.demand.queue)
        held = queues.usage(state, workload.demand.queue)
        if queue is not None and (over := queues.over_quota(queue, held, option)):
            return (over,)
        grants = place(state, option, supply)
        if grants is None:
            return reasons.waiting(state, option, supply)
        if supply.memory is not None and (needed := memory_of(state, grants)) > supply.memory:
            return (reasons.memory(state, needed, supply.memory),)
        if opens > state.now:
            return (reasons.not_open(opens, state.now, workload.demand.options[0].short),)
        return _Placed(grants)

    def _never(self, workload: WorkloadState) -> list[Reason | None]:
        state, demand = self.state, workload.demand
        queue = queues.queue_of(state, demand.queue)
        if queue is None:
            return [reasons.no_queue(state, demand.queue)] * len(demand.options)
        never = [reasons.impossible(state, option) for option in demand.options]
        for index, option in enumerate(demand.options):
            over = queues.over_quota(queue, Counter(), option)
            never[index] = never[index] or over
        return never

    def _opens(self, workload: WorkloadState) -> list[float]:
        never = frozenset(i for i, reason in enumerate(self._never(workload)) if reason is not None)
        return fallback.opens_at(workload.demand, workload.waiting_since, never)

    def _rebuild(self) -> Iterator[Command]:
        state = self.state
        for unit in state.units.values():
            if unit.phase == "broken" and not unit.held and not unit.leaving and unit.pool in state.pools:
                incarnation = state.incarnations[unit.name] + 1
                state.incarnations[unit.name] = incarnation
                unit.phase, unit.incarnation, unit.since = "recycling", incarnation, state.now
                yield RecycleUnit(unit.pool, unit.name, incarnation)

    def _wake(self) -> Iterator[Command]:
        times = [time for time in self._times() if time > self.state.now]
        wake = min(times, default=None)
        if wake is not None and wake != self.state.wake_at:
            yield WakeAt(wake)
        self.state.wake_at = wake

    def _times(self) -> Iterator[float]:
        state = self.state
        yield from limits.times(state)
        if (release := provisioning.next_release(state)) is not None:
            yield release
        yield from (cool_down.until for cool_down in state.cool_downs.values())
        for workload in state.workloads.values():
            if workload.phase == "waiting":
                yield workload.hold_until
                yield from self._opens(workload)


class _Placed:
    """Grants for an option that is open and fits."""

    __slots__ = ("grants",)

    def __init__(self, grants: tuple[Grant, ...]) -> None:
        self.grants = grants


def _close(state: State, supply: Supply, workload: WorkloadState, opens: list[float]) -> None:
    """Close the pools of the open options of a blocked workload to all that come after it."""
    for option, opens_at, why in zip(workload.demand.options, opens, workload.reasons, strict=True):
        if opens_at > state.now or {reason.code for reason in why} & {"quota", "impossible"}:
            continue
        short_of_memory = any(reason.code == "capacity" and "memory_left" in dict(reason.numbers) for reason in why)
        for pool in state.pools.values():
            if (short_of_memory and pool.footprint) or any(serves(pool, part) for part in option.parts):
                supply.shut.setdefault(pool.name, workload.demand.name)
