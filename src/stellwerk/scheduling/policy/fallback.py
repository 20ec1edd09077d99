"""Which of a workload's options are open to it now.

Options are in order of preference. The first is open at once; each later one opens when the patience of those before
it is used up, counted from when the workload began to wait. An option that can never be met costs no patience.
"""

from __future__ import annotations

from stellwerk.scheduling.model import Demand, Option

PATIENCE = 60.0


def patience_of(option: Option) -> float:
    """Seconds to wait for `option` before the next one opens."""
    return PATIENCE if option.patience is None else option.patience


def opens_at(demand: Demand, waiting_since: float, never: frozenset[int]) -> list[float]:
    """When each option opens, in order; options in `never` take no patience."""
    opens: list[float] = []
    time = waiting_since
    for index, option in enumerate(demand.options):
        opens.append(time)
        if index not in never:
            time += patience_of(option)
    return opens
