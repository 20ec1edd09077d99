"""From what people declare to what the core decides on, on the machine that plays the fleet.

What does not depend on the machine is in `stellwerk.scheduling.declared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from stellwerk.scheduling.declared import demand, fleet_of, list_price, pool_of
from stellwerk.scheduling.model import Fleet, Option, Part, Pool

if TYPE_CHECKING:
    from stellwerk import spec

__all__ = ["KINDS", "Machine", "Unsupported", "check_supported", "demand", "fleet", "grown", "list_price"]

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
        """Memory (bytes) that one unit in use takes; with no hosts or chips, what it takes besides them."""
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


def fleet(declared: spec.Fleet, machine: Machine) -> Fleet:
    """A declared fleet, played by `machine`."""
    return replace(
        fleet_of(declared),
        pools=tuple(_pool(declared, pool, machine) for pool in declared.pools),
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
    return replace(current, pools=tuple(pools), memory=machine.memory(), overhead=machine.overhead())


def _pool(declared: spec.Fleet, pool: spec.Pool, machine: Machine) -> Pool:
    made = pool_of(declared, pool)
    return replace(
        made,
        footprint=machine.footprint(made.accelerator, made.hosts, made.chips),
        fixed=machine.footprint(made.accelerator, 1 if made.hosts == 1 else 0, 0),
        emulated=machine.emulates(made.accelerator, made.chips),
    )


def _priced(pool: Pool) -> Pool:
    if pool.price is not None:
        return pool
    return replace(pool, price=list_price(pool.accelerator, pool.market, pool.machine))
