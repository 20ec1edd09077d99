"""Several parts placed together or not at all, each on one of the pools that serve it.

Parts are tried in order, each on its pools in order; where a later part finds no room, the earlier ones move on to
their next pool. So what is found is the first assignment in that order, and one is found whenever there is one, as far
as each pool's own choice of units leaves it (a few parts on a few pools, so the search is small).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.index import INF, Need, PoolIndex, make
from stellwerk.scheduling.placement.units import units_for
from stellwerk.scheduling.state import UnitState

Choice = TypeVar("Choice")
Grants = tuple[Grant, ...]


def place(
    plan: Sequence[Sequence[Choice]],
    places: Callable[[Choice], PoolIndex],
    fit: Callable[[Choice], Grants | None],
    now: float,
    number: int = 0,
) -> Grants | None:
    """Grants for all parts of `plan`, which lists for each its choices, or None; nothing is changed."""
    if number == len(plan):
        return ()
    for choice in plan[number]:
        grants = fit(choice)
        if grants is None or number + 1 == len(plan):
            if grants is not None:
                return grants
            continue
        index, holder = places(choice), f"\0{number}"
        index.take(grants, holder, INF, now)
        try:
            others = place(plan, places, fit, now, number + 1)
        finally:
            index.give(grants, holder)
        if others is not None:
            return (*grants, *others)
    return None


def ever(pools: Sequence[Pool], parts: Sequence[Part]) -> bool:
    """Whether these pools could hold all parts together if each were at its maximum and empty."""
    indexes = [(pool, make(pool, track=False)) for pool in pools]
    plan = [[(i, need) for _, i in indexes if (need := i.need(part)) is not None] for part in parts]
    for pool, index in indexes:
        served = [part for part, choices in zip(parts, plan, strict=True) if any(i is index for i, _ in choices)]
        enough = sum(units_for(pool, part) for part in served) if pool.layout == "units" else pool.maximum
        for number in range(min(pool.maximum, enough) if served else 0):
            index.put(UnitState(f"{pool.name}-{number}", pool.name, 1, "up", pool.chips, pool.hosts, 0.0))
    return place(plan, _index, _fit, 0.0) is not None


def _index(choice: tuple[PoolIndex, Need]) -> PoolIndex:
    return choice[0]


def _fit(choice: tuple[PoolIndex, Need]) -> Grants | None:
    return choice[0].fit(choice[1])
