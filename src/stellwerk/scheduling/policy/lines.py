"""The waiting workloads of one class, in the order in which they are to be served.

A class is made of workloads with equal options, queue and priority, so one answer holds for all of them: where the
first does not fit, none does. Three kinds of line:

* `AgeLine` by age: who comes last is entered at the end, and who is served leaves at the front, both in O(1); whoever
  leaves from within is found by bisection;
* `PassLine`, for policies that let shorter work pass: also "the first that takes at most so long", by a tree of least
  estimates over the positions of the line, O(log n);
* `HeapLine` by any key (remaining time, for `sjf`), then age: the first in O(1), in and out in O(log n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from stellwerk.scheduling.state import WorkloadState

INF: Final = float("inf")

WIDTH: Final = 16
"""Children of a node in the tree of a `PassLine`."""


class Line(ABC):
    """A line of waiting workloads, `size` of them."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0

    @abstractmethod
    def push(self, workload: WorkloadState, key: float, runtime: float) -> None:
        """Enter a workload; `key` orders the line, `runtime` is its estimate (s), `inf` without one."""

    @abstractmethod
    def leave(self, workload: WorkloadState) -> None:
        """The workload no longer waits, or not here."""

    @abstractmethod
    def move(self, workload: WorkloadState, key: float) -> None:
        """A workload in the line has another key."""

    @abstractmethod
    def first(self) -> WorkloadState | None:
        """Who is to be served first."""

    @abstractmethod
    def first_within(self, runtime: float) -> WorkloadState | None:
        """The first that takes at most `runtime` (s), where shorter work may pass."""

    @abstractmethod
    def after(self, workload: WorkloadState) -> WorkloadState | None:
        """Who comes after `workload`, which need not be in the line any more."""

    @abstractmethod
    def __iter__(self) -> Iterator[WorkloadState]:
        """All, in order."""


class AgeLine(Line):
    """A line by age. `_items[n]` has the age `_orders[n]`; whoever has left is None. Before `_head` all have left."""

    __slots__ = ("_head", "_items", "_orders")

    def __init__(self) -> None:
        super().__init__()
        self._orders: list[int] = []
        self._items: list[WorkloadState | None] = []
        self._head = 0

    def push(self, workload: WorkloadState, key: float, runtime: float) -> None:
        """Enter a workload by its age."""
        orders, order = self._orders, workload.order
        self.size += 1
        if not orders or order > orders[-1]:
            orders.append(order)
            self._items.append(workload)
            self._appended(runtime)
            return
        position = bisect_left(orders, order)
        if orders[position] == order:
            self._items[position] = workload
            self._returned(position, runtime)
        else:
            orders.insert(position, order)
            self._items.insert(position, workload)
            self._inserted(position, runtime)
        if position < self._head:
            self._head = position

    def leave(self, workload: WorkloadState) -> None:
        """The workload no longer waits."""
        self.size -= 1
        if not self.size:
            self._orders, self._items, self._head = [], [], 0
            self._cleared()
            return
        items, position = self._items, self._head
        if items[position] is not workload:
            position = bisect_left(self._orders, workload.order)
        items[position] = None
        self._left(position)
        if len(items) > 64 and self.size * 4 < len(items):
            self._compact()

    def move(self, workload: WorkloadState, key: float) -> None:
        """Age alone orders this line."""

    def first(self) -> WorkloadState | None:
        """Who is to be served first."""
        if not self.size:
            return None
        items, position = self._items, self._head
        while (found := items[position]) is None:
            position += 1
        self._head = position
        return found

    def first_within(self, runtime: float) -> WorkloadState | None:
        """Nobody passes in such a line."""
        return None

    def after(self, workload: WorkloadState) -> WorkloadState | None:
        """Who comes after `workload`."""
        position = bisect_left(self._orders, workload.order + 1)
        for item in islice(self._items, position, None):
            if item is not None:
                return item
        return None

    def __iter__(self) -> Iterator[WorkloadState]:
        """All, in order."""
        for item in self._items:
            if item is not None:
                yield item

    def _compact(self) -> None:
        kept = [index for index, item in enumerate(self._items) if item is not None]
        self._orders = [self._orders[index] for index in kept]
        self._items = [self._items[index] for index in kept]
        self._head = 0
        self._compacted(kept)

    def _appended(self, runtime: float) -> None:
        """Somebody with this estimate is at the end."""

    def _inserted(self, position: int, runtime: float) -> None:
        """Somebody is at this position, and all from there on are one further."""

    def _returned(self, position: int, runtime: float) -> None:
        """Somebody is at a position where one of the same age has left."""

    def _left(self, position: int) -> None:
        """Nobody is at this position any more."""

    def _cleared(self) -> None:
        """Nobody is left."""

    def _compacted(self, kept: list[int]) -> None:
        """These positions are left, and are now the only ones."""


