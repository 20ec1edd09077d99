"""Who holds what until when, as far as is known: what a forecast of free hardware starts from.

A holder that is past its expected end is expected to take as long again, then twice, and so on, never less than a
minute: the longer something has overrun, the less its estimate says.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from stellwerk.scheduling.model import Grant
from stellwerk.scheduling.placement.counts import SHORTEST


class Ends:
    """Holders by key, in the order of their expected ends."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[tuple[Grant, ...], float, float, float]] = {}
        self._order: list[tuple[float, str]] = []

    def hold(self, key: str, grants: tuple[Grant, ...], since: float, until: float) -> None:
        """`key` has these grants since `since` and is expected to end at `until`."""
        self._enter(key, grants, since, until, max(until - since, SHORTEST))

    def _enter(self, key: str, grants: tuple[Grant, ...], since: float, until: float, span: float) -> None:
        self._holders[key] = (grants, since, until, span)
        insort(self._order, (until, key))

    def leave(self, key: str) -> None:
        """`key` holds nothing any more; nothing happens if it held nothing."""
        if key in self._holders:
            _, _, until, _ = self._holders.pop(key)
            del self._order[bisect_left(self._order, (until, key))]

    def expected(self, now: float) -> Iterator[tuple[float, Grant]]:
        """Each grant with the time at which it is given back, all later than `now`, soonest first."""
        self._prolong_all(now)
        for until, key in self._order:
            for grant in self._holders[key][0]:
                yield until, grant

    def content(self, now: float) -> list[tuple[float, str]]:
        """Expected ends by key, all later than `now`, to be compared."""
        self._prolong_all(now)
        return list(self._order)

    def _prolong_all(self, now: float) -> None:
        while self._order and self._order[0][0] <= now:
            self._prolong(self._order[0][1], now)

    def _prolong(self, key: str, now: float) -> None:
        """The span is doubled as it was first told, so that it matters to no digit when anybody looked."""
        grants, since, _, span = self._holders[key]
        while since + span <= now:
            span *= 2.0
        self.leave(key)
        self._enter(key, grants, since, since + span, span)
