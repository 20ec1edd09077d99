"""What would come of an option if a workload were submitted now: the verdict of a plan, and its price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stellwerk.scheduling import explain, reasons
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.index import WaitClass
from stellwerk.scheduling.model import Demand, Option, Part, Pool, Reason
from stellwerk.scheduling.placement.index import INF
from stellwerk.scheduling.placement.units import serves, units_for
from stellwerk.scheduling.policy import backfill, provisioning
from stellwerk.scheduling.state import State, WorkloadState, workload_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """One option judged: whether it would start `now`, `later` or `never`, and what it takes.

    `start` is a time when it is known; `units`, `hosts` and `chips` count what the option takes on `pools`;
    `price_per_hour` is in US dollars, None when any price is unknown.
    """

    option: int
    verdict: Literal["now", "later", "never"]
    reasons: tuple[Reason, ...]
    start: float | None
    pools: tuple[str, ...]
    units: int
    hosts: int
    chips: int
    price_per_hour: float | None


def judge(book: Book, demand: Demand, at: float) -> list[Verdict]:
    """Judge every option of `demand` as if it were submitted now; nothing is changed."""
    found = book.class_of(demand)
    workload = workload_of(demand, at, book.state.submissions + 1, book.state.now)
    return [_judge(book, found, workload, index, at) for index in range(len(demand.options))]


def _judge(book: Book, found: WaitClass, workload: WorkloadState, index: int, at: float) -> Verdict:
    state, option = book.state, workload.demand.options[index]
    why = explain.option(book, found, workload, index, state.now)
    if not why:
        return _verdict(state, index, option, "now", (), at)
    if found.never[index] is not None:
        return _verdict(state, index, option, "never", why, None)
    if {reason.code for reason in why} <= {"capacity", "shape"} and provisioning.could_make(book, found, index):
        return _made(book, found, index, option, at)
    return _verdict(state, index, option, "later", why, _start(book, found, index, why))


def _made(book: Book, found: WaitClass, index: int, option: Option, at: float) -> Verdict:
    """An option whose units are not there, and may be made."""
    state = book.state
    pools = [state.pools[name] for name in _pools(state, option)]
    needed = reasons.memory_needed(state, option)
    if book.memory is not None and needed > book.memory:
        return _verdict(state, index, option, "later", (reasons.memory(state, needed, book.memory),), None)
    wait = max(pool.provision for pool in pools)
    if wait == 0:
        return _verdict(state, index, option, "now", (), at)
    return _verdict(state, index, option, "later", (reasons.to_provision(pools[0], option),), at + wait)


def _start(book: Book, found: WaitClass, index: int, why: tuple[Reason, ...]) -> float | None:
    """When an option that nobody waits for before could start, by the estimates of what runs."""
    if not {reason.code for reason in why} <= {"capacity", "shape", "provisioning"}:
        return None
    if any(lane.top() is not None for part in found.shape.plans[index] for lane, _ in part):
        return None
    at = backfill.starts(book, found.shape, index)
    return None if at == INF else at


def _verdict(
    state: State,
    index: int,
    option: Option,
    verdict: Literal["now", "later", "never"],
    why: tuple[Reason, ...],
    start: float | None,
) -> Verdict:
    chosen = [(part, _pool(state, part)) for part in option.parts]
    units = sum(units_for(pool, part) for part, pool in chosen if pool)
    hosts = sum(_hosts(pool, part) for part, pool in chosen if pool)
    prices = [
        pool.price * part.chips * part.count if pool and pool.price is not None else None for part, pool in chosen
    ]
    price = None if None in prices else sum(price for price in prices if price is not None)
    return Verdict(index, verdict, why, start, _pools(state, option), units, hosts, option.chips, price)


def _hosts(pool: Pool, part: Part) -> int:
    """Hosts that `part` stands on: all hosts of whole units, and those that a cell touches."""
    if part.topology is not None and pool.layout == "units":
        return part.count * pool.hosts
    whole, cell = divmod(part.chips, pool.chips)
    return part.count * (whole * pool.hosts + (max(1, -(-pool.hosts * cell // pool.chips)) if cell else 0))


def _pool(state: State, part: Part) -> Pool | None:
    serving = [pool for pool in state.pools.values() if serves(pool, part)]
    return next((pool for pool in serving if units_for(pool, part) <= pool.maximum), serving[0] if serving else None)


def _pools(state: State, option: Option) -> tuple[str, ...]:
    found = (_pool(state, part) for part in option.parts)
    return tuple(dict.fromkeys(pool.name for pool in found if pool))
