"""How many units a pool should have.

Each pool wants what is in use and its warm buffer, within its minimum and maximum; a blocked workload adds the units it
lacks if all of them can be had, since a part of a gang is of no use. Units that nobody needs are given back after
the pool's idle time, the highest name first. A provider that refused is not asked again before the cool-down is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stellwerk.scheduling.commands import Command, ProvisionUnit, ReleaseUnit
from stellwerk.scheduling.model import Option, Part, Pool
from stellwerk.scheduling.placement.units import Supply, natural, serves, units_for, units_needed
from stellwerk.scheduling.state import State, UnitState

COOL_DOWN = 300.0


def members(state: State, pool: str) -> list[UnitState]:
    """Units of a pool in natural name order."""
    return sorted((u for u in state.units.values() if u.pool == pool), key=lambda unit: natural(unit.name))


def headroom(state: State, pool: Pool) -> int:
    """Units that could still be provisioned now."""
    cool_down = state.cool_downs.get(pool.name)
    if cool_down is not None and cool_down.until > state.now:
        return 0
    return max(0, pool.maximum - len(members(state, pool.name)))


def complete(state: State, option: Option, supply: Supply, claimed: Counter[str]) -> Iterator[ProvisionUnit]:
    """Orders for the units that a blocked workload lacks for `option`; none unless all of them can be had.

    `claimed` counts, per pool, the units that workloads before this one already wait for, and is added to.
    """
    lacking, needs = _lacking(state, option, supply, claimed)
    claimed.update(needs)
    if _can_be_made(state, lacking):
        for name, lack in lacking.items():
            for _ in range(lack):
                yield provision(state, state.pools[name])


def could_complete(state: State, option: Option, supply: Supply) -> bool:
    """Whether all units that `option` lacks could be made now, were it alone."""
    lacking, needs = _lacking(state, option, supply, Counter())
    return bool(needs) and _can_be_made(state, lacking)


def _lacking(state: State, option: Option, supply: Supply, claimed: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """(units that must be made, units needed) per pool for `option`; both empty when no pool is large enough."""
    lacking: Counter[str] = Counter()
    needs: Counter[str] = Counter()
    for part in option.parts:
        pool = next((p for p in state.pools.values() if serves(p, part) and units_for(p, part) <= p.maximum), None)
        if pool is None:
            return Counter(), Counter()
        needs[pool.name] += units_for(pool, part)
        lacking[pool.name] = claimed[pool.name] + needs[pool.name] - _coming_or_free(state, pool, part, supply)
    return lacking, needs


def _can_be_made(state: State, lacking: Counter[str]) -> bool:
    return all(lack <= headroom(state, state.pools[name]) for name, lack in lacking.items())


def _coming_or_free(state: State, pool: Pool, part: Part, supply: Supply) -> int:
    whole, cell = units_needed(pool, part)
    least = pool.chips if whole else cell
    free = sum(1 for chips in supply.free[pool.name].values() if chips >= least)
    return free + sum(1 for unit in members(state, pool.name) if unit.phase in ("provisioning", "recycling"))


def resize(state: State) -> Iterator[Command]:
    """Orders that keep every pool at its minimum and its warm buffer, and give back what nobody needs.

    The state is changed as if the orders were carried out: new units are `provisioning`, given-back ones `releasing`.
    """
    for pool in state.pools.values():
        units = members(state, pool.name)
        in_use = sum(1 for unit in units if unit.held)
        target = min(max(in_use + pool.buffer, pool.minimum), pool.maximum)
        for _ in range(min(target - len(units), headroom(state, pool))):
            yield provision(state, pool)
        spare = [unit for unit in reversed(units) if unit.idle and unit.idle_since + pool.idle <= state.now]
        for unit in spare[: max(0, len(units) - target)]:
            yield release(unit)
    for unit in list(state.units.values()):
        gone_pool = unit.pool not in state.pools
        if (gone_pool or unit.leaving) and not unit.held and unit.phase in ("up", "broken"):
            yield release(unit)


def provision(state: State, pool: Pool) -> ProvisionUnit:
    """A new unit of `pool` under the lowest free name."""
    index = 0
    while (name := f"{pool.name}-{index}") in state.units:
        index += 1
    incarnation = state.incarnations.get(name, 0) + 1
    state.incarnations[name] = incarnation
    state.units[name] = UnitState(
        name, pool.name, incarnation, "provisioning", pool.chips, pool.hosts, state.now, idle_since=state.now
    )
    return ProvisionUnit(pool.name, name, incarnation)


def release(unit: UnitState) -> ReleaseUnit:
    """Give `unit` back."""
    unit.phase = "releasing"
    return ReleaseUnit(unit.name, unit.incarnation)


def next_release(state: State) -> float | None:
    """When the next unneeded unit has been idle for long enough, if any is."""
    times: list[float] = []
    for pool in state.pools.values():
        units = members(state, pool.name)
        in_use = sum(1 for unit in units if unit.held)
        if len(units) > max(in_use + pool.buffer, pool.minimum):
            times += [unit.idle_since + pool.idle for unit in units if unit.idle]
    return min((time for time in times if time > state.now), default=None)
