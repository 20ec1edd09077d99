"""Logs as a controller writes them, of worlds that are simulated here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stellwerk.controller.log import Log
from stellwerk.scheduling.events import AttemptEnded, AttemptStarted, Event, FleetChanged, Submitted, UnitAppeared
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, Pool
from stellwerk.simulation.costs import Costs
from stellwerk.simulation.driver import Job
from stellwerk.simulation.traces.log import Recorded
from stellwerk.simulation.trouble import TroubledWorld

EPOCH = 1_700_000_000.0


def pool(units: int = 1, name: str = "nodes", **more: Any) -> Pool:
    """A pool of units of 4 chips at 2 dollars."""
    return Pool(name, "p100", None, None, 4, 1, units, more.pop("minimum", units), price=2.0, **more)


def demand(key: str, chips: int = 4, runtime: float | None = None, **more: Any) -> Demand:
    """A workload of so many chips."""
    option = Option(f"p100:{chips}", (Part("main", "p100", None, chips),))
    return Demand(key, more.pop("name", key), more.pop("kind", "job"), (option,), runtime=runtime, **more)


def events_of(fleet: Fleet, jobs: Iterable[tuple[float, float, Demand]]) -> tuple[list[Event], dict[str, Job]]:
    """What a controller would have written of (submit, duration, demand), and what became of them."""
    made = [Job(EPOCH + at, wanted, duration) for at, duration, wanted in jobs]
    heard: list[Event] = []
    world = TroubledWorld(fleet, made, Costs(), observer=lambda event, _: heard.append(event))
    world.run()
    return heard, world.jobs


def until(events: Sequence[Event], at: float) -> list[Event]:
    """The events before a time since the epoch of these logs."""
    return [event for event in events if event.at < EPOCH + at]


def recorded(events: Sequence[Event], declared: Mapping[str, Any] | None = None) -> Recorded:
    """A log that was read."""
    return Recorded("log.db", tuple(events), declared)


def written(folder: Path, events: Sequence[Event], declared: Mapping[str, Any] | None = None) -> Path:
    """A log on disk, closed as a controller closes it."""
    folder.mkdir(parents=True, exist_ok=True)
    log = Log.at(folder / "log.db")
    log.append(events, fleet=declared)
    log.close()
    return folder / "log.db"


def told(*rows: tuple[float, Any]) -> list[Event]:
    """Events by hand: (time, fleet | demand | unit | (key, attempt) | (key, attempt, outcome, cause))."""
    made = list[Event]()
    for after, what in rows:
        at = EPOCH + after
        match what:
            case Fleet():
                made.append(FleetChanged(at, what))
            case Demand():
                made.append(Submitted(at, what))
            case str():
                made.append(UnitAppeared(at, what.rpartition("-")[0], what, 1))
            case (key, number):
                made.append(AttemptStarted(at, key, number))
            case (key, number, outcome, cause):
                made.append(AttemptEnded(at, key, number, outcome, cause))
            case _:
                made.append(what)
    return made
