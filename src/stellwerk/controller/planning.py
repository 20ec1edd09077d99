"""What would come of a workload if it were submitted now, and why one waits: every option with its price.

A plan is made by the scheduler itself, on the state as it is, and changes nothing. Without a controller a scheduler is
made for it that knows the fleet, with the units that every pool keeps. A time is stated only where it is known: a
p90 of a start that others' runtimes decide is a matter of forecasts.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stellwerk.controller import intake
from stellwerk.controller.intake import Machine
from stellwerk.controller.times import rfc3339
from stellwerk.scheduling.commands import ProvisionUnit
from stellwerk.scheduling.evaluation import Verdict
from stellwerk.scheduling.events import FleetChanged, UnitAppeared
from stellwerk.scheduling.model import Demand, Fleet, Option, Reason
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import State, WorkloadState

if TYPE_CHECKING:
    from stellwerk import spec


@dataclass(frozen=True, slots=True)
class Range:
    """A forecast: half and nine tenths of all cases lie below; None where unknown."""

    p50: float | None = None
    p90: float | None = None

    def times(self) -> dict[str, str | None]:
        """As times."""
        return {"p50": rfc3339(self.p50), "p90": rfc3339(self.p90)}

    def numbers(self) -> dict[str, float | None]:
        """As numbers."""
        return {"p50": self.p50, "p90": self.p90}


@dataclass(frozen=True, slots=True)
class PlannedOption:
    """One option, judged. Times are seconds since the epoch, money US dollars."""

    option: str
    units: int
    hosts: int
    chips: int
    price_per_hour: float | None
    start: Range
    finish: Range
    cost: Range
    verdict: str
    reasons: tuple[Reason, ...]
    pools: tuple[str, ...]
    emulated: bool

    def to_json(self) -> dict[str, Any]:
        """The form that listings print."""
        return {
            "option": self.option,
            "units": self.units,
            "hosts": self.hosts,
            "chips": self.chips,
            "price_per_hour": self.price_per_hour,
            "start": self.start.times(),
            "finish": self.finish.times(),
            "cost": self.cost.numbers(),
            "verdict": self.verdict,
            "reasons": [reason.to_json() for reason in self.reasons],
            "pools": list(self.pools),
            "emulated": self.emulated,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Every option of a workload in its order; `chosen` is the index of the one that would be taken, or None."""

    name: str
    chosen: int | None
    options: tuple[PlannedOption, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The form that listings print."""
        options = [option.to_json() for option in self.options]
        return {"name": self.name, "chosen": self.chosen, "options": options, "notes": list(self.notes)}


def plan(
    workload: spec.Workload,
    fleet: spec.Fleet | None = None,
    scheduler: Scheduler | None = None,
    now: float | None = None,
    *,
    machine: Machine | None = None,
) -> Plan:
    """Judge every option of `workload` on a running scheduler, on a declared fleet, or on this machine alone.

    `machine` plays the fleet, the local one unless said. With a scheduler it says that the fleet was not declared:
    pools that the workload asks for come into being in a copy. Raises intake.Unsupported.
    """
    intake.check_supported(workload)
    at = time.time() if now is None else now
    demand = intake.demand(workload, "plan", workload.name)
    judge = _scheduler(demand, fleet, scheduler, machine, at)
    verdicts = judge.evaluate(demand, at)
    options = tuple(_planned(judge.state, demand, verdict) for verdict in verdicts)
    notes = tuple(warning.message for warning in workload.warnings)
    return Plan(demand.name, _chosen(verdicts), options, notes)


def why(scheduler: Scheduler, workload: WorkloadState) -> dict[str, Any]:
    """Why a workload waits: reasons per option, the earliest start, and the cheapest change that would start it."""
    state, demand = scheduler.state, workload.demand
    reasons = scheduler.reasons(workload.key)
    listed = [list(each) for each in reasons] or [[] for _ in demand.options]
    return {
        "name": demand.name,
        "state": workload.phase,
        "options": [
            {"option": option.short, "reasons": [reason.to_json() for reason in each]}
            for option, each in zip(demand.options, listed, strict=True)
        ],
        "earliest": Range(*_earliest(state, reasons)).times(),
        "cheapest_change": _cheapest_change(state, demand.options, reasons),
        "promise": _promise(scheduler, workload),
    }


def _promise(scheduler: Scheduler, workload: WorkloadState) -> dict[str, Any] | None:
    """The start that a waiting workload is told, if it is among the first; see `scheduling.policy.promises`."""
    found = scheduler.promise(workload.key)
    return None if found is None else {"at": rfc3339(found.at), "place": found.place, "kept": found.kept}


def _this_machine() -> Machine:
    from stellwerk.controller.machine import LocalMachine

    return LocalMachine()


def _scheduler(
    demand: Demand, declared: spec.Fleet | None, scheduler: Scheduler | None, machine: Machine | None, at: float
) -> Scheduler:
    if scheduler is not None:
        return scheduler if machine is None else _grown(scheduler, demand, machine, at)
    machine = machine or _this_machine()
    if declared is not None:
        return _fresh(intake.fleet(declared, machine), at)
    return _fresh(intake.grown(Fleet(), demand.options, machine), at)


def _grown(scheduler: Scheduler, demand: Demand, machine: Machine, at: float) -> Scheduler:
    """The scheduler, or a copy with the pools that `demand` would bring into being where nobody declared a fleet."""
    fleet = intake.grown(scheduler.state.fleet, demand.options, machine)
    if fleet is scheduler.state.fleet:
        return scheduler
    trial = Scheduler(state=copy.deepcopy(scheduler.state))
    trial.handle(FleetChanged(at, fleet))
    return trial


def _fresh(fleet: Fleet, at: float) -> Scheduler:
    """A scheduler that knows a fleet, with the units that its pools keep."""
    scheduler = Scheduler()
    for command in scheduler.handle(FleetChanged(at, fleet)):
        if isinstance(command, ProvisionUnit):
            scheduler.handle(UnitAppeared(at, command.pool, command.unit, command.incarnation))
    return scheduler


def _chosen(verdicts: list[Verdict]) -> int | None:
    """The first option that starts now, else the first that can ever start."""
    for wanted in ("now", "later"):
        for index, verdict in enumerate(verdicts):
            if verdict.verdict == wanted:
                return index
    return None


def _planned(state: State, demand: Demand, verdict: Verdict) -> PlannedOption:
    option = demand.options[verdict.option]
    runtime = option.runtime if option.runtime is not None else demand.runtime
    price = verdict.price_per_hour
    start = Range(verdict.start, verdict.start if verdict.verdict == "now" else None)
    cost = None if price is None or runtime is None else price * runtime / 3600
    never = verdict.verdict == "never"
    return PlannedOption(
        option=option.short,
        units=verdict.units,
        hosts=verdict.hosts,
        chips=verdict.chips,
        price_per_hour=price,
        start=start,
        finish=Range(_later(start.p50, runtime), _later(start.p90, runtime)),
        cost=Range() if never else Range(cost, cost),
        verdict=verdict.verdict,
        reasons=verdict.reasons,
        pools=verdict.pools,
        emulated=any(state.pools[name].emulated for name in verdict.pools),
    )


def _later(start: float | None, seconds: float | None) -> float | None:
    return None if start is None or seconds is None else start + seconds


def _earliest(state: State, reasons: tuple[tuple[Reason, ...], ...]) -> tuple[float | None, float | None]:
    """The first time at which an option's reasons are all known to have passed."""
    known: list[float] = []
    for option in reasons:
        times = [_passes(state, reason) for reason in option]
        if times and None not in times:
            known.append(max(time for time in times if time is not None))
    return (min(known), None) if known else (None, None)


def _passes(state: State, reason: Reason) -> float | None:
    numbers = dict(reason.numbers)
    match reason.code:
        case "limit":
            return state.now + float(numbers["opens_in"] or 0)
        case "cool-down" if "seconds" in numbers:
            return state.now + float(numbers["seconds"] or 0)
        case "provisioning":
            coming = [u.since for u in state.units.values() if u.pool == numbers["pool"] and u.phase == "provisioning"]
            pool = state.pools.get(str(numbers["pool"]))
            return max(coming) + pool.provision if coming and pool else None
        case _:
            return None


def _cheapest_change(
    state: State, options: tuple[Option, ...], reasons: tuple[tuple[Reason, ...], ...]
) -> dict[str, Any] | None:
    changes = [
        change | {"option": option.short}
        for option, why in zip(options, reasons, strict=False)
        if (change := _change(state, why)) is not None
    ]
    return min(changes, key=_expense, default=None)


def _expense(change: dict[str, Any]) -> tuple[bool, float]:
    price = change["price_per_hour"]
    return price is None, price or 0.0


def _change(state: State, reasons: tuple[Reason, ...]) -> dict[str, Any] | None:
    """The one change that would take all reasons of an option away, where there is one.

    Reasons of one option name the pools that could serve it; any one of them is enough when a part has several.
    """
    found = [change for reason in reasons if (change := _change_for(state, reason)) is not None]
    return min(found, key=_expense, default=None)


def _change_for(state: State, reason: Reason) -> dict[str, Any] | None:
    numbers = dict(reason.numbers)
    match reason.code:
        case "capacity" if "memory_needed" in numbers:
            lacking = int(numbers["memory_needed"] or 0) - int(numbers["memory_left"] or 0)
            message = f"{lacking / 2**30:.1f} GiB more memory"
            return {"message": message, "memory": lacking, "price_per_hour": None}
        case "capacity" | "impossible" if "pool" in numbers:
            have = numbers["free"] if reason.code == "capacity" else numbers["maximum"]
            return _more_units(state, str(numbers["pool"]), int(numbers["needed"] or 0) - int(have or 0))
        case "quota":
            lacking = int(numbers["held"] or 0) + int(numbers["needed"] or 0) - int(numbers["quota"] or 0)
            message = f"a quota larger by {lacking} chips of {numbers['accelerator']}"
            return {"message": message, "chips": lacking, "accelerator": numbers["accelerator"], "price_per_hour": 0.0}
        case _:
            return None


def _more_units(state: State, name: str, lacking: int) -> dict[str, Any] | None:
    pool = state.pools.get(name)
    if pool is None or lacking < 1:
        return None
    count = "one more unit" if lacking == 1 else f"{lacking} more units"
    price = None if pool.price is None else lacking * pool.chips * pool.price
    return {"message": f"{count} of {name}", "pool": name, "units": lacking, "price_per_hour": price}
