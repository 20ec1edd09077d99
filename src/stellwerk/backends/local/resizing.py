"""Growing and shrinking a running attempt in whole units: the order to its keeper, and what is left to do of one.

Why: an elastic workload runs on what is free, and gives back what others need, without being started anew.

How it goes, step by step, in the keeper:

1. notice    where units are left, or the code has to be started anew, the code is told and has the order's `grace`
2. move      the hosts of the units that are left are ended, those of the new units join the Ray cluster
3. settle    the code is told what it holds now; the journal has `resized`, which is `AttemptResized` to the scheduler

A `job` or a `cluster` goes on in place: Ray sees nodes come and go. The mesh of a training is fixed when it starts, so
a `train` is started anew within the same attempt: it gets the drain notice, saves a checkpoint, and leaves. Until
`resized` everything that was or will be held is the attempt's, in the scheduler's books as on the machine.

An order is known by its number. One that was carried out, or is under way, is not taken again, so that a controller
that comes back may repeat the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stellwerk.backends.local import hosts as host_plans
from stellwerk.backends.local.planning import units_of
from stellwerk.scheduling.commands import ResizeAttempt
from stellwerk.scheduling.model import Pool

IN_PLACE = ("job", "cluster")
"""Kinds whose code goes on while units come and go; others are started anew."""

Host = dict[str, Any]


def resize_order(
    plan: Mapping[str, Any], present: Sequence[Host], first: int, command: ResizeAttempt
) -> dict[str, Any]:
    """The keeper's order: all hosts that are to be, the present ones as they are.

    `first` is the number that the next new host gets. The context is the one of the plan with the new allocation.
    """
    pools = {name: Pool(**fields) for name, fields in plan["pools"].items()}
    held = host_plans.held_units(command.grants, pools, plan["topologies"])
    known = {(host["name"], host["incarnation"]): host for host in present}
    new = [part for part in held if (f"{part.name}-host-{part.indices[0]}", part.incarnation) not in known]
    added = [host.to_json() for host in host_plans.plan_hosts(new, plan["address"], first=first)]
    by_name = {host["name"]: host for host in [*present, *added]}
    names = [f"{part.name}-host-{index}" for part in held for index in part.indices]
    context = json.loads(plan["protected"]["STELLWERK_CONTEXT"]) | host_plans.allocation(held)
    return {
        "resize": command.resize,
        "hosts": [by_name[name] for name in names],
        "units": units_of(held),
        "context": context,
        "grace": command.grace,
    }


@dataclass
class Resizing:
    """An order that a keeper is carrying out: what is left and joined, and how far it is.

    `deadline` (monotonic) ends the notice; `restart` says that the code is started anew, `moving` that the notice is
    over and hosts come and go.
    """

    number: int
    hosts: list[Host]
    units: list[list[Any]]
    context: dict[str, Any]
    grace: float
    leaving: list[str]
    joining: list[Host]
    restart: bool
    deadline: float | None = None
    terminated: bool = False
    moving: bool = False

    @classmethod
    def of(cls, order: Mapping[str, Any], present: Sequence[Host], *, restart: bool) -> Resizing:
        """An order, seen from the hosts that there are."""
        wanted = {host["name"]: host["number"] for host in order["hosts"]}
        have = {host["name"]: host["number"] for host in present}
        leaving = [name for name, number in have.items() if wanted.get(name) != number]
        joining = [host for host in order["hosts"] if have.get(host["name"]) != host["number"]]
        hosts, units, context = list(order["hosts"]), list(order["units"]), dict(order["context"])
        restart = restart and bool(leaving or joining)
        return cls(int(order["resize"]), hosts, units, context, float(order["grace"]), leaving, joining, restart)

    def units_left(self, present: Sequence[Host]) -> list[str]:
        """The units, and the parts of units, of which nothing will be held any more."""
        staying = {host["env"]["STELLWERK_UNIT"] for host in self.hosts}
        names = (host["env"]["STELLWERK_UNIT"] for host in present)
        return list(dict.fromkeys(name for name in names if name not in staying))

    def told(self, leaving: Sequence[str], deadline: float | None, before: Mapping[str, Any] | None) -> dict[str, Any]:
        """What the code is told: what it holds (`before` while it still does), and what it has to leave until when."""
        held = before if before is not None else self.context
        kept = {key: held[key] for key in ("units", "slices", "hosts", "chips")}
        return {"resize": self.number, **kept, "leaving": list(leaving), "deadline": deadline}
