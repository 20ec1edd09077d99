"""The ledger: where every second of every unit went, and what it cost.

A fold over the scheduler's state. Between two events nothing changes, so the time since the last event belongs to
what was so after that event. Each unit's second is in exactly one of six uses:

* `busy`: held by an attempt whose code runs; `starting`: held, the code has not begun;
* `draining`: held by an attempt that is being stopped, or being given back; `idle`: up and held by nobody;
* `broken`: a host is lost, or the unit is being rebuilt after that; `provisioning`: being made.

A unit of which cells are held is split by chips. Unit-seconds that no workload holds are booked under the pool.
Chip-hours and cost count all uses but `provisioning`, which providers do not charge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stellwerk.scheduling.model import Pool
from stellwerk.scheduling.state import State, UnitState, WorkloadState

Use = Literal["busy", "starting", "idle", "draining", "broken", "provisioning"]
By = Literal["workload", "queue", "pool", "attempt", "unit"]
USES: tuple[Use, ...] = ("busy", "starting", "idle", "draining", "broken", "provisioning")

_HELD: dict[str, Use] = {"starting": "starting", "running": "busy", "stopping": "draining"}
_UNHELD: dict[str, Use] = {
    "up": "idle",
    "broken": "broken",
    "recycling": "broken",
    "provisioning": "provisioning",
    "releasing": "draining",
}


class Account(NamedTuple):
    """What time is booked on: a unit, and who held it (None where nobody did)."""

    pool: str
    unit: str
    queue: str | None
    workload: str | None
    attempt: int | None


class Booking(NamedTuple):
    """A way a unit, or some of its chips, is being used. `price` is US dollars per chip-hour, None when unknown."""

    account: Account
    use: Use
    chips: int
    of: int
    price: float | None
    emulated: bool


class Span(NamedTuple):
    """A closed entry: a booking from `start` to `end` (s)."""

    start: float
    end: float
    booking: Booking


@dataclass(slots=True)
class Row:
    """A sum over spans: unit-seconds per use, chip-hours, and US dollars (None when a price is unknown).

    `emulated` rows cost nothing; `cost` is what they would cost. `is_pool` marks time that nobody held.
    """

    key: str
    is_pool: bool
    seconds: dict[Use, float]
    chip_hours: float = 0.0
    cost: float | None = 0.0
    emulated: bool = False

    def add(self, start: float, end: float, booking: Booking) -> None:
        """Count a booking from `start` to `end` in."""
        self.seconds[booking.use] += (end - start) * booking.chips / booking.of
        self.emulated = self.emulated or booking.emulated
        if booking.use == "provisioning":
            return
        chip_hours = (end - start) * booking.chips / 3600
        self.chip_hours += chip_hours
        self.cost = None if booking.price is None or self.cost is None else self.cost + chip_hours * booking.price

    def to_json(self) -> dict[str, object]:
        """The listing's form, in unit-seconds."""
        seconds = {f"{use}_s": round(self.seconds[use], 3) for use in USES}
        return {
            "key": self.key,
            **seconds,
            "chip_hours": round(self.chip_hours, 6),
            "cost": None if self.cost is None else round(self.cost, 6),
            "price_known": self.cost is not None,
            "emulated": self.emulated,
        }


class Ledger:
    """Books what the scheduler's state says, once it is told of every change by `observe`."""

    def __init__(self) -> None:
        """An empty ledger."""
        self._closed: list[Span] = []
        self._held: defaultdict[tuple[str | None, int | None], list[Span]] = defaultdict(list)
        self._open: dict[Account, tuple[float, Booking]] = {}
        self._pools: dict[str, Pool] = {}

    def observe(self, state: State) -> None:
        """Take note of the state after an event; call it after every event, once."""
        self._pools |= state.pools
        bookings = (b for u in state.units.values() for b in _bookings(state, u, self._pools.get(u.pool)))
        current = {booking.account: booking for booking in bookings}
        for account, (since, booking) in list(self._open.items()):
            if current.get(account) != booking:
                self._close(account, since, state.now)
        for account, booking in current.items():
            self._open.setdefault(account, (state.now, booking))

    def spans(self, now: float) -> Iterator[Span]:
        """All entries, in the order they were closed; what is still open ends at `now`."""
        yield from self._closed
        for since, booking in self._open.values():
            if now > since:
                yield Span(since, now, booking)

    def rows(self, *, by: By, now: float, since: float = 0.0) -> list[Row]:
        """Sums from `since` to `now`, one for each key in order, what pools held for nobody last."""
        rows: dict[tuple[bool, str], Row] = {}
        for start, end, booking in self.spans(now):
            if end > since:
                is_pool, key = _key(booking.account, by)
                row = rows.setdefault((is_pool, key), Row(key, is_pool, dict.fromkeys(USES, 0.0)))
                row.add(max(start, since), end, booking)
        return sorted(rows.values(), key=lambda row: (row.is_pool, row.key))

    def attempt(self, workload: str, number: int, now: float) -> Row:
        """The bill of one attempt."""
        row = Row(f"{workload}/{number}", False, dict.fromkeys(USES, 0.0))
        for span in self._held.get((workload, number), ()):
            row.add(*span)
        for account, (since, booking) in self._open.items():
            if account[3:] == (workload, number):
                row.add(since, max(since, now), booking)
        return row

    def _close(self, account: Account, since: float, now: float) -> None:
        _, booking = self._open.pop(account)
        if now > since:
            span = Span(since, now, booking)
            self._closed.append(span)
            if account.workload is not None:
                self._held[account[3:]].append(span)


def _key(account: Account, by: By) -> tuple[bool, str]:
    if by in ("pool", "unit"):
        return False, account.pool if by == "pool" else account.unit
    if account.workload is None:
        return True, account.pool
    if by == "attempt":
        return False, f"{account.workload}/{account.attempt}"
    return False, str(account.queue if by == "queue" else account.workload)


def _bookings(state: State, unit: UnitState, pool: Pool | None) -> Iterator[Booking]:
    price, emulated = (pool.price, pool.emulated) if pool else (None, False)
    left = unit.chips
    for holder, chips in unit.held.items() if unit.phase == "up" else ():
        workload = state.workloads[holder]
        left -= chips
        yield Booking(_account(unit, workload), _HELD[workload.phase], chips, unit.chips, price, emulated)
    if left:
        account = Account(unit.pool, unit.name, None, None, None)
        yield Booking(account, _UNHELD[unit.phase], left, unit.chips, price, emulated)


def _account(unit: UnitState, workload: WorkloadState) -> Account:
    demand = workload.demand
    return Account(unit.pool, unit.name, demand.queue, demand.key, workload.attempts[-1].number)
