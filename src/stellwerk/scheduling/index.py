"""What makes decisions fast: indexes derived from the state, never told by events, never written down.

* a `Lane` for each pool: what is free there, and who waits for it, in order;
* a `Shape` for each set of options that was ever asked for: the same hardware, compiled once for all who ask it;
* a `WaitClass` for each shape, queue and priority: one answer for all its members;
* an `Account` for each queue, and a `Cohort` for those that lend each other.

A class has one valid `Entry`, its place in the order of all, which is that of its first member (see `order`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from stellwerk.scheduling.commands import Command
from stellwerk.scheduling.model import Grant, Option, Pool, Queue, Reason
from stellwerk.scheduling.order import Order
from stellwerk.scheduling.placement.counts import CountIndex
from stellwerk.scheduling.placement.index import INF, Forecast, Need, PoolIndex
from stellwerk.scheduling.policy.lines import Line
from stellwerk.scheduling.state import WorkloadState

if TYPE_CHECKING:
    from collections.abc import Callable

Quick = tuple[CountIndex, Need]
"""What a workload of the plain case asks of which places (see `plain`)."""

Quota = tuple[str, int, int, float, int]
"""What a class asks of a queue with a quota: the accelerator, the chips, how many of that accelerator are guaranteed to
the queue, and the most that it may hold before if it is to stay within its limit, and within its quota."""


class Lane:
    """One pool: its places and its waiting classes. `blocked` is the last reservation made for its
    first, `classes` how many classes are in its order, `counts` its places where they are chips by count."""

    __slots__ = (
        "active",
        "aside",
        "blocked",
        "classes",
        "counts",
        "elastic",
        "named",
        "number",
        "order",
        "places",
        "pool",
    )

    def __init__(self, pool: Pool, places: PoolIndex, number: int, order: Order) -> None:
        self.pool, self.places, self.number, self.order = pool, places, number, order
        self.counts = places if isinstance(places, CountIndex) else None
        self.active: dict[Shape, None] = {}
        self.classes = 0
        self.named = 0
        """All lower numbers are names of units that there are."""
        self.aside: dict[WaitClass, None] = {}
        self.elastic = pool.minimum < pool.maximum or pool.buffer > 0
        self.blocked: Reservation | None = None

    def top(self) -> Entry | None:
        """The entry to be served first, if anybody waits here who is not held back by a quota."""
        return self.order.first()

    def entered(self) -> list[WaitClass]:
        """The classes that wait here, in no order, but for those that are set aside."""
        return [found for shape in self.active for found in shape.active if found not in self.aside]

    def put(self, entry: Entry, before: Entry | None) -> bool:
        """A class has a new place; whether who is first has changed."""
        if self.aside:
            self.aside.pop(entry.found, None)
        return self.order.put(entry, before, self.classes)

    def set_aside(self, entry: Entry) -> None:
        """The first does not want this lane now."""
        self.order.set_aside(entry)
        self.aside[entry.found] = None

    def back_in_line(self) -> None:
        """Those who were set aside are asked again."""
        for found in self.aside:
            if found.entry is not None:
                self.order.put(found.current(), None, self.classes)
        self.aside.clear()


class Reservation:
    """Units `mask` of a lane are kept for the workload `holder` from `at` on; made for the event whose orders are in
    `turn`."""

    __slots__ = ("at", "holder", "mask", "turn")

    def __init__(self, holder: WorkloadState, forecast: Forecast, turn: list[Command]) -> None:
        self.holder, self.at, self.mask, self.turn = holder, forecast.at, forecast.mask, turn


class Shape:
    """A set of options: for each the lanes that could serve each part, and the chips it takes by accelerator.

    `plans[option][part]` lists (lane, need) in the fleet's order. `simple` is the only such pair of a shape with one
    option, one part and one lane. `never` holds, for each option, why no state of the fleet could hold it.
    `asks` are the accelerators of all options. `order` holds the shape's classes, `short` its workloads by estimate,
    for those who look for work that may pass; `waiting` is how many wait.
    """

    __slots__ = (
        "active",
        "asks",
        "chips",
        "lanes",
        "never",
        "options",
        "order",
        "plans",
        "short",
        "simple",
        "total",
        "waiting",
    )

    def __init__(
        self,
        options: tuple[Option, ...],
        plans: tuple[tuple[tuple[tuple[Lane, Need], ...], ...], ...],
        never: tuple[Reason | None, ...],
        order: Order,
    ) -> None:
        self.options, self.plans, self.never, self.order = options, plans, never, order
        self.active: dict[WaitClass, None] = {}
        self.short: list[tuple[float, int, int, WorkloadState, WaitClass]] = []
        self.waiting = 0
        possible = [plan for plan, reason in zip(plans, never, strict=True) if reason is None]
        self.lanes = tuple(dict.fromkeys(lane for plan in possible for part in plan for lane, _ in part))
        self.total = options[0].chips if options else 0
        self.chips = tuple(chips_by_accelerator(option) for option in options)
        self.asks = frozenset(accelerator for chips in self.chips for accelerator in chips)
        rigid = len(plans) == 1 and len(plans[0]) == 1 and options[0].maximum is None
        only: tuple[tuple[Lane, Need], ...] = plans[0][0] if rigid else ()
        self.simple: tuple[Lane, Need] | None = only[0] if len(only) == 1 and never[0] is None else None

    def enter(self, workload: WorkloadState, runtime: float, found: WaitClass) -> None:
        """A workload with an estimate waits."""
        short = self.short
        heappush(short, (runtime, workload.order, len(workload.attempts), workload, found))
        if len(short) > 64 + 4 * self.waiting:
            short[:] = [each for each in short if each[3].phase == "waiting" and len(each[3].attempts) == each[2]]
            heapify(short)

    def shortest(self) -> float:
        """The least estimate of all who wait; `inf` when nobody does, or nobody has one."""
        short = self.short
        while short:
            runtime, _, attempts, workload, _ = short[0]
            if workload.phase == "waiting" and len(workload.attempts) == attempts:
                return runtime
            heappop(short)
        return INF

    def within(self, runtime: float, most: int) -> list[tuple[WaitClass, WorkloadState]] | None:
        """Those who wait and take at most `runtime` (s), in no order; None when they are more than `most`."""
        short, positions = self.short, [0]
        found: list[tuple[WaitClass, WorkloadState]] = []
        while positions:
            position = positions.pop()
            if position >= len(short) or short[position][0] > runtime:
                continue
            _, _, attempts, workload, waits = short[position]
            if workload.phase == "waiting" and len(workload.attempts) == attempts and waits.entry is not None:
                found.append((waits, workload))
                if len(found) > most:
                    return None
            positions += (2 * position + 1, 2 * position + 2)
        return found


class WaitClass:
    """Waiting workloads of one shape, queue and priority. `parked` ones wait for quota and are in no lane's order.

    `never` says for each option why it can never be granted, to this queue on this fleet; `plain` is the shape's
    `simple` where neither quota nor memory can stand in the way, `quick` that of a cell in the plain case; `quotas` is
    what its first option asks where a quota may; `aged` tells that age alone orders the line, `skips` that who is first
    does not block the others, `timed` that time alone, or its own size, may change a member's answer.
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
        "quotas",
        "rank",
        "serial",
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
        self.serial = 0
        self.parked: str | None = None
        self.never: tuple[Reason | None, ...] = shape.never
        self.quotas: tuple[Quota, ...] = tuple(
            (
                accelerator,
                needed,
                account.guaranteed[accelerator],
                INF if (cap := account.caps[accelerator]) is None else cap - needed,
                account.quota[accelerator] - needed,
            )
            for accelerator, needed in shape.chips[0].items()
            if accelerator in account.quota
        )

    def current(self) -> Entry:
        """The entry of a class that has one, with the level that its queue has now."""
        entry = self.entry
        assert entry is not None
        if entry[1] != self.account.level:
            rank, _, key, age, found, first, serial = entry
            self.entry = entry = entry_of(rank, self.account.level, key, age, found, first, serial)
        return entry


