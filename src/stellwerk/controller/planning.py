"""What would come of a workload if it were submitted now, and why one waits: every option with its price.

A plan is made by the scheduler itself, on the state as it is, and changes nothing. Without a controller a scheduler is
made for it that knows the fleet, with the units that every pool keeps. An option that would start now starts now; the
start of another is a forecast for the workload with that option alone. How long it runs is what such work took, or, as
long as nothing is known of such work, what its declaration says.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stellwerk.controller import intake
from stellwerk.controller.hindsight import bounded
from stellwerk.controller.intake import Machine
from stellwerk.controller.times import rfc3339
from stellwerk.scheduling.calibration import Calibration
from stellwerk.scheduling.commands import ProvisionUnit
from stellwerk.scheduling.evaluation import Verdict
from stellwerk.scheduling.events import FleetChanged, UnitAppeared
from stellwerk.scheduling.forecast import UNKNOWN, Futures, Outlook, forecast
from stellwerk.scheduling.history import History
from stellwerk.scheduling.model import Demand, Fleet, Reason
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import WorkloadState

if TYPE_CHECKING:
    from stellwerk import spec


_KEY = "plan"
FULL = Futures()


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
class Past:
    """What a plan may rest on: what was learnt, how good forecasts were, who asks, and how far to look ahead."""

    history: History = field(default_factory=History)
    calibration: Calibration = field(default_factory=Calibration)
    user: str = ""
    look: Futures = FULL


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
    past: Past | None = None,
) -> Plan:
    """Judge every option of `workload` on a running scheduler, on a declared fleet, or on this machine alone.

    `machine` plays the fleet, the local one unless said. With a scheduler it says that the fleet was not declared:
    pools that the workload asks for come into being in a copy. Raises intake.Unsupported.
    """
    intake.check_supported(workload)
    at, past = time.time() if now is None else now, past or Past()
    demand = intake.demand(workload, _KEY, workload.name, past.user)
    judge = _scheduler(demand, fleet, scheduler, machine, at)
    verdicts = judge.evaluate(demand, at)
    later = sum(verdict.verdict == "later" for verdict in verdicts)
    look = past.look if past.look.events is None else replace(past.look, events=past.look.events // max(1, later))
    options = tuple(_planned(judge, demand, verdict, replace(past, look=look)) for verdict in verdicts)
    notes = tuple(warning.message for warning in workload.warnings)
    return Plan(demand.name, _chosen(verdicts), options, notes)


def why(scheduler: Scheduler, workload: WorkloadState, outlook: Outlook | None = None) -> dict[str, Any]:
    """Why a workload waits: reasons per option, the earliest start by forecast, and the cheapest change.

    That is what would start it now; None when no single change would, or it does not wait.
    """
    demand = workload.demand
    reasons = scheduler.reasons(workload.key)
    listed = [list(each) for each in reasons] or [[] for _ in demand.options]
    known = (outlook or UNKNOWN) if workload.phase == "waiting" else UNKNOWN
    return {
        "name": demand.name,
        "state": workload.phase,
        "options": [
            {"option": option.short, "reasons": [reason.to_json() for reason in each]}
            for option, each in zip(demand.options, listed, strict=True)
        ],
        "earliest": Range(known.start_p50, known.start_p90).times(),
        "finish": Range(known.finish_p50, known.finish_p90).times(),
        "cheapest_change": _change(scheduler, workload),
        "promise": _promise(scheduler, workload),
    }


def _promise(scheduler: Scheduler, workload: WorkloadState) -> dict[str, Any] | None:
    """The start that a waiting workload is told, if it is among the first; see `scheduling.policy.promises`."""
    found = scheduler.promise(workload.key)
    return None if found is None else {"at": rfc3339(found.at), "place": found.place, "kept": found.kept}


def _change(scheduler: Scheduler, workload: WorkloadState) -> dict[str, Any] | None:
    """The cheapest change, with its option in the short form."""
    found = scheduler.cheapest_change(workload.key)
    return None if found is None else found.to_json() | {"option": workload.demand.options[found.option].short}


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
    trial = scheduler.copy()
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


def _planned(judge: Scheduler, demand: Demand, verdict: Verdict, past: Past) -> PlannedOption:
    option, pools = demand.options[verdict.option], judge.state.pools
    duration = _duration(demand, verdict.option, past.history)
    start, finish = Range(), Range()
    if verdict.verdict == "now":
        start = Range(verdict.start, verdict.start)
        finish = Range(_after(verdict.start, duration.p50), _after(verdict.start, duration.p90))
    elif verdict.verdict == "later":
        start, finish = _later(judge, replace(demand, options=(option,)), past, duration)
    return PlannedOption(
        option=option.short,
        units=verdict.units,
        hosts=verdict.hosts,
        chips=verdict.chips,
        price_per_hour=verdict.price_per_hour,
        start=start,
        finish=finish,
        cost=Range() if verdict.verdict == "never" else _cost(duration, verdict.price_per_hour),
        verdict=verdict.verdict,
        reasons=verdict.reasons,
        pools=verdict.pools,
        emulated=any(pools[name].emulated for name in verdict.pools),
    )


def _later(judge: Scheduler, demand: Demand, past: Past, duration: Range) -> tuple[Range, Range]:
    """Start and finish of a workload with one option, if it were submitted now."""
    drawn = forecast(judge, past.history, submit=[demand], only=(_KEY,), futures=past.look)[_KEY]
    found = bounded(past.calibration, drawn, judge.state.now)
    if past.history.knows(demand, 0):
        finish = Range(found.finish_p50, found.finish_p90)
    else:
        finish = Range(_after(found.start_p50, duration.p50), _after(found.start_p90, duration.p90))
    return Range(found.start_p50, found.start_p90), finish


def _duration(demand: Demand, option: int, history: History) -> Range:
    """How long (s) an option runs: as such work did, else as declared."""
    if history.knows(demand, option):
        return Range(*(history.draw(demand, option, 0.0, share) for share in (0.5, 0.9)))
    declared = demand.options[option].runtime
    declared = demand.runtime if declared is None else declared
    return Range(declared, declared)


def _cost(seconds: Range, price: float | None) -> Range:
    """US dollars at a price per hour."""
    if price is None:
        return Range()
    return Range(*(None if each is None else each * price / 3600 for each in (seconds.p50, seconds.p90)))


def _after(start: float | None, seconds: float | None) -> float | None:
    return None if start is None or seconds is None else start + seconds
