"""The latest submissions, and what may be submitted next: the recent past once more, from another moment on.

Work that comes later may start earlier: it is short, its queue has had little, its priority is higher. So a forecast
needs it. The submissions of the last `WINDOW` are repeated in their order and with their distances, beginning at a
drawn moment of the window (a stationary bootstrap with one block), and begin anew when they are through. That keeps
the rate, the bursts, and who asks for what.

Limits: nothing is learnt of days and weeks, and a burst that goes on just now is as likely to go on as it was at any
other time of the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from stellwerk.scheduling.events import Submitted
from stellwerk.scheduling.model import Demand

WINDOW = 7 * 86_400.0
"""Seconds of the past that may come again."""

MOST = 2048
"""Submissions that are remembered, the latest."""

LEAST = 16
SHORTEST = 86_400.0
"""Submissions, and seconds that they span, without which nothing is said of those to come: a first burst would be
taken for what always happens."""

MARK = "\0"
"""Keys of submissions that only a forecast makes begin with this."""


class Arrivals:
    """Submissions of the last `WINDOW` seconds, at most `MOST`."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Demand]] = deque(maxlen=MOST)

    def copy(self) -> Arrivals:
        """Arrivals of its own with the same content."""
        made = Arrivals()
        made._kept = self._kept.copy()
        return made

    def plain(self) -> list[dict[str, Any]]:
        """The submissions as events are written down."""
        from stellwerk.scheduling.codec import encode

        return [encode(Submitted(at, demand)) for at, demand in self._kept]

    @classmethod
    def of_plain(cls, rows: list[dict[str, Any]]) -> Arrivals:
        """What `plain` wrote; ValueError when it is not that."""
        from stellwerk.scheduling.codec import decode_event

        made = cls()
        for row in rows:
            event = decode_event("Submitted", row)
            assert isinstance(event, Submitted)
            made._kept.append((event.at, event.demand))
        return made

    def note(self, at: float, demand: Demand) -> None:
        """Remember a submission; they come in the order of their times."""
        kept = self._kept
        kept.append((at, demand))
        while kept[0][0] < at - WINDOW:
            kept.popleft()

    def to_come(self, now: float, place: float) -> Iterator[tuple[float, Demand]]:
        """Submissions after `now` with their times, without an end; `place` in [0, 1) is the moment to begin at."""
        past = tuple(self._kept)
        span = now - past[0][0] if past else 0.0
        if len(past) < LEAST or span < SHORTEST:
            return
        begin = past[0][0] + place * span
        ahead = [(at - begin if at > begin else at - begin + span, demand) for at, demand in past]
        ahead.sort(key=lambda pair: pair[0])
        number = 0
        while True:
            for wait, demand in ahead:
                number += 1
                yield now + wait, _again(demand, f"{MARK}{number}")
            now += span


def _again(demand: Demand, key: str) -> Demand:
    """The same demand under another key."""
    made = Demand(
        key,
        demand.name,
        demand.kind,
        demand.options,
        demand.queue,
        demand.priority,
        demand.runtime,
        demand.limits,
        demand.retries,
        demand.user,
    )
    return made
