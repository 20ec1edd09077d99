"""When time alone will change an answer: one time for each thing that waits for one, and the least of them.

Things are named: `("workload", key)`, `("pool", name)`, `("unit", name)`, `("shares", "")`. Setting a time replaces
the earlier one.
"""

from __future__ import annotations

from heapq import heappop, heappush

Name = tuple[str, str]

NOTICE = 300.0
"""Seconds before the end of a unit's lifetime at which its holders are told; a tenth of it if that is less."""


def notice(lifetime: float) -> float:
    """Seconds that the holders of a unit have from the notice to the end of its lifetime."""
    return min(NOTICE, lifetime / 10)


class Timers:
    """The next time of everything."""

    __slots__ = ("_heap", "due")

    def __init__(self) -> None:
        self.due: dict[Name, float] = {}
        self._heap: list[tuple[float, Name]] = []

    def set(self, name: Name, at: float | None) -> None:
        """Wake `name` at `at`, and not when it was said before; None: not at all."""
        if at is None:
            self.due.pop(name, None)
        elif self.due.get(name) != at:
            self.due[name] = at
            heappush(self._heap, (at, name))

    def next(self) -> float | None:
        """The least time, None when nothing waits for one."""
        heap, due = self._heap, self.due
        while heap:
            at, name = heap[0]
            if due.get(name) == at:
                return at
            heappop(heap)
        return None

    def any(self, now: float) -> bool:
        """Whether anything is due at `now`."""
        heap = self._heap
        if not heap or heap[0][0] > now:
            return False
        at = self.next()
        return at is not None and at <= now

    def pop(self, now: float) -> list[Name]:
        """What is due at `now`, in order; it is forgotten."""
        names: list[Name] = []
        while (at := self.next()) is not None and at <= now:
            _, name = heappop(self._heap)
            del self.due[name]
            names.append(name)
        return names
