"""What the indexes of layouts have in common in which a place within the pool is held, not a number of chips.

What units themselves say is held of them does not tell the place. So such an index knows what is held from `take` and
`give` alone, and remembers it for units that are not there: noting and retaking are the same as taking.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.ends import Ends


class PlacedIndex(ABC):
    """The beginning of a `PoolIndex` that keeps places."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.track, self.plain = pool, True, False
        self.free: int = 0
        self._ends = Ends()

    @abstractmethod
    def take(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """The holder `key` has these, and is expected to end at `until`."""

    def note(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """As `take`; what units say is held of them is not looked at here, since it does not tell the place."""
        self.take(grants, key, until, now)

    def retake(self, grants: tuple[Grant, ...], key: str, until: float, since: float) -> None:
        """As `take`, for a holder that had these before; units that are not there any more may be among them."""
        self.take(grants, key, until, since)


def matches(pool: Pool, part: Part) -> bool:
    """Whether accelerator, machine and market of a pool are those a part asks for."""
    return (
        pool.accelerator == part.accelerator
        and part.machine in (None, pool.machine)
        and part.market in (None, pool.market)
    )
