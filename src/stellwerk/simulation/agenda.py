"""What is to happen in a world, by time.

Most moments have one thing to happen. So the heap holds the moments alone, which compare as plain numbers, and a list
for each holds what is to happen then: by kind, then in the order in which it was entered.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from operator import itemgetter

Thing = tuple[int, str, int]
"""(kind, key, number): the kinds of one moment happen in their order."""


class Agenda:
    """Things to come; `times` is a heap of the moments at which there are any (s)."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._things: dict[float, list[Thing]] = {}

    def put(self, at: float, kind: int, key: str, number: int) -> None:
        """Something is to happen at a time."""
        things = self._things.get(at)
        if things is None:
            self._things[at] = [(kind, key, number)]
            heappush(self.times, at)
        else:
            things.insert(bisect_right(things, kind, key=itemgetter(0)), (kind, key, number))

    def pop(self) -> Thing:
        """The next that is to happen, at `times[0]`."""
        at = self.times[0]
        things = self._things[at]
        if len(things) == 1:
            heappop(self.times)
            del self._things[at]
            return things[0]
        return things.pop(0)
