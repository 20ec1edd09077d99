"""The reasons of a waiting workload, option by option, in the state as it is; asking changes nothing."""

from __future__ import annotations

from stellwerk.scheduling import reasons
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.dispatch import propose
from stellwerk.scheduling.index import Lane, WaitClass
from stellwerk.scheduling.model import Reason
from stellwerk.scheduling.placement.index import INF, Need
from stellwerk.scheduling.policy import backfill, fallback, queues, sjf
from stellwerk.scheduling.state import WorkloadState


def why(book: Book, workload: WorkloadState) -> tuple[tuple[Reason, ...], ...]:
    """For each option at least one reason why it has not been granted."""
    found = book.class_of(workload.demand)
    opens = fallback.opens_at(workload, found.never)
    return tuple(option(book, found, workload, index, opens[index]) for index in range(len(found.never)))


def option(book: Book, found: WaitClass, workload: WorkloadState, index: int, opens: float) -> tuple[Reason, ...]:
    """Why one option of a workload has not been granted; empty when it could be now."""
    now = book.state.now
    if (never := found.never[index]) is not None:
        return (never,)
    if workload.hold_until > now:
        return (reasons.held_back(workload.hold_until, now, workload.setbacks),)
    if (over := _quota(book, found, workload, index)) is not None:
        return (over,)
    short = _short(book, found, workload, index)
    if short:
        return short
    if (memory := _memory(book, found, workload, index)) is not None:
        return (memory,)
    if opens > now:
        return (reasons.not_open(opens, now, workload.demand.options[0].short),)
    return _claimed(book, found, workload, index)


def _claimed(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> tuple[Reason, ...]:
    """Room is being made for somebody who comes before."""
    if not book.claims or not found.skips:
        return ()
    place = book.place_of(found, workload)
    for part in found.shape.plans[index]:
        others = [(lane, sjf.claimant(book, lane, place)) for lane, _ in part]
        if all(other is not None for _, other in others):
            return tuple(
                reasons.reserved(lane.pool, other.demand.name, None, book.state.now, (("pool", lane.pool.name),))
                for lane, other in others
                if other is not None
            )
    return ()


def without_quota(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> tuple[Reason, ...]:
    """What else keeps an option that a quota keeps from starting."""
    memory = _memory(book, found, workload, index)
    return _short(book, found, workload, index) or ((memory,) if memory is not None else ())


def _quota(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> Reason | None:
    chips, account = found.shape.chips[index], found.account
    if not account.quota:
        return None
    if queues.held_back(found, workload, chips, book.state.now) is None:
        return None
    for accelerator, needed in chips.items():
        free = queues.available(account, accelerator)
        if free is not None and needed > free:
            return queues.over(account, accelerator, needed)
    return queues.kept(account, next(name for name in chips if name in account.quota))


def _short(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> tuple[Reason, ...]:
    """One reason for each pool that falls short; none when the option can be placed."""
    plan = found.shape.plans[index]
    short: list[Reason] = []
    for part in plan:
        of_part = [_short_of(book, lane, need, found, workload, index) for lane, need in part]
        if None not in of_part:
            short.extend(reason for reason in of_part if reason is not None)
    if not short and len(plan) > 1 and propose(book, found, workload, index, ask=True) is None:
        option = workload.demand.options[index]
        lanes = dict.fromkeys(lane for part in plan for lane, _ in part)
        short.append(reasons.not_together(option, sum(lane.places.free for lane in lanes)))
    return tuple(dict.fromkeys(short))


def _memory(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> Reason | None:
    if book.memory is None:
        return None
    grants = propose(book, found, workload, index, ask=True)
    needed = book.memory_of(grants or ())
    if needed > book.memory:
        return reasons.memory(book.state, needed, book.memory)
    entry = found.current() if found.entry is not None else None
    if needed and book.claim is not None and (entry is None or book.claim < entry):
        first = book.claim[4].line.first()
        if first is not None and first is not workload:
            return reasons.memory_reserved(first.demand.name, needed, book.memory)
    return None


def _short_of(
    book: Book, lane: Lane, need: Need, found: WaitClass, workload: WorkloadState, index: int
) -> Reason | None:
    kept = backfill.kept(book, lane, found, workload, index, ask=True)
    if lane.places.fits(need, kept):
        return None
    units = list(book.members[lane.pool.name].values())
    free = lane.places.whole_free()
    numbers = (("pool", lane.pool.name), ("needed", need.units), ("free", free), ("units", len(units)))
    if lane.places.fits(need):
        return _reserved(book, lane, numbers)
    return _missing(book, lane, need, numbers, free)


def _reserved(book: Book, lane: Lane, numbers: reasons.Numbers) -> Reason:
    top = lane.top()
    assert top is not None
    reservation = backfill.standing(book, lane, top)
    until = None if reservation.at == INF else reservation.at
    return reasons.reserved(lane.pool, reservation.holder.demand.name, until, book.state.now, numbers)


def _missing(book: Book, lane: Lane, need: Need, numbers: reasons.Numbers, free: int) -> Reason:
    """What there is too little of, from the most hopeful to the least."""
    state, pool = book.state, lane.pool
    units = list(book.members[pool.name].values())
    head = reasons.needs(pool, need.units, free, len(units))
    coming = sum(1 for unit in units if unit.phase == "provisioning")
    broken = sum(1 for unit in units if unit.phase in ("broken", "recycling"))
    if coming and free + coming >= need.units:
        message = f"{head}, {coming} on the way (a unit takes {pool.provision:.0f} s)"
        return Reason("provisioning", message, (*numbers, ("provisioning", coming)))
    cool = state.cool_downs.get(pool.name)
    if cool is not None and cool.until > state.now:
        code = "stock-out" if cool.code == "stock-out" else "cool-down"
        message = f"{head}, and the provider refused more ({cool.code}: {cool.detail})"
        return Reason(code, message, (*numbers, ("until", cool.until)))
    if broken and free + broken >= need.units:
        return Reason("broken", f"{head}, {broken} being rebuilt", (*numbers, ("broken", broken)))
    chips = need.part.chips * need.part.count
    if lane.places.free >= chips:
        return reasons.shape(pool, chips, lane.places.free, lane.places.largest(), numbers)
    return reasons.capacity(state, pool, head, units, numbers)
