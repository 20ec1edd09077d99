"""From what people declare to what the core decides on: workloads to demands, pools and queues.

Prices come from the declaration first (pool, then `prices`, then the fleet's own accelerators), else from the list
prices of `stellwerk.hardware`; a price that nobody states is unknown, not zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stellwerk import hardware
from stellwerk.hardware import HardwareError
from stellwerk.scheduling.model import Demand, Fleet, Limits, Option, Part, Pool, Queue

if TYPE_CHECKING:
    from stellwerk import spec


def demand(workload: spec.Workload, key: str, name: str, user: str = "") -> Demand:
    """What the core needs to know of a workload that `user` submits."""
    limits = workload.limits
    return Demand(
        key=key,
        name=name,
        kind=workload.kind,
        options=tuple(_option(choice) for choice in workload.options),
        queue=workload.queue,
        priority=workload.priority,
        runtime=workload.runtime,
        limits=Limits(wait=limits.wait, start=limits.start, run=limits.run, cost=limits.cost),
        retries=workload.retries,
        user=user,
    )


def fleet_of(declared: spec.Fleet) -> Fleet:
    """A declared fleet as it really is: played by no machine."""
    return Fleet(
        pools=tuple(pool_of(declared, pool) for pool in declared.pools),
        queues=tuple(queue_of(queue) for queue in declared.queues.values()),
        policy=declared.policy,
        preempt=declared.preempt,
    )


def pool_of(declared: spec.Fleet, pool: spec.Pool) -> Pool:
    """A pool of a declared fleet; of a pod, a unit is a cube and `topology` that of the pod."""
    made = Pool(
        name=pool.name,
        accelerator=pool.accelerator,
        topology=pool.topology,
        machine=pool.machine,
        chips=pool.chips or 1,
        hosts=pool.hosts or 1,
        minimum=pool.units.min,
        maximum=pool.units.max,
        buffer=pool.units.buffer,
        market=pool.market,
        price=_price(declared, pool),
        provision=pool.provision or 0.0,
        lifetime=pool.lifetime,
        layout=pool.layout,
    )
    return made if pool.idle is None else replace(made, idle=pool.idle)


def queue_of(queue: spec.Queue) -> Queue:
    """A declared queue. `true` is to borrow all that is lent, and to lend all that is owned; `false` is nothing."""
    return Queue(
        queue.name,
        quota=tuple(sorted(queue.quota.items())) or None,
        weight=queue.weight,
        borrow=None if queue.borrow is True else int(queue.borrow),
        lend=None if queue.lend is True else int(queue.lend),
        cohort=queue.cohort or "",
        policy=queue.policy,
    )


def part_of(wanted: spec.Option, role: str = "main", count: int = 1) -> Part:
    """The hardware of one role in one option, `count` times; of an elastic option what it needs to start."""
    shape = wanted.shape
    return Part(
        role=role,
        accelerator=wanted.accelerator,
        topology=wanted.topology,
        chips=shape.chips if shape else wanted.count or 1,
        count=count * wanted.fewest,
        machine=wanted.machine,
        market=wanted.market,
    )


def list_price(accelerator: str, market: str, machine: str | None = None) -> float | None:
    """US dollars per chip-hour, None when unknown."""
    try:
        return hardware.price(accelerator, market, machine=machine)
    except HardwareError:
        return None


def _option(choice: spec.Choice) -> Option:
    parts = tuple(part_of(part.option, part.role, part.count) for part in choice.parts)
    elastic = choice.parts[0].option.elastic
    return Option(
        choice.short,
        parts,
        patience=choice.patience,
        runtime=choice.runtime,
        minimum=elastic.min if elastic else None,
        maximum=elastic.max if elastic else None,
    )


def _price(declared: spec.Fleet, pool: spec.Pool) -> float | None:
    try:
        return declared.price(pool)
    except HardwareError:
        return None
