"""What makes decisions fast: indexes derived from the state, never told by events, never written down.

* a `Lane` for each pool: what is free there, and who waits for it, in order;
* a `Shape` for each set of options that was ever asked for: the same hardware, compiled once for all who ask it;
* a `WaitClass` for each shape, queue and priority: one answer for all its members;
* an `Account` for each queue, and a `Cohort` for those that lend each other.

An `Entry` is a class's place in the order of all: priority, then how much of its fair share its queue uses, then the
policy's key, then age. A class has one valid entry, that of its first member; older ones are dropped where met.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from stellwerk.scheduling.model import Option, Pool, Queue, Reason
from stellwerk.scheduling.placement.counts import CountIndex
from stellwerk.scheduling.placement.index import INF, Forecast, Need, PoolIndex
from stellwerk.scheduling.policy.lines import Line
from stellwerk.scheduling.state import WorkloadState

Quick = tuple[CountIndex, Need]
"""What a workload of the plain case asks of which places (see `plain`)."""

Entry = tuple[int, float, float, int, "WaitClass", WorkloadState]
"""(minus priority, share used, policy's key, age, class, its first): the smaller is served first."""


class Lane:
    """One pool: its places and its waiting classes. `blocked` is the last reservation made for its
    first, `classes` how many classes are in its order, `counts` its places where they are chips by count."""

    __slots__ = ("active", "aside", "blocked", "classes", "counts", "elastic", "heap", "number", "places", "pool")

    def __init__(self, pool: Pool, places: PoolIndex, number: int) -> None:
        self.pool, self.places, self.number = pool, places, number
        self.counts = places if isinstance(places, CountIndex) else None
        self.heap: list[Entry] = []
        self.active: dict[Shape, None] = {}
        self.classes = 0
        self.aside: list[Entry] = []
        self.elastic = pool.minimum < pool.maximum or pool.buffer > 0
        self.blocked: Reservation | None = None

    def top(self) -> Entry | None:
        """The entry to be served first, if anybody waits here who is not held back by a quota."""
        heap = self.heap
        while heap:
            entry = heap[0]
            if entry[4].entry is entry:
                return entry
            heappop(heap)
        return None

    def back_in_line(self) -> None:
        """Those who were set aside, because they did not want this lane at the time, are asked again."""
        for entry in self.aside:
            if entry[4].entry is entry:
                heappush(self.heap, entry)
        self.aside.clear()

    def push(self, entry: Entry) -> None:
        """A class's new place in the order."""
        push(self.heap, entry, self.classes)


def push(heap: list[Entry], entry: Entry, valid: int) -> None:
    """Put an entry in a heap that also holds old ones, of which it is cleaned before they are many."""
    heappush(heap, entry)
    if len(heap) > 64 + 4 * valid:
        heap[:] = [each for each in heap if each[4].entry is each]
        heapify(heap)


class Reservation:
    """Units `mask` of a lane are kept for the workload `holder` from `at` on; made in the turn `turn`."""

    __slots__ = ("at", "holder", "mask", "turn")

    def __init__(self, holder: WorkloadState, forecast: Forecast, turn: int) -> None:
        self.holder, self.at, self.mask, self.turn = holder, forecast.at, forecast.mask, turn


class Shape:
    """A set of options: for each the lanes that could serve each part, and the chips it takes by accelerator.

    `plans[option][part]` lists (lane, need) in the fleet's order. `simple` is the only such pair of a shape with one
    option, one part and one lane. `never` holds, for each option, why no state of the fleet could hold it.
    `heap` orders the shape's classes by entry, `short` its workloads by estimate, for those who look for work that
    may
    pass.
    """

    __slots__ = ("active", "chips", "heap", "lanes", "never", "options", "plans", "short", "simple", "total")

    def __init__(
        self,
        options: tuple[Option, ...],
        plans: tuple[tuple[tuple[tuple[Lane, Need], ...], ...], ...],
        never: tuple[Reason | None, ...],
    ) -> None:
        self.options, self.plans, self.never = options, plans, never
        self.active: dict[WaitClass, None] = {}
        self.heap: list[Entry] = []
        self.short: list[tuple[float, int, int, WorkloadState]] = []
        possible = [plan for plan, reason in zip(plans, never, strict=True) if reason is None]
        self.lanes = tuple(dict.fromkeys(lane for plan in possible for part in plan for lane, _ in part))
        self.total = options[0].chips if options else 0
        self.chips = tuple(chips_by_accelerator(option) for option in options)
        rigid = len(plans) == 1 and len(plans[0]) == 1 and options[0].maximum is None
        only: tuple[tuple[Lane, Need], ...] = plans[0][0] if rigid else ()
        self.simple: tuple[Lane, Need] | None = only[0] if len(only) == 1 and never[0] is None else None

    def push(self, entry: Entry) -> None:
        """A class's new place in the order of the shape."""
        push(self.heap, entry, len(self.active))

    def enter(self, workload: WorkloadState, runtime: float) -> None:
        """A workload with an estimate waits."""
        heappush(self.short, (runtime, workload.order, len(workload.attempts), workload))

    def shortest(self) -> float:
        """The least estimate of all who wait; `inf` when nobody does, or nobody has one."""
        short = self.short
        while short:
            runtime, _, attempts, workload = short[0]
            if workload.phase == "waiting" and len(workload.attempts) == attempts:
                return runtime
            heappop(short)
        return INF

    def classes(self) -> Iterator[WaitClass]:
        """The classes in order, without disturbing the heap: each costs the logarithm of those before it."""
        heap = self.heap
        while heap and heap[0][4].entry is not heap[0]:
            heappop(heap)
        front = [(heap[0], 0)] if heap else []
        while front:
            entry, position = heappop(front)
            if entry[4].entry is entry:
                yield entry[4]
            for child in (2 * position + 1, 2 * position + 2):
                if child < len(heap):
                    heappush(front, (heap[child], child))


class WaitClass:
    """Waiting workloads of one shape, queue and priority. `parked` ones wait for quota and are in no lane's order.

    `never` says for each option why it can never be granted, to this queue on this fleet; `plain` is the shape's
    `simple` where neither quota nor memory can stand in the way, `quick` that of a cell in the plain case; `aged` tells
    that age alone orders the line, `skips` that who is first does not block the others, `timed` that time alone, or its
    own size, may change a member's answer.
    """

    __slots__ = (
        "account",
        "aged",
        "backfills",
        "entry",
        "line",
        "never",
        "parked",
        "plain",
        "quick",
        "rank",
        "shape",
        "skips",
        "timed",
    )

    def __init__(self, shape: Shape, account: Account, priority: int, line: Line, backfills: bool) -> None:
        self.shape, self.account, self.rank = shape, account, -priority
        self.line, self.backfills = line, backfills
        self.aged, self.skips, self.timed = True, False, False
        self.plain: tuple[Lane, Need] | None = None
        self.quick: Quick | None = None
        self.entry: Entry | None = None
        self.parked: str | None = None
        self.never: tuple[Reason | None, ...] = shape.never


class Cohort:
    """Queues that lend each other: per accelerator what may be lent in all, and what of it is used.

    While borrowers have been stopped for any of the `claimants` nobody borrows what those ask for.
    """

    __slots__ = ("accounts", "claimants", "lendable", "parked", "used")

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.lendable: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.parked: dict[WaitClass, None] = {}
        self.claimants: dict[str, WaitClass] = {}


class Account:
    """A queue's holdings in chips by accelerator. `level` is how much of its fair share it uses (see `fairshare`).

    `parked` are its classes that wait for its own limit, `behind` those that wait for what others hold.
    """

    __slots__ = (
        "behind",
        "caps",
        "classes",
        "cohort",
        "guaranteed",
        "held",
        "level",
        "name",
        "parked",
        "queue",
        "quota",
    )

    def __init__(self, name: str, queue: Queue | None, cohort: Cohort) -> None:
        self.name, self.queue, self.cohort = name, queue, cohort
        self.held: dict[str, int] = {}
        self.level = 0.0
        self.quota: dict[str, int] = dict(queue.quota or ()) if queue else {}
        self.guaranteed = {accelerator: quota - _lent(queue, quota) for accelerator, quota in self.quota.items()}
        borrow = queue.borrow if queue else None
        self.caps = {
            accelerator: None if borrow is None else quota + borrow for accelerator, quota in self.quota.items()
        }
        self.classes: dict[WaitClass, None] = {}
        self.parked: dict[WaitClass, None] = {}
        self.behind: dict[WaitClass, None] = {}


def chips_by_accelerator(option: Option) -> dict[str, int]:
    """Chips that all parts of `option` take, by accelerator."""
    chips: dict[str, int] = {}
    for part in option.parts:
        chips[part.accelerator] = chips.get(part.accelerator, 0) + part.count * part.chips
    return chips


def _lent(queue: Queue | None, quota: int) -> int:
    if queue is None or queue.lend is True:
        return quota
    return min(quota, int(queue.lend))
