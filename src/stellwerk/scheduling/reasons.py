"""Why a workload waits on an option, as data, from the same numbers that the decision was made on.

`quota`: the queue may not hold more now; `capacity`: units of the pool are in use, or the machine's memory is;
`shape`: enough chips are free, but nowhere in the shape that is asked for; `broken`: units are being rebuilt;
`provisioning`: they are on their way; `stock-out` and `cool-down`: the provider refused; `reserved`: what is free is
kept for an earlier workload; `limit`: the option is not open yet; `impossible`: no state of this fleet would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stellwerk.scheduling.model import Option, Part, Pool, Reason
from stellwerk.scheduling.placement.units import serves, units_for, units_needed
from stellwerk.scheduling.state import State, UnitState

GIB = 2**30

Numbers = tuple[tuple[str, float | int | str | None], ...]


def impossible(state: State, option: Option) -> Reason | None:
    """Why no state of this fleet could ever hold `option`, or None."""
    for part in parts_to_start(option):
        if not any(serves(pool, part) for pool in state.pools.values()):
            return _no_pool(state, part)
    # The machine's memory first: where it is what bounds the pools, more units would not help.
    return _too_big_for_machine(state, option) or _more_than_pools(state, option)


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


def parts_to_start(option: Option) -> tuple[Part, ...]:
    """The parts that an option must have to start: of an elastic one its minimum."""
    if option.minimum is None or not option.parts:
        return option.parts
    return (replace(option.parts[0], count=option.minimum), *option.parts[1:])


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
    for part in parts_to_start(option):
        pools = [pool for pool in state.pools.values() if serves(pool, part)]
        if max(_groups_at_most(pool, part) for pool in pools) < part.count:
            largest = max(pools, key=lambda pool: pool.maximum)
            needed = units_for(largest, part)
            message = f"needs {needed} units of {largest.name}, which has at most {largest.maximum}"
            numbers = (("pool", largest.name), ("needed", needed), ("maximum", largest.maximum))
            return Reason("impossible", message, numbers)
    return _never_together(state, option)


def _never_together(state: State, option: Option) -> Reason | None:
    """Parts that could be had one by one, and never at once."""
    parts = parts_to_start(option)
    if len(parts) < 2:
        return None
    from stellwerk.scheduling.placement.together import ever

    pools = [pool for pool in state.pools.values() if any(serves(pool, part) for part in parts)]
    if ever(pools, parts):
        return None
    names = ", ".join(f"{pool.name} (at most {pool.maximum} units)" for pool in pools)
    message = f"needs {option.chips} chips in {len(parts)} parts together, which {names} can never hold at once"
    return Reason("impossible", message, (("needed_chips", option.chips),))


def _groups_at_most(pool: Pool, part: Part) -> int:
    if pool.layout != "units":
        from stellwerk.scheduling.placement.index import make

        return make(pool).most(part)
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
        needed += min((part_memory(pool, part) for pool in pools), default=0)
    return needed


def part_memory(pool: Pool, part: Part) -> int:
    """Bytes that all groups of `part` take on as few units of `pool` as hold them."""
    whole, cell = units_needed(pool, part)
    if whole or not cell:
        return part.count * (whole * pool.footprint + (pool.memory_of(cell) if cell else 0))
    each = pool.chips // cell
    full, rest = divmod(part.count, each)
    return full * pool.memory_of(each * cell) + (pool.memory_of(rest * cell) if rest else 0)


def needs(pool: Pool, needed: int, free: int, units: int) -> str:
    """The beginning of most sentences."""
    return f"needs {needed} {'unit' if needed == 1 else 'units'} of {pool.name}, {free} of {units} free"


def reserved(pool: Pool, holder: str, until: float | None, now: float, numbers: Numbers) -> Reason:
    """What is free is kept for a workload that comes before."""
    message = f"{pool.name} is kept for {holder}, which comes earlier"
    if until is not None:
        message += f" and is expected to start within {max(0.0, until - now):.0f} s"
    return Reason("reserved", message, (*numbers, ("workload", holder), ("until", until)))


def memory_reserved(holder: str, needed: int, left: int) -> Reason:
    """The memory that is left is kept for a workload that comes before."""
    message = f"this machine's memory is kept for {holder}, which comes earlier"
    return Reason("reserved", message, (("memory_needed", needed), ("memory_left", left), ("workload", holder)))


def shape(pool: Pool, needed: int, free: int, largest: tuple[int, str], numbers: Numbers) -> Reason:
    """Enough chips are free, and not as they are needed."""
    message = (
        f"needs {needed} chips of {pool.name} together; {free} are free, and the largest that fits is {largest[1]}"
    )
    more = (("needed_chips", needed), ("free_chips", free), ("largest_chips", largest[0]), ("largest", largest[1]))
    return Reason("shape", message, (*numbers, *more))


def capacity(state: State, pool: Pool, head: str, units: Sequence[UnitState], numbers: Numbers) -> Reason:
    """The units are in use."""
    holders = sorted({state.workloads[key].demand.name for unit in units for key in unit.held})
    if holders:
        head += f", in use by {', '.join(holders[:3])}" + (" and others" if len(holders) > 3 else "")
    return Reason("capacity", head, numbers)


def not_together(option: Option, free: int) -> Reason:
    """Each part could be placed alone, all of them not."""
    message = f"needs {option.chips} chips together; {free} are free, but not as this option needs them"
    return Reason("shape", message, (("needed_chips", option.chips), ("free_chips", free)))