class Entry(NamedTuple):
    """The place of a class: the smaller is served first.

    `rank` is minus the priority, `level` the share used by its queue, `key` the policy's, `age` and `first` those of
    its first member. The serial numbers the entries; one holds while its class has the same (`WaitClass.serial`).
    """

    rank: int
    level: float
    key: float
    age: int
    found: WaitClass
    first: WorkloadState
    serial: int


def entry_of(
    rank: int, level: float, key: float, age: int, found: WaitClass, first: WorkloadState, serial: int
) -> Entry:
    """The same as `Entry(...)`, in fewer steps."""
    return _new(Entry, (rank, level, key, age, found, first, serial))


_new: Final = cast("Callable[[type[Entry], tuple[object, ...]], Entry]", tuple[object, ...].__new__)


class Cohort:
    """Queues that lend each other: per accelerator what may be lent in all, and what is left of it.

    While borrowers have been stopped for any of the `claimants` nobody borrows what those ask for; `timed` are the
    classes in the order of which that is said. `asked` are those of the parked who will be put back in the order within
    the event that is being handled, unless those before them take what there is.
    """

    __slots__ = ("accounts", "asked", "claimants", "left", "lendable", "parked", "timed")

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.lendable: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.parked: dict[WaitClass, None] = {}
        self.asked: dict[WaitClass, None] = {}
        self.timed: dict[WaitClass, None] = {}
        self.claimants: dict[str, WaitClass] = {}


class Account:
    """A queue's holdings in chips by accelerator. `level` is how much of its fair share it uses (see `fairshare`).

    `lanes` counts its classes in the order of each lane. `parked` are its classes that wait for its own limit, `behind`
    those that wait for what others hold. `live` are its workloads that hold anything, by key.
    """

    __slots__ = (
        "behind",
        "caps",
        "classes",
        "cohort",
        "guaranteed",
        "held",
        "lanes",
        "level",
        "live",
        "name",
        "number",
        "parked",
        "queue",
        "quota",
    )

    def __init__(self, name: str, queue: Queue | None, cohort: Cohort, number: int) -> None:
        self.name, self.queue, self.cohort, self.number = name, queue, cohort, number
        self.lanes: dict[Lane, int] = {}
        self.held: dict[str, int] = {}
        self.live: dict[str, WorkloadState] = {}
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


def chips_held(option: Option, grants: tuple[Grant, ...]) -> dict[str, int]:
    """Chips that `grants` of an option's parts are, by accelerator."""
    if len(option.parts) == 1:
        chips = grants[0].chips if len(grants) == 1 else sum(grant.chips for grant in grants)
        return {option.parts[0].accelerator: chips}
    held: dict[str, int] = {}
    accelerators = {part.role: part.accelerator for part in option.parts}
    for grant in grants:
        accelerator = accelerators[grant.role]
        held[accelerator] = held.get(accelerator, 0) + grant.chips
    return held


def _lent(queue: Queue | None, quota: int) -> int:
    if queue is None or queue.lend is None:
        return quota
    return min(quota, queue.lend)
