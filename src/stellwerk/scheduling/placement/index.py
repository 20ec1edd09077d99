"""The index of one pool's free hardware: what every decision about placement asks, and asks often.

One index for each way that hardware is handed out (`Pool.layout`); the policy knows only this protocol. Units are known
by rank, their place in the natural order of names, and sets of units are whole numbers with one bit for each rank:
exact, small, quick to combine, and the same whatever order the units came in.

* `need` compiles a part once; all questions are then asked with the `Need`.
* `fit` finds grants and changes nothing; `avoid` is a set of units that must not be touched. `take` and `give` change
  what is free; `take` is told when the holder is expected to end (`inf` when nobody knows).
* `put` and `drop` tell that a unit can be handed out now, or no longer; `expect` that it will be at some time.
* `earliest` answers when a need could be met if everything ends as expected, and on which units (a `Forecast`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from stellwerk.scheduling.model import Grant, Part, Pool
from stellwerk.scheduling.placement.units import units_for, units_needed
from stellwerk.scheduling.state import UnitState

INF: Final = float("inf")


class Need:
    """One part on one pool, compiled: `count` groups of `whole` units and a cell of `cell` chips of one more.

    `units` is how many units all groups touch, `form` what a layout keeps for itself. Compared by identity.
    """

    __slots__ = ("cell", "count", "form", "part", "single", "units", "whole")

    def __init__(self, pool: Pool, part: Part, form: Any = None) -> None:
        self.part = part
        self.whole, self.cell = units_needed(pool, part)
        self.count = part.count
        self.units = units_for(pool, part)
        self.single = self.whole == 0 and self.count == 1
        self.form = form


@dataclass(frozen=True, slots=True)
class Forecast:
    """A need could be met at `at` (`inf`: not as far as is known) on the set of units `mask`."""

    at: float
    mask: int


class PoolIndex(Protocol):
    """What is free in one pool; see the module."""

    pool: Pool
    track: bool
    plain: bool
    free: int
    """Chips that could be granted now, in whatever shape."""

    def need(self, part: Part) -> Need | None:
        """The compiled part; None when no state of this pool could ever hold it."""
        ...

    def most(self, part: Part) -> int:
        """Groups of `part` that this pool could hold if it were at its maximum and empty."""
        ...

    def fit(self, need: Need, avoid: int = 0) -> tuple[Grant, ...] | None:
        """Grants for all groups of `need`, or None."""
        ...

    def fits(self, need: Need, avoid: int = 0) -> bool:
        """Whether `fit` would find grants."""
        ...

    def take(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """The holder `key` has these, and is expected to end at `until`."""
        ...

    def retake(self, grants: tuple[Grant, ...], key: str, until: float, since: float) -> None:
        """As `take`, for a holder that had these before; units that cannot be handed out any more may be among
        them."""
        ...

    def note(self, grants: tuple[Grant, ...], key: str, until: float, now: float) -> None:
        """As `take`, for what the units already say is held (an index that is made anew)."""
        ...

    def give(self, grants: tuple[Grant, ...], key: str) -> None:
        """The holder has left these."""
        ...

    def put(self, unit: UnitState) -> None:
        """`unit` can be handed out, but for what is held of it."""
        ...

    def drop(self, name: str) -> None:
        """The unit cannot be handed out, for now or for ever."""
        ...

    def expect(self, name: str, at: float) -> None:
        """The unit cannot be handed out yet, and will be at `at`."""
        ...

    def earliest(self, need: Need, now: float) -> Forecast:
        """When and where `need` could be met at the latest, if all holders end as expected."""
        ...

    def largest(self) -> tuple[int, str]:
        """The largest group that could be placed now: its chips, and its shape in words (`2x4`, `12 chips`)."""
        ...

    def fragmentation(self) -> float:
        """How far the largest group that could be placed now is from what all free chips together would make.

        0 when they lie as well as they could (or none is free), towards 1 when they are scattered.
        """
        ...

    def whole_free(self, avoid: int = 0) -> int:
        """Units that are wholly free, and not in `avoid`."""
        ...

    def content(self, now: float) -> object:
        """Everything that a decision at `now` depends on, to be compared with that of an index made anew."""
        ...


Maker = Callable[[Pool], PoolIndex]


def make(pool: Pool, *, track: bool = True, plain: bool = False) -> PoolIndex:
    """The index for a pool's layout, empty. Raises ValueError for a layout that nobody knows.

    `track` keeps what forecasts need, `plain` takes the first place of a pod that fits, as simple schedulers do.
    """
    index = _maker(pool.layout)(pool)
    index.track, index.plain = track, plain
    return index


def layout_serves(pool: Pool, part: Part) -> bool:
    """Whether a pool of another layout than `units` has the shape that `part` asks for."""
    return make(pool).need(part) is not None


def _maker(layout: str) -> Maker:
    if layout == "units":
        from stellwerk.scheduling.placement.counts import CountIndex

        return CountIndex
    if layout == "subslices":
        from stellwerk.scheduling.placement.subslice_index import SubsliceIndex

        return SubsliceIndex
    if layout in ("torus", "optical"):
        from stellwerk.scheduling.placement.pod_index import PodIndex

        return PodIndex
    raise ValueError(f"no index knows the layout {layout!r}")
