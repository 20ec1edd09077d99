"""The smallest change that would start a waiting workload now.

For each option that nothing but one thing keeps from starting, that thing: a larger quota, more units of a pool, the
end of one workload, more memory, or a time that passes by itself. Of all, what costs the least: a quota costs nothing,
units their price, a stopped workload what it would lose, and waiting is what remains. A workload that is reserved
against needs units of its own: what is kept for others is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from stellwerk.scheduling import explain
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.dispatch import propose
from stellwerk.scheduling.index import Lane, WaitClass
from stellwerk.scheduling.model import Reason
from stellwerk.scheduling.placement.index import Need
from stellwerk.scheduling.policy import backfill, preemption, queues
from stellwerk.scheduling.state import WorkloadState


@dataclass(frozen=True, slots=True)
class Change:
    """What would start option `option`: `kind` and a sentence; `amount` units, chips, bytes or seconds of `subject`.

    `price_per_hour` is in US dollars, None when unknown or when no money is spent.
    """

    kind: Literal["quota", "units", "stop", "memory", "wait"]
    option: int
    message: str
    subject: str
    amount: float
    price_per_hour: float | None = None
    lost: float = 0.0

    def to_json(self) -> dict[str, object]:
        """The listing's form."""
        return {
            "kind": self.kind,
            "option": self.option,
            "message": self.message,
            "subject": self.subject,
            "amount": self.amount,
            "price_per_hour": self.price_per_hour,
        }


def cheapest(book: Book, workload: WorkloadState) -> Change | None:
    """The change that costs the least, or None when no single one would do."""
    return min(changes(book, workload), key=_expense, default=None)


def changes(book: Book, workload: WorkloadState) -> Iterator[Change]:
    """Every single change that would start one of the options now."""
    found = book.class_of(workload.demand)
    for index, why in enumerate(explain.why(book, workload)):
        if found.never[index] is None:
            yield from _for_option(book, found, workload, index, why)


def _for_option(
    book: Book, found: WaitClass, workload: WorkloadState, index: int, why: tuple[Reason, ...]
) -> Iterator[Change]:
    codes = {reason.code for reason in why}
    numbers = dict(why[0].numbers) if why else {}
    if codes == {"quota"}:
        if not explain.without_quota(book, found, workload, index):
            yield from _quota(found, index)
    elif codes <= {"limit"} or (codes == {"cool-down"} and "seconds" in numbers):
        wait = float(numbers.get("opens_in") or numbers.get("seconds") or 0.0)
        yield Change("wait", index, f"wait {wait:.0f} s", "", wait)
    elif "memory_needed" in numbers:
        lacking = int(numbers["memory_needed"] or 0) - int(numbers["memory_left"] or 0)
        yield Change("memory", index, f"{lacking / 2**30:.1f} GiB more memory", "memory", lacking)
    else:
        yield from _units(book, found, workload, index)
        yield from _stop(book, found, workload, index)


def _quota(found: WaitClass, index: int) -> Iterator[Change]:
    lacking: list[tuple[str, int]] = []
    for accelerator, needed in found.shape.chips[index].items():
        free = queues.available(found.account, accelerator)
        if free is not None and needed > free:
            lacking.append((accelerator, needed - free))
    if len(lacking) == 1:
        accelerator, chips = lacking[0]
        yield Change("quota", index, f"a quota larger by {chips} chips of {accelerator}", accelerator, chips, 0.0)


def _units(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> Iterator[Change]:
    """More units of one pool, where all other parts can be placed."""
    for number, part in enumerate(found.shape.plans[index]):
        if not _others_fit(book, found, workload, index, number):
            continue
        for lane, need in part:
            kept = backfill.kept(book, lane, found, workload, index, ask=True)
            lacking = _lacking(lane, need, kept)
            if lacking:
                pool = lane.pool
                price = None if pool.price is None else lacking * pool.chips * pool.price
                count = "one more unit" if lacking == 1 else f"{lacking} more units"
                yield Change("units", index, f"{count} of {pool.name}", pool.name, lacking, price)


def _others_fit(book: Book, found: WaitClass, workload: WorkloadState, index: int, without: int) -> bool:
    plan = found.shape.plans[index]
    return all(
        any(lane.places.fits(need, backfill.kept(book, lane, found, workload, index, ask=True)) for lane, need in part)
        for number, part in enumerate(plan)
        if number != without
    )


def _lacking(lane: Lane, need: Need, kept: int) -> int:
    """Units that are missing for `need` when those in `kept` may not be used."""
    if lane.places.fits(need, kept):
        return 0
    if need.whole:
        return max(1, need.units - lane.places.whole_free(kept))
    per_unit = max(1, lane.pool.chips // need.cell)
    placed = next((n for n in range(need.count - 1, 0, -1) if _fits_groups(lane, need, kept, n)), 0)
    return -(-(need.count - placed) // per_unit)


def _fits_groups(lane: Lane, need: Need, kept: int, groups: int) -> bool:
    fewer = lane.places.need(replace(need.part, count=groups))
    return fewer is not None and lane.places.fits(fewer, kept)


def _stop(book: Book, found: WaitClass, workload: WorkloadState, index: int) -> Iterator[Change]:
    """The end of one workload, the one that would lose the least."""
    now = book.state.now
    lanes = dict.fromkeys(lane for part in found.shape.plans[index] for lane, _ in part)
    holders = [each for each in preemption.holders(book, lanes) if each.phase in ("starting", "running")]
    for each in sorted(holders, key=lambda each: (preemption.lost_work(each, now), -each.order)):
        with preemption.without(book, each):
            fits = propose(book, found, workload, index, ask=True) is not None
        if fits:
            lost = preemption.lost_work(each, now)
            yield Change("stop", index, f"the end of {each.demand.name}", each.demand.name, 1, None, lost)
            return


def _expense(change: Change) -> tuple[int, float, int]:
    order = ("quota", "units", "stop", "memory", "wait").index(change.kind)
    return order, change.price_per_hour or change.lost or change.amount, change.option
