"""What would come of an option if a workload were submitted now: the verdict of a plan, and its price."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from stellwerk.scheduling import reasons
from stellwerk.scheduling.model import Demand, Option, Part, Pool, Reason
from stellwerk.scheduling.placement.units import Supply, memory_of, place, serves, units_for
from stellwerk.scheduling.policy import provisioning, queues
from stellwerk.scheduling.state import State


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


def judge(state: State, demand: Demand, index: int, supply: Supply, at: float) -> Verdict:
    """Judge option `index` of `demand` against what `supply` has free."""
    option = demand.options[index]
    queue = queues.queue_of(state, demand.queue)
    if queue is None:
        return _verdict(state, index, option, "never", (reasons.no_queue(state, demand.queue),), None)
    if never := reasons.impossible(state, option) or queues.over_quota(queue, Counter(), option):
        return _verdict(state, index, option, "never", (never,), None)
    if over := queues.over_quota(queue, queues.usage(state, demand.queue), option):
        return _verdict(state, index, option, "later", (over,), None)
    grants = place(state, option, supply)
    if grants is None:
        return _unplaced(state, index, option, supply, at)
    if supply.memory is not None and (needed := memory_of(state, grants)) > supply.memory:
        return _verdict(state, index, option, "later", (reasons.memory(state, needed, supply.memory),), None)
    return _verdict(state, index, option, "now", (), at)


def _unplaced(state: State, index: int, option: Option, supply: Supply, at: float) -> Verdict:
    """An option whose units are not free: they may still be made."""
    why = reasons.waiting(state, option, supply)
    if all(reason.code == "capacity" for reason in why) and provisioning.could_complete(state, option, supply):
        pools = [state.pools[name] for name in _pools(state, option)]
        needed = reasons.memory_needed(state, option)
        if supply.memory is not None and needed > supply.memory:
            return _verdict(state, index, option, "later", (reasons.memory(state, needed, supply.memory),), None)
        wait = max(pool.provision for pool in pools)
        if wait == 0:
            return _verdict(state, index, option, "now", (), at)
        return _verdict(state, index, option, "later", (reasons.to_provision(pools[0], option),), at + wait)
    return _verdict(state, index, option, "later", why, None)


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
    if part.topology is not None:
        return part.count * pool.hosts
    whole, cell = divmod(part.chips, pool.chips)
    return part.count * (whole * pool.hosts + (max(1, -(-pool.hosts * cell // pool.chips)) if cell else 0))


def _pool(state: State, part: Part) -> Pool | None:
    serving = [pool for pool in state.pools.values() if serves(pool, part)]
    return next((pool for pool in serving if units_for(pool, part) <= pool.maximum), serving[0] if serving else None)


def _pools(state: State, option: Option) -> tuple[str, ...]:
    found = (_pool(state, part) for part in option.parts)
    return tuple(dict.fromkeys(pool.name for pool in found if pool))
