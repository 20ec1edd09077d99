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
from typing import Protocol

from stellwerk.scheduling.state import WorkloadState

INF = float("inf")


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
    """A line by age, with the least estimate of every stretch of it in a tree."""

    __slots__ = ("_head", "_items", "_orders", "_room", "_tree", "size")

    def __init__(self) -> None:
        self._orders: list[int] = []
        self._items: list[WorkloadState | None] = []
        self._head = 0
        self._room = 8
        self._tree = [INF] * 16
        self.size = 0

    def push(self, workload: WorkloadState, key: float, runtime: float) -> None:
        """Enter a workload by its age."""
        orders = self._orders
        position = len(orders)
        if orders and workload.order <= orders[-1]:
            position = bisect_left(orders, workload.order)
            if orders[position] != workload.order:
                orders.insert(position, workload.order)
                self._items.insert(position, None)
                self._remake(position, runtime)
        else:
            orders.append(workload.order)
            self._items.append(None)
            if position == self._room:
                self._remake(position, runtime)
        self._items[position] = workload
        if position < self._head:
            self._head = position
        self._set(position, runtime)
        self.size += 1

    def leave(self, workload: WorkloadState) -> None:
        """The workload no longer waits."""
        position = bisect_left(self._orders, workload.order)
        self._items[position] = None
        self._set(position, INF)
        self.size -= 1
        if not self.size:
            self._orders, self._items, self._head = [], [], 0
        elif len(self._orders) > 64 and self.size * 4 < len(self._orders):
            self._compact()

    def move(self, workload: WorkloadState, key: float) -> None:
        """Age alone orders this line."""

    def first(self) -> WorkloadState | None:
        """Who is to be served first."""
        items, position = self._items, self._head
        most = len(items)
        while position < most:
            if (found := items[position]) is not None:
                self._head = position
                return found
            position += 1
        self._head = most
        return None

    def first_within(self, runtime: float) -> WorkloadState | None:
        """The first that takes at most `runtime` (s)."""
        tree, node = self._tree, 1
        if tree[1] > runtime or tree[1] == INF:
            return None
        while node < self._room:
            node *= 2
            if tree[node] > runtime:
                node += 1
        return self._items[node - self._room]

    def after(self, workload: WorkloadState) -> WorkloadState | None:
        """Who comes after `workload`."""
        position = bisect_left(self._orders, workload.order + 1)
        return next((item for item in self._items[position:] if item is not None), None)

    def __iter__(self) -> Iterator[WorkloadState]:
        """All, in order."""
        return (item for item in self._items if item is not None)

    def _set(self, position: int, runtime: float) -> None:
        tree, node = self._tree, position + self._room
        tree[node] = runtime
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            least = left if left < right else right
            if tree[node] == least:
                break
            tree[node] = least

    def _leaves(self) -> list[float]:
        return self._tree[self._room : self._room + len(self._items)]

    def _remake(self, position: int, runtime: float) -> None:
        """Make room for one more leaf at `position`."""
        leaves = self._tree[self._room : self._room + len(self._items) - 1]
        leaves.insert(position, runtime)
        self._build(leaves)

    def _compact(self) -> None:
        leaves = self._leaves()
        kept = [index for index, item in enumerate(self._items) if item is not None]
        self._orders = [self._orders[index] for index in kept]
        self._items = [self._items[index] for index in kept]
        self._head = 0
        self._build([leaves[index] for index in kept])

    def _build(self, leaves: list[float]) -> None:
        room = 8
        while room < len(leaves) + 1:
            room *= 2
        tree = [INF] * room + leaves + [INF] * (room - len(leaves))
        for node in range(room - 1, 0, -1):
            tree[node] = min(tree[2 * node], tree[2 * node + 1])
        self._room, self._tree = room, tree
