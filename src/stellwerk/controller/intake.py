"""From what people declare to what the core decides on: workloads to demands, fleets to fleets.

Prices come from the declaration first (pool, then `prices`, then the fleet's own accelerators), else from the list
prices of `stellwerk.hardware`; a price that nobody states is unknown, not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from stellwerk import hardware
from stellwerk.hardware import HardwareError
from stellwerk.scheduling.model import Demand, Fleet, Limits, Option, Part, Pool, Queue

if TYPE_CHECKING:
    from stellwerk import spec

KINDS = ("job", "train", "cluster")
"""Kinds that this version runs."""


class Unsupported(Exception):
    """A right declaration that this version does not run; `code` for machines, `mend` says what would do."""

    def __init__(self, code: str, message: str, mend: str | None = None) -> None:
        """Say what is not supported, and what is."""
        self.code, self.message, self.mend = code, message, mend
        super().__init__(message)


class Machine(Protocol):
    """The machine that plays a fleet: what it can carry, and which pools it offers. None of this changes by asking."""

    def pools(self, parts: Sequence[Part]) -> tuple[Pool, ...]:
        """Pools that serve `parts`, as large as the machine can carry."""
        ...

    def footprint(self, accelerator: str, hosts: int, chips: int) -> int:
        """Memory (bytes) that one unit of this kind in use takes."""
        ...

    def memory(self) -> int | None:
        """Memory (bytes) that all units and attempts together may take; None where units are real."""
        ...

    def emulates(self, accelerator: str, chips: int) -> bool:
        """Whether a unit of this many chips is played, not real."""
        ...

    def overhead(self) -> int:
        """Memory (bytes) that an attempt takes besides its units."""
        ...


def check_supported(workload: spec.Workload) -> None:
    """Refuse what comes with a later version; raises Unsupported."""
    if workload.kind not in KINDS:
        message = f"kind {workload.kind} does not run yet; this version runs {', '.join(KINDS[:-1])} and {KINDS[-1]}"
        raise Unsupported("kind-unsupported", message)
    if workload.cluster is not None:
        raise Unsupported("cluster-unsupported", "`cluster` names a running cluster; it needs no submission")
    if not workload.options:
        mend = "write for example `options: [tpu-v6e:4x4]`"
        raise Unsupported("missing-key", f"`options` is missing; kind {workload.kind} needs hardware", mend)


def demand(workload: spec.Workload, key: str, name: str) -> Demand:
    """What the core needs to know of a workload."""
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
    )


def fleet(declared: spec.Fleet, machine: Machine) -> Fleet:
    """A declared fleet, played by `machine`."""
    return Fleet(
        pools=tuple(_pool(declared, pool, machine) for pool in declared.pools),
        queues=tuple(_queue(queue) for queue in declared.queues.values()),
        memory=machine.memory(),
        overhead=machine.overhead(),
    )


def grown(current: Fleet, options: Iterable[Option], machine: Machine) -> Fleet:
    """The undeclared fleet with the pools that `options` ask for; the same fleet when it has them already."""
    parts = [part for option in options for part in option.parts]
    known = {pool.name for pool in current.pools}
    new = [_priced(pool) for pool in machine.pools(parts) if pool.name not in known]
    if not new:
        return current
    pools = sorted((*current.pools, *new), key=lambda pool: pool.emulated)
    return Fleet(tuple(pools), current.queues, machine.memory(), machine.overhead())


def list_price(accelerator: str, market: str, machine: str | None = None) -> float | None:
    """US dollars per chip-hour, None when unknown."""
    try:
        return hardware.price(accelerator, market, machine=machine)
    except HardwareError:
        return None


def _option(choice: spec.Choice) -> Option:
    parts = tuple(_part(part) for part in choice.parts)
    return Option(choice.short, parts, patience=choice.patience, runtime=choice.runtime)


def _part(part: spec.Part) -> Part:
    wanted = part.option
    shape = wanted.shape
    return Part(
        role=part.role,
        accelerator=wanted.accelerator,
        topology=wanted.topology,
        chips=shape.chips if shape else wanted.count or 1,
        count=part.count * (wanted.slices or 1),
        machine=wanted.machine,
        market=wanted.market,
    )


def _pool(declared: spec.Fleet, pool: spec.Pool, machine: Machine) -> Pool:
    chips, hosts = pool.chips or 1, pool.hosts or 1
    made = Pool(
        name=pool.name,
        accelerator=pool.accelerator,
        topology=pool.topology,
        machine=pool.machine,
        chips=chips,
        hosts=hosts,
        minimum=pool.units.min,
        maximum=pool.units.max,
        buffer=pool.units.buffer,
        market=pool.market,
        price=_price(declared, pool),
        provision=pool.provision or 0.0,
        footprint=machine.footprint(pool.accelerator, hosts, chips),
        emulated=machine.emulates(pool.accelerator, chips),
    )
    return made if pool.idle is None else replace(made, idle=pool.idle)


def _price(declared: spec.Fleet, pool: spec.Pool) -> float | None:
    own = declared.accelerators.get(pool.accelerator)
    stated: Mapping[str, float] = declared.prices
    if pool.price is not None:
        return pool.price
    if pool.accelerator in stated:
        return stated[pool.accelerator]
    return own.price if own is not None else list_price(pool.accelerator, pool.market, pool.machine)


def _priced(pool: Pool) -> Pool:
    if pool.price is not None:
        return pool
    return replace(pool, price=list_price(pool.accelerator, pool.market, pool.machine))


def _queue(queue: spec.Queue) -> Queue:
    borrow = None if queue.borrow is True else int(queue.borrow)
    quota = tuple(sorted(queue.quota.items())) or None
    return Queue(queue.name, quota=quota, weight=queue.weight, borrow=borrow, lend=bool(queue.lend))
