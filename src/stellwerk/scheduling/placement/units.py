"""Whole units and cells for one option.

Why: a slice, an NVLink domain or a node is of use only whole, and a gang only together. Formulation: each part of
an option goes to one pool (slices of one workload must be alike), the first in the fleet's order that can hold all
its groups; within it units are taken in natural name order, cells where they leave the least free. All parts are
placed against one `Supply`, which shrinks as they are; if one does not fit the option gets nothing.

Limits: parts choose pools greedily in the order of the option, so two parts that could only be placed by giving the
first a later pool are not. A cell never spans units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from stellwerk.scheduling.model import Grant, Option, Part, Pool
from stellwerk.scheduling.state import State, UnitState


@cache
def natural(name: str) -> tuple[int | str, ...]:
    """Sort key under which `g-2` comes before `g-10`."""
    return tuple(int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name))


def serves(pool: Pool, part: Part) -> bool:
    """Whether units of `pool` are what `part` asks for."""
    return (
        pool.accelerator == part.accelerator
        and (part.topology is None or pool.topology == part.topology)
        and (part.machine is None or pool.machine == part.machine)
        and (part.market is None or pool.market == part.market)
    )


def units_needed(pool: Pool, part: Part) -> tuple[int, int]:
    """(whole units, chips of a cell of one more) for one group of `part` on units of `pool`."""
    if part.topology is not None:
        return 1, 0
    return divmod(part.chips, pool.chips)


def units_for(pool: Pool, part: Part) -> int:
    """Units of `pool` that all groups of `part` take at least a cell of."""
    whole, cell = units_needed(pool, part)
    if whole == 0:
        return -(-part.count // max(1, pool.chips // cell))
    return part.count * (whole + bool(cell))


@dataclass(slots=True)
class Supply:
    """Free chips by unit, per pool, and the memory left of the machine that plays them."""

    free: dict[str, dict[str, int]]
    units: dict[str, UnitState]
    memory: int | None = None
    shut: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, state: State) -> Supply:
        """What `state` has free now."""
        free: dict[str, dict[str, int]] = {name: {} for name in state.pools}
        for name in sorted(state.units, key=natural):
            unit = state.units[name]
            if unit.pool in free and unit.free:
                free[unit.pool][name] = unit.free
        return cls(free, state.units, memory_left(state))

    def take(self, grants: Iterable[Grant], memory: int) -> None:
        """Reduce what is free by `grants`."""
        for grant in grants:
            left = self.free[grant.pool][grant.unit] - grant.chips
            if left:
                self.free[grant.pool][grant.unit] = left
            else:
                del self.free[grant.pool][grant.unit]
        if self.memory is not None:
            self.memory -= memory


def memory_left(state: State) -> int | None:
    """Bytes that the machine which plays the fleet can still give to attempts; None where units are real."""
    if state.fleet.memory is None:
        return None
    used = 0
    for workload in state.workloads.values():
        if attempt := workload.live:
            used += memory_of(state, attempt.grants)
    return state.fleet.memory - used


def memory_of(state: State, grants: Iterable[Grant]) -> int:
    """Bytes that an attempt with these grants takes of the machine that plays them."""
    pools = state.pools
    held = {(grant.pool, grant.unit) for grant in grants}
    return state.fleet.overhead + sum(pools[pool].footprint for pool, _ in held if pool in pools)


def place(state: State, option: Option, supply: Supply) -> tuple[Grant, ...] | None:
    """Grants for every part of `option`, or None; `supply` is left as it was."""
    trial = Supply({name: dict(units) for name, units in supply.free.items()}, supply.units, None, supply.shut)
    grants: list[Grant] = []
    for part in option.parts:
        found = next(filter(None, (_place_part(part, pool, trial) for pool in state.pools.values())), None)
        if found is None:
            return None
        trial.take(found, 0)
        grants.extend(found)
    return tuple(grants)


def _place_part(part: Part, pool: Pool, supply: Supply) -> list[Grant] | None:
    if pool.name in supply.shut or not serves(pool, part):
        return None
    free = dict(supply.free[pool.name])
    grants: list[Grant] = []
    for group in range(part.count):
        whole, cell = units_needed(pool, part)
        chosen = [name for name, chips in free.items() if chips == pool.chips][:whole]
        if len(chosen) < whole:
            return None
        for name in chosen:
            del free[name]
            grants.append(_grant(part, group, pool, supply.units[name], pool.chips))
        if cell:
            name = _cell(free, cell, pool, fresh=whole > 0)
            if name is None:
                return None
            free[name] -= cell
            grants.append(_grant(part, group, pool, supply.units[name], cell))
    return grants


def _cell(free: dict[str, int], chips: int, pool: Pool, *, fresh: bool) -> str | None:
    """The unit that a cell of `chips` leaves the least free; beside whole units (`fresh`) only a wholly free one."""
    fitting = [(left, index, name) for index, (name, left) in enumerate(free.items()) if left >= chips]
    if fresh:
        fitting = [entry for entry in fitting if entry[0] == pool.chips]
    return min(fitting)[2] if fitting else None


def _grant(part: Part, group: int, pool: Pool, unit: UnitState, chips: int) -> Grant:
    hosts = unit.hosts if chips == unit.chips else max(1, -(-unit.hosts * chips // unit.chips))
    return Grant(part.role, group, pool.name, unit.name, unit.incarnation, chips, hosts)
