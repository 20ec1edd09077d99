"""This machine as the one that plays a fleet: its memory, its own accelerators, and the pools it can offer."""

from __future__ import annotations

import os
from collections.abc import Sequence

from stellwerk.scheduling.model import Part, Pool
from stellwerk.scheduling.placement.units import serves


class LocalMachine:
    """What the local backend can carry."""

    def pools(self, parts: Sequence[Part]) -> tuple[Pool, ...]:
        """Pools that serve `parts`: the machine's own accelerators first, and emulated ones for what they cannot hold.

        What real hardware can hold is never emulated, so that nobody is given a CPU because the GPU is in use.
        """
        from stellwerk.backends.local import capacity, detect

        own = [pool for pool in detect.detect() if any(serves(pool, part) for part in parts)]
        others = [part for part in parts if not any(_holds(pool, part) for pool in own)]
        return (*own, *capacity.default_fleet(others))

    def footprint(self, accelerator: str, hosts: int, chips: int) -> int:
        """Memory (bytes) that one unit in use takes."""
        from stellwerk.backends.local import capacity

        return capacity.footprint(accelerator, hosts, chips)

    def memory(self) -> int | None:
        """Memory (bytes) that the machine can give."""
        from stellwerk.backends.local import capacity

        return capacity.machine_memory()

    def emulates(self, accelerator: str, chips: int) -> bool:
        """Whether a unit is played: CPUs are real as far as the machine has them."""
        return accelerator != "cpu" or chips > (os.cpu_count() or 1)

    def overhead(self) -> int:
        """Nothing: a unit's footprint has its share of what an attempt takes besides its units."""
        return 0


def _holds(pool: Pool, part: Part) -> bool:
    return serves(pool, part) and part.count * part.chips <= pool.maximum * pool.chips
