"""What must hold after every event, in any order, under any crash; checked when the scheduler validates.

The numbers are those of `docs/architecture.md`. All but the last read the state only, never the indexes that made the
decision; the last makes all indexes anew from the state and compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stellwerk.scheduling import explain
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.commands import Command, ProvisionUnit, StartAttempt
from stellwerk.scheduling.index import Lane, Reservation
from stellwerk.scheduling.placement.index import INF
from stellwerk.scheduling.policy import backfill, queues
from stellwerk.scheduling.state import State


class Violation(AssertionError):
    """An invariant does not hold."""


def check(book: Book, commands: Sequence[Command]) -> None:
    """Raise `Violation` naming every invariant that does not hold."""
    state = book.state
    found = [
        *_held_once(state),
        *_whole(state),
        *_waiting_holds_nothing(state),
        *_whole_units_only(state, commands),
        *_within_quota(book),
        *_no_circle(book),
        *_promises(book),
        *_reasons(book),
        *_retries(state),
        *_pool_sizes(state, commands),
        *_indexes(book),
    ]
    if found:
        raise Violation("; ".join(found))


def _held_once(state: State) -> Iterator[str]:
    """1: no cell is held by two live attempts; what units say is held is what attempts hold."""
    held: dict[str, Counter[str]] = {}
    for workload in state.workloads.values():
        for grant in workload.live.grants + workload.live.leaving if workload.live else ():
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
        if attempt is None:
            continue
        option = workload.demand.options[attempt.option]
        for part in option.parts:
            grants = [grant for grant in attempt.grants if grant.role == part.role]
            chips = sum(grant.chips for grant in grants)
            groups, rest = divmod(chips, part.chips)
            low, high = option.minimum or part.count, option.maximum or part.count
            if rest or not low <= groups <= high or len({grant.pool for grant in grants}) != 1:
                yield f"2: {workload.key} holds {grants} of {part}"


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


def _within_quota(book: Book) -> Iterator[str]:
    """5: no queue was given more than its quota and what it may borrow (a lowered quota stops nothing that runs)."""
    for name, accelerators in _given(book).items():
        account = book.accounts[name]
        for accelerator in sorted(accelerators & account.quota.keys()):
            held, most = account.held.get(accelerator, 0), queues.most(account, accelerator)
            if most is not None and held > most:
                yield f"5: queue {name} holds {held} of {accelerator}, and may hold {most}"
            cohort = account.cohort
            lent = sum(
                max(0, each.held.get(accelerator, 0) - each.guaranteed.get(accelerator, 0))
                for each in cohort.accounts
                if accelerator in each.quota
            )
            if lent > cohort.lendable[accelerator] and held > account.guaranteed[accelerator]:
                yield f"5: {lent} of {accelerator} are lent, of {cohort.lendable[accelerator]}"


def _no_circle(book: Book) -> Iterator[str]:
    """5: where a cohort holds nothing at all, quota does not hold back everybody in it who waits and could ever run."""
    for cohort in dict.fromkeys(account.cohort for account in book.accounts.values()):
        if not cohort.parked or any(any(account.held.values()) for account in cohort.accounts):
            continue
        waiting = [found for account in cohort.accounts for found in (*account.classes, *account.parked)]
        waiting += cohort.parked
        possible = [found for found in waiting if None in found.never]
        firsts = [(found, first) for found in possible if (first := found.line.first()) is not None]
        now = book.state.now
        if firsts and all(queues.held_back(each, first, each.shape.chips[0], now) for each, first in firsts):
            yield f"5: nothing is held, and {[found.line.first() for found in cohort.parked]} wait for each other"


def _given(book: Book) -> dict[str, set[str]]:
    """The queues that something of was started in this turn, and the accelerators that it holds."""
    found: dict[str, set[str]] = {}
    for each in book.out:
        if isinstance(each, StartAttempt):
            demand = book.state.workloads[each.workload].demand
            parts = demand.options[each.option].parts
            found.setdefault(demand.queue, set()).update(part.accelerator for part in parts)
    return found


def _promises(book: Book) -> Iterator[str]:
    """6: what was started in this turn delays nobody to whom a start was promised in it."""
    for lane in book.lanes.values():
        blocked = lane.blocked
        if (
            blocked is None
            or blocked.turn is not book.out
            or blocked.at == INF
            or blocked.holder.promise != blocked.at
            or blocked.holder.phase != "waiting"
        ):
            continue
        top = lane.top()
        if top is not None and top.first is blocked.holder and _passed(book, lane, blocked):
            now = backfill.reserved_for(book, lane, top).at
            if now > blocked.at:
                yield f"6: {blocked.holder.key} was promised {blocked.at} and would start at {now}"


def _passed(book: Book, lane: Lane, kept: Reservation) -> bool:
    """Whether somebody who comes after the holder was started in this turn on what is kept, for longer than allowed."""
    place = book.place_of(book.class_of(kept.holder.demand), kept.holder)
    for each in book.out:
        if isinstance(each, StartAttempt) and any(grant.pool == lane.pool.name for grant in each.grants):
            other = book.state.workloads[each.workload]
            ends = other.attempts[-1].expected
            if (ends is None or ends > kept.at) and book.place_of(book.class_of(other.demand), other) > place:
                return True
    return False


def _reasons(book: Book) -> Iterator[str]:
    """7: every waiting workload has a reason for each option, and nobody who could start waits."""
    for workload in book.state.workloads.values():
        if workload.phase == "waiting":
            why = explain.why(book, workload)
            if len(why) != len(workload.demand.options) or not all(why):
                yield f"7: {workload.key} waits with reasons {why}"
            if workload.reasons and workload.reasons != why:
                yield f"7: {workload.key} waits because {why}, and is said to because {workload.reasons}"


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


def _indexes(book: Book) -> Iterator[str]:
    """The indexes are what the state says: all of them, made anew, are the same."""
    fresh = Book(book.state, book.schedule_hook, book.settle_hook)
    for name, lane in book.lanes.items():
        other = fresh.lanes[name]
        if lane.places.content(book.state.now) != other.places.content(book.state.now):
            yield f"index: places of {name}: {lane.places.content(book.state.now)}"
        places = [found.current()[:4] for found in lane.entered() if found.entry is not None]
        top = lane.top()
        if (top[:4] if top is not None else None) != min(places, default=None):
            yield f"index: first of {name} is {top}"
        if set(book.members[name]) != set(fresh.members[name]):
            yield f"index: members of {name}"
    for name, account in fresh.accounts.items():
        held = {key: value for key, value in book.accounts[name].held.items() if value}
        if held != {key: value for key, value in account.held.items() if value}:
            yield f"index: queue {name} holds {account.held}, not {held}"
    if (book.memory, set(book.waiting), set(book.held)) != (fresh.memory, set(fresh.waiting), set(fresh.held)):
        yield "index: memory, waiting or held back"
    for key, found in book.catalogue.classes.items():
        lined = [workload.key for workload in found.line]
        again = fresh.class_of(next(iter(found.line)).demand) if lined else None
        if again is not None and lined != [workload.key for workload in again.line]:
            yield f"index: line {key}: {lined}"
        if found.line.size != len(lined):
            yield f"index: line {key} has {len(lined)} members, not {found.line.size}"
    units = {unit: key for key, names in book.meant.items() for unit in names}
    if units != {unit.name: unit.meant for unit in book.state.units.values() if unit.meant is not None}:
        yield f"index: units are meant for {units}"
