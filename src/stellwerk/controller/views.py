"""What the state looks like to people: the JSON objects of every listing.

Times are RFC 3339 in UTC, durations seconds, money US dollars, hardware its short form. What is unknown is None.
Emulated hardware is marked so wherever it is shown; its cost is what it would cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stellwerk.controller.times import rfc3339
from stellwerk.observe.ledger import By, Ledger
from stellwerk.scheduling.model import Grant, Option, Pool, Queue
from stellwerk.scheduling.placement.index import PoolIndex
from stellwerk.scheduling.placement.units import natural, serves
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import Attempt, State, UnitState, WorkloadState

Json = dict[str, Any]


def find(state: State, name: str) -> WorkloadState | None:
    """The workload that people mean by a name: the living one, else the last that had it; a key is taken too."""
    if name in state.workloads:
        return state.workloads[name]
    named = [workload for workload in state.workloads.values() if workload.demand.name == name]
    return max(named, key=lambda workload: (workload.phase != "ended", workload.order), default=None)


def listing(state: State, *, ended: bool, name: str | None = None) -> list[Json]:
    """Living workloads, oldest first; or those that have ended, newest first."""
    chosen = [
        workload
        for workload in state.workloads.values()
        if (workload.phase == "ended") is ended and name in (None, workload.demand.name)
    ]
    chosen.sort(key=lambda workload: workload.order, reverse=ended)
    return [listed(state, workload) for workload in chosen]


def listed(state: State, workload: WorkloadState) -> Json:
    """One workload as `ls` and `history` show it; a waiting one with its preferred option, and it holds nothing."""
    demand, live = workload.demand, workload.live
    last = workload.attempts[-1] if workload.attempts else None
    shown = live or (last if workload.phase == "ended" else None)
    option = demand.options[shown.option if shown else 0]
    return {
        "name": demand.name,
        "key": demand.key,
        "kind": demand.kind,
        "queue": demand.queue,
        "priority": demand.priority,
        "state": workload.phase,
        "attempt": last.number if last else None,
        "option": option.short,
        "units": list(shown.units) if shown else [],
        "hosts": _hosts_held(shown) if shown else _hosts_asked(state, option),
        "chips": sum(grant.chips for grant in shown.grants) if shown else option.chips,
        "submitted": rfc3339(workload.submitted),
        "started": rfc3339(next((a.running for a in workload.attempts if a.running is not None), None)),
        "finished": rfc3339(workload.finished),
        "outcome": workload.outcome,
        "cause": workload.cause,
        "message": workload.message,
        "exit_code": last.exit_code if last and workload.phase == "ended" else None,
        "reasons": _reasons(workload),
        "emulated": _emulated(state, _pools_of(shown.grants) if shown else _serving(state, option)),
    }


def show(state: State, ledger: Ledger, workload: WorkloadState, now: float) -> Json:
    """One workload with all its attempts."""
    return listed(state, workload) | {
        "attempts": [_attempt(state, ledger, workload, attempt, now) for attempt in workload.attempts],
        "options": [option.short for option in workload.demand.options],
        "retries_left": workload.retries_left,
        "checkpoint": workload.checkpoint,
        "checkpoint_step": workload.checkpoint_step,
        "stop_cause": workload.stop_cause,
    }


def fleet(scheduler: Scheduler) -> Json:
    """All pools with their units and what is free of them, and all queues."""
    state, lanes = scheduler.state, scheduler.book.lanes
    placements = _placements(state)
    return {
        "pools": [_pool(state, pool, lanes[pool.name].places, placements) for pool in state.pools.values()],
        "queues": [_queue(queue) for queue in state.queues.values()],
        "policy": state.fleet.policy,
        "preempt": state.fleet.preempt,
        "memory": state.fleet.memory,
    }


def _queue(queue: Queue) -> Json:
    """A queue; `borrow` is null where it may borrow all that is lent."""
    return {
        "name": queue.name,
        "quota": dict(queue.quota or ()),
        "weight": queue.weight,
        "cohort": queue.cohort or None,
        "borrow": queue.borrow,
        "lend": queue.lend,
        "policy": queue.policy,
    }


def _placements(state: State) -> dict[str, list[Json]]:
    """What live attempts hold, by unit; `place` is where in the unit (or of which box of cubes), null for all of it."""
    found: dict[str, list[Json]] = {}
    for workload in state.workloads.values():
        attempt = workload.live
        for grant in attempt.grants + attempt.leaving if attempt else ():
            held = {"workload": workload.demand.name, "place": grant.place or None, "chips": grant.chips}
            found.setdefault(grant.unit, []).append(held)
    return found


def cost(state: State, ledger: Ledger, by: By, now: float, since: float = 0.0) -> list[Json]:
    """The ledger's rows, under the names that people know; `workload` is the key where a name was used again."""
    return [row.to_json() | _named(state, row.key, by, row.is_pool) for row in ledger.rows(by=by, now=now, since=since)]


