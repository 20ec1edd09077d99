"""Why a workload waits on an option, from the same numbers that the decision was made on.

`capacity`: units of the pool are in use or the machine's memory is; `broken`: units are being rebuilt; `provisioning`:
they are on their way; `stock-out` and `cool-down`: the provider refused; `reserved`: free units are
kept for an earlier workload; `limit`: the option is not open yet; `impossible`: no state of this fleet would do.
"""

from __future__ import annotations

from dataclasses import replace

from stellwerk.scheduling.model import Option, Part, Pool, Reason
from stellwerk.scheduling.placement.units import Supply, serves, units_for, units_needed
from stellwerk.scheduling.policy.provisioning import members
from stellwerk.scheduling.state import State

GIB = 2**30


def impossible(state: State, option: Option) -> Reason | None:
    """Why no state of this fleet could ever hold `option`, or None."""
    for part in option.parts:
        if not any(serves(pool, part) for pool in state.pools.values()):
            return _no_pool(state, part)
    # The machine's memory first: where it is what bounds the pools, more units would not help.
    return _too_big_for_machine(state, option) or _more_than_pools(state, option)


def waiting(state: State, option: Option, supply: Supply) -> tuple[Reason, ...]:
    """Why `option` cannot be granted from `supply` now: one reason for each pool that falls short."""
    found: list[Reason] = []
    for part in option.parts:
        for pool in state.pools.values():
            if serves(pool, part) and (reason := _short_of(state, pool, part, supply)):
                found.append(reason)
    if not found:
        found.append(_not_together(option, supply))
    return tuple(dict.fromkeys(found))


def memory(state: State, needed: int, left: int) -> Reason:
    """The machine that plays the fleet has too little memory left."""
    message = f"needs {needed / GIB:.1f} GiB of this machine's memory, of which {left / GIB:.1f} GiB are left"
    return Reason("capacity", message, (("memory_needed", needed), ("memory_left", left)))


def to_provision(pool: Pool, option: Option) -> Reason:
    """The units can be had, and take their time."""
    message = f"{option.short} needs new units of {pool.name}, which take {pool.provision:.0f} s"
    return Reason("provisioning", message, (("pool", pool.name), ("provision", pool.provision)))


def not_open(opens: float, now: float, preferred: str) -> Reason:
    """A preferred option still has patience left."""
    wait = max(0.0, opens - now)
    message = f"free, but {preferred} is preferred for another {wait:.0f} s"
    return Reason("limit", message, (("opens_in", round(wait, 3)),))


def held_back(until: float, now: float, setbacks: int) -> Reason:
    """After repeated infrastructure failures the next attempt waits a little."""
    wait = max(0.0, until - now)
    message = f"waits {wait:.0f} s before the next attempt after {setbacks} infrastructure failures in a row"
    return Reason("cool-down", message, (("seconds", round(wait, 3)), ("setbacks", setbacks)))


def no_queue(state: State, queue: str) -> Reason:
    """The fleet declares queues, and not this one."""
    names = ", ".join(state.queues)
    return Reason("impossible", f"there is no queue {queue}; the fleet has {names}", (("queue", queue),))


def _no_pool(state: State, part: Part) -> Reason:
    asked = part.accelerator + (f":{part.topology}" if part.topology else "")
    asked += f" on {part.machine}" if part.machine else ""
    asked += f" ({part.market})" if part.market else ""
    names = ", ".join(state.pools) or "no pool at all"
    return Reason("impossible", f"no pool has {asked}; the fleet has {names}", (("asked", asked),))


def _more_than_pools(state: State, option: Option) -> Reason | None:
    for part in option.parts:
        pools = [pool for pool in state.pools.values() if serves(pool, part)]
        if max(_groups_at_most(pool, part) for pool in pools) < part.count:
            largest = max(pools, key=lambda pool: pool.maximum)
            needed = units_for(largest, part)
            message = f"needs {needed} units of {largest.name}, which has at most {largest.maximum}"
            numbers = (("pool", largest.name), ("needed", needed), ("maximum", largest.maximum))
            return Reason("impossible", message, numbers)
    return None


def _groups_at_most(pool: Pool, part: Part) -> int:
    whole, cell = units_needed(pool, part)
    if whole == 0:
        return pool.maximum * (pool.chips // cell)
    return pool.maximum // units_for(pool, replace(part, count=1))


def _too_big_for_machine(state: State, option: Option) -> Reason | None:
    total = state.fleet.memory
    if total is None:
        return None
    needed = memory_needed(state, option)
    if needed <= total:
        return None
    message = f"needs {needed / GIB:.1f} GiB of this machine's memory, which can give at most {total / GIB:.1f} GiB"
    return Reason("impossible", message, (("memory_needed", needed), ("memory", total)))


def memory_needed(state: State, option: Option) -> int:
    """Bytes that `option` would take of the machine that plays the fleet, on the leanest pools that serve it."""
    needed = state.fleet.overhead
    for part in option.parts:
        pools = [pool for pool in state.pools.values() if serves(pool, part)]
        needed += min((units_for(pool, part) * pool.footprint for pool in pools), default=0)
    return needed


def _short_of(state: State, pool: Pool, part: Part, supply: Supply) -> Reason | None:
    holder = supply.shut.get(pool.name)
    units = members(state, pool.name)
    needed = units_for(pool, part)
    free = sum(1 for name in supply.free[pool.name] if state.units[name].idle)
    numbers = (("pool", pool.name), ("needed", needed), ("free", free), ("units", len(units)))
    if holder is not None:
        message = f"{pool.name} is kept for {holder}, which came earlier"
        return Reason("reserved", message, (*numbers, ("workload", holder)))
    broken = sum(1 for unit in units if unit.phase in ("broken", "recycling"))
    coming = sum(1 for unit in units if unit.phase == "provisioning")
    head = f"needs {needed} {'unit' if needed == 1 else 'units'} of {pool.name}, {free} of {len(units)} free"
    if free + coming >= needed and coming:
        message = f"{head}, {coming} on the way (a unit takes {pool.provision:.0f} s)"
        return Reason("provisioning", message, (*numbers, ("provisioning", coming)))
    cool_down = state.cool_downs.get(pool.name)
    if cool_down and cool_down.until > state.now:
        message = f"{head}, and the provider refused more ({cool_down.code}: {cool_down.detail})"
        code = "stock-out" if cool_down.code == "stock-out" else "cool-down"
        return Reason(code, message, (*numbers, ("until", cool_down.until)))
    if broken and free + broken >= needed:
        return Reason("broken", f"{head}, {broken} being rebuilt", (*numbers, ("broken", broken)))
    if free >= needed and part.topology is not None:
        return None
    holders = sorted({state.workloads[key].demand.name for unit in units for key in unit.held})
    if holders:
        head += f", in use by {', '.join(holders[:3])}" + (" and others" if len(holders) > 3 else "")
    return Reason("capacity", head, numbers)


def _not_together(option: Option, supply: Supply) -> Reason:
    free = sum(chips for units in supply.free.values() for chips in units.values())
    message = f"needs {option.chips} chips together; {free} are free, but not as this option needs them"
    return Reason("shape", message, (("needed_chips", option.chips), ("free_chips", free)))