class PassLine(AgeLine):
    """A line by age, with the least estimate of every stretch of it in a tree.

    `_rows[0][n]` is the estimate of `_items[n]`; a row above holds the least of every `WIDTH` of the row below, the
    last one the least of all. Whoever has left has no estimate.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        super().__init__()
        self._cleared()

    def first_within(self, runtime: float) -> WorkloadState | None:
        """The first that takes at most `runtime` (s)."""
        rows, position = self._rows, 0
        if rows[-1][0] > runtime or rows[-1][0] == INF:
            return None
        for row in reversed(rows[:-1]):
            position *= WIDTH
            while row[position] > runtime:
                position += 1
        return self._items[position]

    def _cleared(self) -> None:
        self._rows: list[list[float]] = [[], [INF]]

    def _appended(self, runtime: float) -> None:
        rows = self._rows
        position = len(rows[0])
        rows[0].append(runtime)
        for row in rows[1:]:
            position //= WIDTH
            if position == len(row):
                row.append(runtime)
            elif runtime < row[position]:
                row[position] = runtime
        if len(rows[-1]) > 1:
            rows.append([min(rows[-1])])

    def _inserted(self, position: int, runtime: float) -> None:
        self._rows[0].insert(position, runtime)
        self._build(self._rows[0])

    def _returned(self, position: int, runtime: float) -> None:
        self._rows[0][position] = runtime
        for row in self._rows[1:]:
            position //= WIDTH
            if runtime >= row[position]:
                break
            row[position] = runtime

    def _left(self, position: int) -> None:
        below = self._rows[0]
        runtime = below[position]
        if runtime == INF:
            return
        below[position] = INF
        for row in self._rows[1:]:
            position //= WIDTH
            if row[position] < runtime:
                break
            row[position] = min(below[position * WIDTH : (position + 1) * WIDTH])
            below = row

    def _compacted(self, kept: list[int]) -> None:
        runtimes = self._rows[0]
        self._build([runtimes[index] for index in kept])

    def _build(self, row: list[float]) -> None:
        self._rows = [row]
        while len(row) > 1 or len(self._rows) < 2:
            row = [min(row[start : start + WIDTH]) for start in range(0, len(row), WIDTH)]
            self._rows.append(row)


class HeapLine(Line):
    """A line by any key, then age.

    An entry is valid as long as its workload waits and has not been granted since it was entered; those that are not
    are dropped when they come to the front.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int, int, WorkloadState]] = []

    def push(self, workload: WorkloadState, key: float, runtime: float) -> None:
        """Enter a workload."""
        heappush(self._heap, (key, workload.order, len(workload.attempts), workload))
        self.size += 1

    def leave(self, workload: WorkloadState) -> None:
        """The workload no longer waits; its phase or its attempts say so."""
        self.size -= 1

    def move(self, workload: WorkloadState, key: float) -> None:
        """A workload in the line has another key; this walks the line."""
        self._heap = [entry for entry in self._heap if entry[3] is not workload]
        self._heap.append((key, workload.order, len(workload.attempts), workload))
        heapify(self._heap)

    def first(self) -> WorkloadState | None:
        """Who is to be served first."""
        heap = self._heap
        while heap:
            _, _, attempts, workload = heap[0]
            if workload.phase == "waiting" and len(workload.attempts) == attempts:
                return workload
            heappop(heap)
        return None

    def first_within(self, runtime: float) -> WorkloadState | None:
        """Nobody passes in such a line."""
        return None

    def after(self, workload: WorkloadState) -> WorkloadState | None:
        """Who comes after `workload`; this walks the line."""
        found = False
        for other in self:
            if found:
                return other
            found = other is workload
        return None

    def __iter__(self) -> Iterator[WorkloadState]:
        """All, in order."""
        for _, _, attempts, workload in sorted(self._heap, key=lambda entry: entry[:2]):
            if workload.phase == "waiting" and len(workload.attempts) == attempts:
                yield workload
