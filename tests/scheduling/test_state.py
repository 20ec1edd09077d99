"""Records of the state: a copy has everything, and shares nothing that changes."""

from __future__ import annotations

import dataclasses
from typing import Any

from world import demand, gpus

from stellwerk.scheduling.model import Grant
from stellwerk.scheduling.state import State, UnitState, attempt_of, copied, workload_of


def filled(record: Any) -> Any:
    """The record with something else than its default in every field that has one."""
    for number, field in enumerate(dataclasses.fields(record)):
        if field.default is not dataclasses.MISSING:
            kinds = {"float": number + 0.5, "int": number + 1, "bool": True, "tuple": (number,)}
            kind = str(field.type).partition(" ")[0].partition("[")[0]
            setattr(record, field.name, kinds.get(kind, f"{field.name} {number}"))
    return record


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
