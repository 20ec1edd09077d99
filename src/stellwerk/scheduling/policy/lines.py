"""The waiting workloads of one class, in the order in which they are to be served.

A class is made of workloads with equal options, queue and priority, so one answer holds for all of them: where the
first does not fit, none does. Two kinds of line:

* `HeapLine` by any key (age, or remaining time for `sjf`): the first in O(1), in and out in O(log n);
* `AgeLine` by age, for policies that let shorter work pass: also "the first that takes at most so long", by a tree of
  least estimates over the positions of the line, O(log n).

An entry is valid as long as its workload waits and has not been granted since it was entered; those that are not are
dropped when they come to the front.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Protocol

from stellwerk.scheduling.state import WorkloadState

INF = float("inf")

WIDTH = 16
"""Children of a node in the tree of an `AgeLine`."""


class Line(Protocol):
    """A line of waiting workloads."""

    size: int

    def push(self, workload: WorkloadState, key: float, runtime: float) -> None:
        """Enter a workload; `key` orders the line, `runtime` is its estimate (s), `inf` without one."""
        ...

    def leave(self, workload: WorkloadState) -> None:
        """The workload no longer waits, or not here."""
        ...

    def move(self, workload: WorkloadState, key: float) -> None:
        """A workload in the line has another key."""
        ...

    def first(self) -> WorkloadState | None:
        """Who is to be served first."""
        ...

    def first_within(self, runtime: float) -> WorkloadState | None:
        """The first that takes at most `runtime` (s)."""
        ...

    def after(self, workload: WorkloadState) -> WorkloadState | None:
        """Who comes after `workload`, which need not be in the line any more."""
        ...

    def __iter__(self) -> Iterator[WorkloadState]:
        """All, in order."""
        ...


class HeapLine:
    """A line by any key, then age."""

    __slots__ = ("_heap", "size")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, WorkloadState]] = []
        self.size = 0

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


class AgeLine:
    """A line by age, with the least estimate of every stretch of it in a tree.

    `_items[n]` has the age `_orders[n]` and the estimate `_rows[0][n]`; a row above holds the least of every `WIDTH` of
    the row below, the last one the least of all. Whoever has left is None, without an estimate.
    """

    __slots__ = ("_head", "_items", "_orders", "_rows", "size")

    def __init__(self) -> None:
        self._clear()
        self.size = 0

    def _clear(self) -> None:
        self._orders: list[int] = []
        self._items: list[WorkloadState | None] = []
        self._rows: list[list[float]] = [[], [INF]]
        self._head = 0

    def push(self, workload: WorkloadState, key: float, runtime: float) -> None:
        """Enter a workload by its age."""
        orders, position = self._orders, len(self._orders)
        self.size += 1
        if not orders or workload.order > orders[-1]:
            orders.append(workload.order)
            self._items.append(workload)
            self._append(position, runtime)
            return
        position = bisect_left(orders, workload.order)
        if orders[position] != workload.order:
            orders.insert(position, workload.order)
            self._items.insert(position, workload)
            self._rows[0].insert(position, runtime)
            self._build(self._rows[0])
        else:
            self._items[position] = workload
            self._rows[0][position] = runtime
            self._lower(position, runtime)
        if position < self._head:
            self._head = position

    def leave(self, workload: WorkloadState) -> None:
        """The workload no longer waits."""
        self.size -= 1
        if not self.size:
            self._clear()
            return
        position = bisect_left(self._orders, workload.order)
        self._items[position] = None
        runtime = self._rows[0][position]
        if runtime < INF:
            self._rows[0][position] = INF
            self._raise(position, runtime)
        if len(self._orders) > 64 and self.size * 4 < len(self._orders):
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
        """The first that takes at most `runtime` (s)."""
        rows, position = self._rows, 0
        if rows[-1][0] > runtime or rows[-1][0] == INF:
            return None
        for row in reversed(rows[:-1]):
            position *= WIDTH
            while row[position] > runtime:
                position += 1
        return self._items[position]

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

    def _append(self, position: int, runtime: float) -> None:
        """A new estimate at the end."""
        rows = self._rows
        rows[0].append(runtime)
        for row in rows[1:]:
            position //= WIDTH
            if position == len(row):
                row.append(runtime)
            elif runtime < row[position]:
                row[position] = runtime
        if len(rows[-1]) > 1:
            rows.append([min(rows[-1])])

    def _lower(self, position: int, runtime: float) -> None:
        """An estimate is there where there was none."""
        for row in self._rows[1:]:
            position //= WIDTH
            if runtime >= row[position]:
                break
            row[position] = runtime

    def _raise(self, position: int, runtime: float) -> None:
        """An estimate is there no more."""
        below = self._rows[0]
        for row in self._rows[1:]:
            position //= WIDTH
            if row[position] < runtime:
                break
            row[position] = min(below[position * WIDTH : (position + 1) * WIDTH])
            below = row

    def _compact(self) -> None:
        kept = [index for index, item in enumerate(self._items) if item is not None]
        runtimes = self._rows[0]
        self._orders = [self._orders[index] for index in kept]
        self._items = [self._items[index] for index in kept]
        self._head = 0
        self._build([runtimes[index] for index in kept])

    def _build(self, row: list[float]) -> None:
        self._rows = [row]
        while len(row) > 1 or len(self._rows) < 2:
            row = [min(row[start : start + WIDTH]) for start in range(0, len(row), WIDTH)]
            self._rows.append(row)