def _named(state: State, key: str, by: By, is_pool: bool) -> Json:
    if is_pool or by not in ("workload", "attempt"):
        return {"pool": key} if is_pool else {}
    workload, _, attempt = key.partition("/")
    name = state.workloads[workload].demand.name
    return {"key": f"{name}/{attempt}" if attempt else name, "workload": workload}


def _attempt(state: State, ledger: Ledger, workload: WorkloadState, attempt: Attempt, now: float) -> Json:
    bill = ledger.attempt(workload.key, attempt.number, now)
    return {
        "number": attempt.number,
        "option": workload.demand.options[attempt.option].short,
        "units": list(attempt.units),
        "state": workload.phase if attempt.finished is None else "ended",
        "outcome": attempt.outcome,
        "cause": attempt.cause,
        "message": attempt.message,
        "exit_code": attempt.exit_code,
        "granted": rfc3339(attempt.began),
        "started": rfc3339(attempt.running),
        "finished": rfc3339(attempt.finished),
        "seconds": {use: round(seconds, 3) for use, seconds in bill.seconds.items() if seconds},
        "chip_hours": round(bill.chip_hours, 6),
        "cost": None if bill.cost is None else round(bill.cost, 6),
        "price_known": bill.cost is not None,
        "emulated": _emulated(state, _pools_of(attempt.grants)),
    }


def _reasons(workload: WorkloadState) -> list[Json]:
    """Reasons of all options, each with its option's index."""
    if workload.phase != "waiting":
        return []
    return [reason.to_json() | {"option": index} for index, option in enumerate(workload.reasons) for reason in option]


def _hosts_held(attempt: Attempt) -> int:
    """Hosts of an attempt; cells on the same unit may share hosts, and are counted by what they stand on."""
    return sum(grant.hosts for grant in attempt.grants)


def _hosts_asked(state: State, option: Option) -> int | None:
    """Hosts that an option takes on the first pools that serve it; None when none does."""
    total = 0
    for part in option.parts:
        pool = next((pool for pool in state.pools.values() if serves(pool, part)), None)
        if pool is None:
            return None
        total += part.count * max(1, -(-part.chips * pool.hosts // pool.chips))
    return total


def _pools_of(grants: Iterable[Grant]) -> set[str]:
    return {grant.pool for grant in grants}


def _serving(state: State, option: Option) -> set[str]:
    return {pool.name for pool in state.pools.values() for part in option.parts if serves(pool, part)}


def _emulated(state: State, pools: set[str]) -> bool:
    return any(state.pools[name].emulated for name in pools if name in state.pools)


def _pool(state: State, pool: Pool, places: PoolIndex, placements: Mapping[str, list[Json]]) -> Json:
    units = [unit for unit in state.units.values() if unit.pool == pool.name]
    names: Mapping[str, str] = {key: workload.demand.name for key, workload in state.workloads.items()}
    chips, shape = places.largest()
    return {
        "name": pool.name,
        "accelerator": pool.accelerator,
        "topology": pool.topology,
        "machine": pool.machine,
        "market": pool.market,
        "layout": pool.layout,
        "price_per_hour": None if pool.price is None else pool.price * pool.chips,
        "price_per_chip_hour": pool.price,
        "chips": pool.chips,
        "minimum": pool.minimum,
        "maximum": pool.maximum,
        "lifetime": pool.lifetime,
        "emulated": pool.emulated,
        "free_chips": places.free,
        "largest_free": {"chips": chips, "shape": shape} if chips else None,
        "fragmentation": round(places.fragmentation(), 6),
        "units": [
            _unit(unit, names, placements.get(unit.name, [])) for unit in sorted(units, key=lambda u: natural(u.name))
        ],
    }


def _unit(unit: UnitState, names: Mapping[str, str], placements: list[Json]) -> Json:
    up = unit.hosts - len(unit.hosts_down) if unit.phase in ("up", "broken", "releasing") else 0
    return {
        "name": unit.name,
        "incarnation": unit.incarnation,
        "state": unit.phase,
        "hosts_up": up,
        "hosts": unit.hosts,
        "chips": unit.chips,
        "free_chips": unit.free,
        "workloads": [names[key] for key in unit.held],
        "placements": placements,
        "detail": unit.detail,
    }
