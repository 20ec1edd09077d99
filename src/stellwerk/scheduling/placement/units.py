"""What a part of an option asks of a pool: whole units, and a cell of one more.

Why: a slice, an NVLink domain or a node is of use only whole, and a gang only together. A GPU or CPU group larger than
one unit takes whole units and, for what is left over, a cell of one more that was wholly free; a smaller one takes a
cell of one unit. A TPU group takes one whole unit of its topology.
"""

from __future__ import annotations

import re
from functools import cache

from stellwerk.scheduling.model import Part, Pool


@cache
def natural(name: str) -> tuple[int | str, ...]:
    """Sort key under which `g-2` comes before `g-10`."""
    return tuple(int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name))


def serves(pool: Pool, part: Part) -> bool:
    """Whether `pool` has what `part` asks for, as far as accelerator, machine, market and shape go."""
    if (
        pool.accelerator != part.accelerator
        or (part.machine is not None and pool.machine != part.machine)
        or (part.market is not None and pool.market != part.market)
    ):
        return False
    if pool.layout == "units":
        return part.topology is None or pool.topology == part.topology
    from stellwerk.scheduling.placement.index import layout_serves

    return layout_serves(pool, part)


def units_needed(pool: Pool, part: Part) -> tuple[int, int]:
    """(whole units, chips of a cell of one more) for one group of `part` on units of `pool`."""
    if pool.layout != "units":
        return divmod(part.chips, pool.chips)
    if part.topology is not None:
        return 1, 0
    return divmod(part.chips, pool.chips)


def units_for(pool: Pool, part: Part) -> int:
    """Units of `pool` that all groups of `part` take at least a cell of."""
    whole, cell = units_needed(pool, part)
    if whole == 0:
        return -(-part.count // max(1, pool.chips // cell))
    return part.count * (whole + bool(cell))
