"""Records of the state: made with their defaults, and a copy has everything and shares nothing that changes."""

from __future__ import annotations

import dataclasses
from typing import Any

from world import demand, gpus

from stellwerk.scheduling import state as records
from stellwerk.scheduling.compiled import complete
from stellwerk.scheduling.events import success
from stellwerk.scheduling.model import Grant
from stellwerk.scheduling.state import State, UnitState, attempt_of, copied, workload_of


def filled(record: Any) -> Any:
    """The record with something else than its default in every field that has one."""
    complete(records)
    for number, field in enumerate(dataclasses.fields(record)):
        if field.default is not dataclasses.MISSING:
            kinds = {"float": number + 0.5, "int": number + 1, "bool": True, "tuple": (number,)}
            kind = str(field.type).partition(" ")[0].partition("[")[0]
            setattr(record, field.name, kinds.get(kind, f"{field.name} {number}"))
    return record


def defaults(record: Any) -> dict[str, Any]:
    """What the fields of a record have when nobody says anything, of those that nobody need name."""
    fields = {field.name: field for field in dataclasses.fields(record)}
    plain = {name: field.default for name, field in fields.items() if field.default is not dataclasses.MISSING}
    made = {name: field.default_factory for name, field in fields.items()}
    return plain | {name: new() for name, new in made.items() if new is not dataclasses.MISSING}


def test_what_makes_a_record_gives_it_its_defaults() -> None:
    grants = (Grant("main", 0, "h100", "h100-0", 1, 8, 1),)
    workload, attempt = workload_of(demand("w", gpus(8)), 1.0, 2, 3.0), attempt_of(1, 0, grants, 4.0)
    told = {"waiting_since": 3.0}
    for record in (workload, attempt, success(5.0, "w", 1)):
        wanted = {name: told.get(name, value) for name, value in defaults(record).items()}
        assert {name: getattr(record, name) for name in wanted} == wanted
        assert all(hasattr(record, field.name) for field in dataclasses.fields(record))
    assert success(5.0, "w", 1).outcome == "succeeded"
    assert workload_of(workload.demand, 1.0, 2, 3.0).attempts is not workload.attempts


def test_a_copy_has_every_field_and_records_of_its_own() -> None:
    grant = Grant("main", 0, "h100", "h100-0", 1, 8, 1)
    workload = filled(workload_of(demand("w", gpus(8)), 1.0, 2, 3.0))
    workload.attempts = [filled(attempt_of(1, 0, (grant,), 4.0))]
    unit = filled(UnitState("h100-0", "h100", 1, "up", 8, 1, 5.0, {0}, {"w": 8}))
    state = State(workloads={"w": workload}, units={"h100-0": unit}, submissions=1)
    made = copied(state)
    assert made == state
    made.workloads["w"].attempts[0].message = "another"
    made.workloads["w"].attempts.append(attempt_of(2, 0, (grant,), 6.0))
    made.units["h100-0"].held.clear()
    made.units["h100-0"].hosts_down.clear()
    assert workload.attempts == [filled(attempt_of(1, 0, (grant,), 4.0))]
    assert (unit.held, unit.hosts_down) == ({"w": 8}, {0})
