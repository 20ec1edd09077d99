"""Every second of every unit is booked exactly once, whatever happens in whatever order."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from stellwerk.observe.ledger import USES, Ledger
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.commands import Command, ProvisionUnit, RecycleUnit, ReleaseUnit, StopAttempt
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, Pool
from stellwerk.scheduling.scheduler import Scheduler

TPUS = Pool("trillium", "tpu-v6e", "4x4", None, 16, 4, maximum=3, minimum=1, price=2.0, provision=5.0, idle=40.0)
GPUS = Pool("h100s", "h100", None, None, 8, 1, maximum=2, minimum=1, price=3.0, provision=5.0)
FLEET = Fleet((TPUS, GPUS))


def _demand(key: str, accelerator: str, chips: int, queue: str = "default") -> Demand:
    topology = "4x4" if accelerator == "tpu-v6e" else None
    part = Part("main", accelerator, topology, 16 if topology else chips, count=chips if topology else 1)
    return Demand(key, key, "job", (Option(f"{accelerator}:{chips}", (part,)),), queue=queue)


class _Site:
    """A scheduler, its ledger, and the lives of units as they were seen from outside."""

    def __init__(self) -> None:
        self.scheduler, self.ledger, self.told = Scheduler(validate=True), Ledger(), Ledger()
        self.now = 0.0
        self.orders: list[Command] = []
        self.lives: defaultdict[str, float] = defaultdict(float)

    def tell(self, event: ev.Event) -> None:
        for unit in self.scheduler.state.units:
            self.lives[unit] += event.at - self.now
        self.now = event.at
        commands = self.scheduler.handle(event)
        self.orders += commands
        self.ledger.observe(self.scheduler.state)
        self.told.observe(self.scheduler.state, event, commands)

    def answer(self, command: Command) -> None:
        match command:
            case ProvisionUnit() | RecycleUnit():
                self.tell(ev.UnitAppeared(self.now, command.pool, command.unit, command.incarnation))
            case ReleaseUnit():
                self.tell(ev.UnitGone(self.now, command.unit, command.incarnation))
            case StopAttempt():
                self.tell(ev.AttemptEnded(self.now, command.workload, command.attempt, "stopped", command.cause))
            case _:
                pass


_STEPS = st.one_of(
    st.tuples(
        st.just("submit"), st.sampled_from([("tpu-v6e", 1), ("tpu-v6e", 2), ("h100", 2), ("h100", 5), ("h100", 12)])
    ),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("start"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("stop"), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("gone"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(1, 50)),
)


def _act(site: _Site, what: str, how: Any, number: int) -> None:
    state = site.scheduler.state
    live = [w for w in state.workloads.values() if w.live]
    units = sorted(state.units.values(), key=lambda unit: unit.name)
    match what:
        case "submit":
            site.tell(ev.Submitted(site.now, _demand(f"w{number}", *how)))
        case "answer" if how < len(site.orders):
            site.answer(site.orders.pop(how))
        case "start" if how < len(live):
            site.tell(ev.AttemptStarted(site.now, live[how].key, live[how].attempts[-1].number))
        case "end" if how < len(live):
            site.tell(ev.AttemptEnded(site.now, live[how].key, live[how].attempts[-1].number, "succeeded"))
        case "stop" if how < len(live):
            site.tell(ev.StopRequested(site.now, live[how].key))
        case "lose" if how < len(units):
            site.tell(ev.HostChanged(site.now, units[how].name, units[how].incarnation, 0, up=False))
        case "gone" if how < len(units):
            site.tell(ev.UnitGone(site.now, units[how].name, units[how].incarnation))
        case "wait":
            site.tell(ev.Woke(site.now + how))
        case _:
            pass


@settings(max_examples=100, deadline=None)
@given(st.lists(_STEPS, max_size=60))
def test_the_uses_of_a_unit_add_up_to_its_life(steps: list[tuple[str, Any]]) -> None:
    site = _Site()
    site.tell(ev.FleetChanged(0.0, FLEET))
    for number, (what, how) in enumerate(steps):
        _act(site, what, how, number)
    site.tell(ev.Woke(site.now + 7.0))
    rows = {row.key: row for row in site.ledger.rows(by="unit", now=site.now)}
    for unit, life in site.lives.items():
        assert (sum(rows[unit].seconds.values()) if unit in rows else 0.0) == approx(life)
    total = sum(site.lives.values())
    for by in ("workload", "queue", "pool", "attempt"):
        assert sum(sum(row.seconds.values()) for row in site.ledger.rows(by=by, now=site.now)) == approx(total)
    half = site.now / 2
    early = {use: 0.0 for use in USES}
    for start, end, booking in site.ledger.spans(site.now):
        early[booking.use] += max(0.0, min(end, half) - start) * booking.chips / booking.of
    late = sum(sum(row.seconds.values()) for row in site.ledger.rows(by="pool", now=site.now, since=half))
    assert sum(early.values()) + late == approx(total)
    for workload in site.scheduler.state.workloads.values():
        for attempt in workload.attempts:
            bill = site.ledger.attempt(workload.key, attempt.number, site.now)
            listed = [r for r in site.ledger.rows(by="attempt", now=site.now) if r.key == bill.key]
            assert sum(r.chip_hours for r in listed) == approx(bill.chip_hours)


@settings(max_examples=100, deadline=None)
@given(st.lists(_STEPS, max_size=60), st.integers(0, 60))
def test_looking_at_what_an_event_is_about_is_enough_and_a_ledger_that_was_written_down_goes_on(
    steps: list[tuple[str, Any]], cut: int
) -> None:
    site = _Site()
    site.tell(ev.FleetChanged(0.0, FLEET))
    for number, (what, how) in enumerate(steps):
        if number == cut:
            before, site.told = site.told, Ledger()
            site.told.load(before.dump())
            assert site.told.dump() == before.dump()
        elif number < cut:
            assert sorted(map(str, site.told.spans(site.now))) == sorted(map(str, site.ledger.spans(site.now)))
        _act(site, what, how, number)
    if cut < len(steps):
        late = [span for span in site.ledger.closed if span not in before.closed]
        assert sorted(map(str, site.told.closed)) == sorted(map(str, late))
    assert sorted(site.told.dump()) == sorted(site.ledger.dump())


def test_a_life_of_two_workloads_is_billed() -> None:
    site = _Site()
    site.tell(ev.FleetChanged(0.0, FLEET))
    site.tell(ev.UnitAppeared(10.0, "h100s", "h100s-0", 1))
    site.tell(ev.Submitted(20.0, _demand("a", "h100", 6, "research")))
    site.tell(ev.AttemptStarted(30.0, "a", 1))
    site.tell(ev.Submitted(40.0, _demand("b", "h100", 2)))
    site.tell(ev.StopRequested(50.0, "a"))
    site.tell(ev.AttemptEnded(58.0, "a", 1, "stopped", "stopped-by-user"))
    site.tell(ev.HostChanged(68.0, "h100s-0", 1, 0, up=False))
    pool = next(row for row in site.ledger.rows(by="unit", now=78.0) if row.key == "h100s-0").to_json()
    assert {use: pool[f"{use}_s"] for use in USES} == {
        "provisioning": 10.0,
        "idle": 10.0 + 20 * 2 / 8 + 10 * 6 / 8,
        "starting": 10 * 6 / 8 + 28 * 2 / 8,
        "busy": 20 * 6 / 8,
        "draining": 8 * 6 / 8,
        "broken": 10.0,
    }
    (research,) = [row for row in site.ledger.rows(by="queue", now=78.0) if row.key == "research"]
    assert research.chip_hours == approx(38 * 6 / 3600)
    assert research.cost == approx(38 * 6 / 3600 * 3.0)
    assert [row.key for row in site.ledger.rows(by="queue", now=78.0) if row.is_pool] == ["h100s", "trillium"]


def test_an_unknown_price_stays_unknown_and_emulated_hardware_is_marked() -> None:
    from dataclasses import replace

    site = _Site()
    site.tell(ev.FleetChanged(0.0, Fleet((replace(GPUS, price=None, emulated=True),))))
    site.tell(ev.UnitAppeared(0.0, "h100s", "h100s-0", 1))
    (row,) = [row.to_json() for row in site.ledger.rows(by="pool", now=3600.0)]
    assert (row["chip_hours"], row["cost"], row["price_known"], row["emulated"]) == (8.0, None, False, True)


def test_a_unit_keeps_its_price_when_its_pool_is_declared_away() -> None:
    site = _Site()
    site.tell(ev.FleetChanged(0.0, FLEET))
    site.tell(ev.UnitAppeared(0.0, "h100s", "h100s-0", 1))
    site.tell(ev.Submitted(0.0, _demand("a", "h100", 8)))
    site.tell(ev.FleetChanged(1800.0, Fleet((TPUS,))))
    assert site.ledger.attempt("a", 1, 3600.0).cost == approx(24.0)
