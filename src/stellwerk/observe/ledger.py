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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from stellwerk.scheduling.codec import dump, load
from stellwerk.scheduling.commands import Command
from stellwerk.scheduling.events import Event, FleetChanged
from stellwerk.scheduling.model import Pool
from stellwerk.scheduling.state import State, UnitState, WorkloadState

Use = Literal["busy", "starting", "idle", "draining", "broken", "provisioning"]
By = Literal["workload", "queue", "pool", "attempt", "unit"]
USES: tuple[Use, ...] = ("busy", "starting", "idle", "draining", "broken", "provisioning")

_NONE: dict[str, None] = {}
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


class Kept(Protocol):
    """Entries that were closed long ago and are kept outside of the ledger."""

    def sums(self, by: By, since: float) -> Iterable[tuple[float, Booking]]:
        """Seconds from `since` on, and what was booked; summed where the key of `by` and all that counts are equal."""
        ...

    def of_attempt(self, workload: str, attempt: int) -> Iterable[Span]:
        """All entries of one attempt."""
        ...


class Ledger:
    """Books what the scheduler's state says, once it is told of every change by `observe`.

    Entries that are closed can be taken away (`closed`, `hand_over`) and be kept elsewhere (`kept`), so that a long
    history takes no memory here.
    """

    def __init__(self, kept: Kept | None = None) -> None:
        """An empty ledger, but for what is kept."""
        self._kept = kept
        self._pools: dict[str, Pool] = {}
        self._closed: list[Span] = []
        self._open: dict[str, dict[Account, tuple[float, Booking]]] = {}
        self._units: dict[str, dict[str, None]] = {}

    def observe(self, state: State, event: Event | None = None, commands: Sequence[Command] = ()) -> None:
        """Take note of the state after an event; call it after every event, once.

        With the event and the commands that followed from it only the units that they are about are looked at.
        """
        if event is None or isinstance(event, FleetChanged):
            self._pools |= state.pools
            touched = list(dict.fromkeys((*self._open, *state.units)))
        else:
            touched = sorted(self._touched(state, (event, *commands)))
        for name in touched:
            self._observe(state, name)

    def _touched(self, state: State, records: Iterable[Event | Command]) -> dict[str, None]:
        """Units that a record names, or that a workload that it names holds or held until now."""
        units: dict[str, None] = {}
        for record in records:
            if (unit := getattr(record, "unit", None)) is not None:
                units[unit] = None
            if (key := getattr(record, "workload", None)) is not None:
                units.update(self._units.get(key, _NONE))
                workload = state.workloads.get(key)
                if workload is not None and (live := workload.live) is not None:
                    units.update(dict.fromkeys(grant.unit for grant in live.grants + live.leaving))
        return units

    def _observe(self, state: State, name: str) -> None:
        unit, opened = state.units.get(name), self._open.get(name, {})
        bookings = () if unit is None else _bookings(state, unit, self._pools.get(unit.pool))
        current = {booking.account: booking for booking in bookings}
        for account, (since, booking) in list(opened.items()):
            if current.get(account) != booking:
                self._close(account, since, state.now)
        for account, booking in current.items():
            self._enter(account, state.now, booking)

    def spans(self, now: float) -> Iterator[Span]:
        """The entries that are not kept elsewhere, in the order they were closed; what is still open ends at `now`."""
        yield from self._closed
        for accounts in self._open.values():
            for since, booking in accounts.values():
                if now > since:
                    yield Span(since, now, booking)

    def rows(self, *, by: By, now: float, since: float = 0.0) -> list[Row]:
        """Sums from `since` to `now`, one for each key in order, what pools held for nobody last."""
        rows: dict[tuple[bool, str], Row] = {}

        def row(booking: Booking) -> Row:
            is_pool, key = _key(booking.account, by)
            return rows.setdefault((is_pool, key), Row(key, is_pool, dict.fromkeys(USES, 0.0)))

        for seconds, booking in self._kept.sums(by, since) if self._kept is not None else ():
            row(booking).add(0.0, seconds, booking)
        for start, end, booking in self.spans(now):
            if end > since:
                row(booking).add(max(start, since), end, booking)
        return sorted(rows.values(), key=lambda row: (row.is_pool, row.key))

    def attempt(self, workload: str, number: int, now: float) -> Row:
        """The bill of one attempt."""
        row = Row(f"{workload}/{number}", False, dict.fromkeys(USES, 0.0))
        for span in self._kept.of_attempt(workload, number) if self._kept is not None else ():
            row.add(*span)
        for span in self._closed:
            if span.booking.account[3:] == (workload, number):
                row.add(*span)
        for unit in sorted(self._units.get(workload, ())):
            for account, (since, booking) in self._open[unit].items():
                if account[3:] == (workload, number):
                    row.add(since, max(since, now), booking)
        return row

    @property
    def closed(self) -> Sequence[Span]:
        """The closed entries that nobody has taken away, in order."""
        return self._closed

    def hand_over(self, count: int) -> None:
        """The first `count` closed entries are kept elsewhere from now on."""
        del self._closed[:count]

    def dump(self) -> str:
        """What is open, as one line; closed entries are to be handed over before."""
        opened = [entry for accounts in self._open.values() for entry in accounts.values()]
        return dump(_Written(opened, self._pools))

    def load(self, text: str) -> None:
        """Become what `dump` wrote; ValueError when it is not that."""
        written = load(_Written, text)
        self._closed, self._pools, self._open, self._units = [], written.pools, {}, {}
        for since, booking in written.open:
            self._enter(booking.account, since, booking)

    def _enter(self, account: Account, since: float, booking: Booking) -> None:
        self._open.setdefault(account.unit, {}).setdefault(account, (since, booking))
        if account.workload is not None:
            self._units.setdefault(account.workload, {})[account.unit] = None

    def _close(self, account: Account, since: float, now: float) -> None:
        accounts = self._open[account.unit]
        _, booking = accounts.pop(account)
        if not accounts:
            del self._open[account.unit]
        if account.workload is not None:
            self._left(account.workload, account.unit)
        if now > since:
            self._closed.append(Span(since, now, booking))

    def _left(self, workload: str, unit: str) -> None:
        """Forget that a workload holds a unit, unless another attempt of it does."""
        if all(account.workload != workload for account in self._open.get(unit, ())):
            units = self._units[workload]
            units.pop(unit)
            if not units:
                del self._units[workload]


@dataclass(slots=True)
class _Written:
    """A ledger as `dump` writes it."""

    open: list[tuple[float, Booking]]
    pools: dict[str, Pool]


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
