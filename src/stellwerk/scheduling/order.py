"""Who comes first of those who wait for the same hardware: in a lane, or in a shape.

The order of all is priority, then how much of its fair share the queue uses, then the policy's key, then age. A class
has one `Entry`, that of its first member; where it is read often it is read by position, which takes less than a name.
There are two ways to keep the order:

* `EntryOrder`, where queues do not come in turn: a heap of entries. Old ones are dropped where they are met.
* `ShareOrder`, where they do. The level of a queue changes whenever anything of it starts or ends, and with it the
  place of all that it has waiting. So no place that holds a level is written down: there is a heap for each queue (a
  row), and `Standings` keeps all queues that wait in the order of their levels, once. The first is found by walking
  down the standings to a queue that waits here. Where many queues wait here the walk is short; where few do, they are
  compared instead. A change of level therefore costs the same however much waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.scheduling.index import Account, Entry, WaitClass

INF: Final = float("inf")
FEW = 16
"""Queues that are compared with each other rather than looked for in the standings."""

Row = list[tuple[float, int, "WaitClass"]]
"""The classes of one queue and priority as a heap: (policy's key, age of its first, class)."""


class Order(ABC):
    """Classes in the order in which they are to be served."""

    __slots__ = ()

    @abstractmethod
    def put(self, entry: Entry, before: Entry | None, classes: int) -> bool:
        """A class has a new place, in place of the one `before`; about so many `classes` have one here. Whether who is
        first has changed."""

    @abstractmethod
    def drop(self, entry: Entry) -> bool:
        """A class has no place any more, as its `entry` says already; whether it was first."""

    @abstractmethod
    def set_aside(self, entry: Entry) -> None:
        """The first is passed over until it is put here again."""

    @abstractmethod
    def first(self) -> Entry | None:
        """The entry to be served first."""

    @abstractmethod
    def moved(self, account: Account) -> bool:
        """The level of a queue has changed; whether who is first has."""

    @abstractmethod
    def __iter__(self) -> Iterator[WaitClass]:
        """The classes in order: of each queue and priority at least the first."""

    @abstractmethod
    def upto(self, level: float) -> Iterator[WaitClass]:
        """Those of them whose queue is at that level at most."""


class EntryOrder(Order):
    """The order where all queues are equal."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Entry] = []

    def put(self, entry: Entry, before: Entry | None, classes: int) -> bool:
        """A class has a new place."""
        heap = self._heap
        if before is not None and heap and heap[0][6] == before[6]:
            heapreplace(heap, entry)
            return True
        heappush(heap, entry)
        if len(heap) > 64 + 4 * classes:
            heap[:] = [each for each in heap if each[4].serial == each[6]]
            heapify(heap)
        return heap[0][6] == entry[6]

    def drop(self, entry: Entry) -> bool:
        """A class has no place any more."""
        return bool(self._heap) and self._heap[0][6] == entry[6]

    def set_aside(self, entry: Entry) -> None:
        """The first is passed over."""
        heappop(self._heap)

    def first(self) -> Entry | None:
        """The entry to be served first."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[4].serial == entry[6]:
                return entry
            heappop(heap)
        return None

    def moved(self, account: Account) -> bool:
        """Levels do not count here."""
        return False

    def __iter__(self) -> Iterator[WaitClass]:
        """All classes, without disturbing the heap: each costs the logarithm of those before it."""
        heap = self._heap
        front = [(heap[0], 0)] if self.first() is not None else []
        while front:
            entry, position = heappop(front)
            if entry[4].serial == entry[6]:
                yield entry[4]
            for child in (2 * position + 1, 2 * position + 2):
                if child < len(heap):
                    heappush(front, (heap[child], child))

    def upto(self, level: float) -> Iterator[WaitClass]:
        """All classes: every level is 0."""
        return iter(self)


class Standings:
    """The queues of which anything waits, in the order of their levels."""

    def __init__(self) -> None:
        self._order: list[tuple[float, int, Account]] = []

    def enter(self, account: Account) -> None:
        """Something of a queue waits."""
        insort(self._order, (account.level, account.number, account))

    def leave(self, account: Account) -> None:
        """Nothing of a queue waits any more."""
        del self._order[bisect_left(self._order, (account.level, account.number))]

    def move(self, account: Account, level: float) -> None:
        """A queue has a new level."""
        if account.classes:
            self.leave(account)
            account.level = level
            self.enter(account)
        else:
            account.level = level

    def ascending(self, accounts: Mapping[Account, object]) -> Iterator[Account]:
        """Those of the queues that are in `accounts`, the lowest level first."""
        if len(accounts) <= FEW:
            return iter(sorted(accounts, key=_standing))
        return self._walk(accounts)

    def _walk(self, accounts: Mapping[Account, object]) -> Iterator[Account]:
        for _, _, account in self._order:
            if account in accounts:
                yield account


def _standing(account: Account) -> tuple[float, int]:
    return account.level, account.number


class ShareOrder(Order):
    """The order where the queue that uses the least of its share comes first."""

    __slots__ = ("_first", "_known", "_rows", "_standings")

    def __init__(self, standings: Standings) -> None:
        self._standings = standings
        self._rows: dict[int, dict[Account, Row]] = {}
        self._first: Entry | None = None
        self._known = True

    def put(self, entry: Entry, before: Entry | None, classes: int) -> bool:
        """A class has a new place."""
        found, first = entry[4], self._first
        row = self._rows.setdefault(entry[0], {}).setdefault(found.account, [])
        heappush(row, (entry[2], entry[3], found))
        if len(row) > 64 + 4 * len(found.account.classes):
            row[:] = {each[2]: each for each in row if _holds(each)}.values()
            heapify(row)
        if not self._known:
            return False
        if first is not None and first[4] is found:
            self._known = False
            return True
        if first is None or entry[:4] < first[:4]:
            self._first = entry
            return True
        return False

    def drop(self, entry: Entry) -> bool:
        """A class has no place any more."""
        first = self._first
        self._prune(entry[0], entry[4].account)
        if not self._known or first is None or first[4] is not entry[4]:
            return False
        self._known = False
        return True

    def set_aside(self, entry: Entry) -> None:
        """The first is passed over."""
        heappop(self._rows[entry[0]][entry[4].account])
        self._prune(entry[0], entry[4].account)
        self._known = False

    def _prune(self, rank: int, account: Account) -> None:
        """Forget a row in which nothing is left."""
        rows = self._rows.get(rank, {})
        if account in rows and _top(rows[account]) is None:
            del rows[account]
            if not rows:
                del self._rows[rank]

    def first(self) -> Entry | None:
        """The entry to be served first, with the level that its queue has now."""
        if not self._known:
            self._first = next(self._entries(), None)
            self._known = True
        return self._first

    def moved(self, account: Account) -> bool:
        """The level of a queue has changed; whether another may be first now."""
        first = self._first
        if first is None or not self._known:
            return False
        if first[4].account is not account and (
            account.level > first[1] or account not in self._rows.get(first[0], {})
        ):
            return False
        self._known = False
        now = self.first()
        return now is None or now[5] is not first[5]

    def __iter__(self) -> Iterator[WaitClass]:
        """The first class of each queue and priority, in order."""
        return self.upto(INF)

    def upto(self, level: float) -> Iterator[WaitClass]:
        """Those of them whose queue is at that level at most."""
        for entry in self._entries(level):
            yield entry[4]

    def _entries(self, most: float = INF) -> Iterator[Entry]:
        for rank in sorted(self._rows):
            yield from self._of_rank(self._rows[rank], most)

    def _of_rank(self, rows: dict[Account, Row], most: float) -> Iterator[Entry]:
        """Queues from the lowest level on, up to one; those of one level by what comes first of each."""
        equal: list[Entry] = []
        for account in self._standings.ascending(rows):
            if account.level > most:
                break
            if equal and account.level != equal[0][1]:
                yield from sorted(equal, key=_place)
                equal.clear()
            entry = _top(rows[account])
            if entry is not None:
                equal.append(entry)
        yield from sorted(equal, key=_place)


def _place(entry: Entry) -> tuple[int, float, float, int]:
    return entry[:4]


def _holds(each: tuple[float, int, WaitClass]) -> bool:
    entry = each[2].entry
    return entry is not None and entry[2:4] == each[:2]


def _top(row: Row) -> Entry | None:
    """The first entry of a queue, brought up to date with its level."""
    while row:
        if _holds(row[0]):
            found = row[0][2]
            return found.current()
        heappop(row)
    return None
