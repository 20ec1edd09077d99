"""Taking workloads and fleets in: names, keys, bundles, pools that come into being; all of it, or nothing.

What takes time (copying the folder) comes first and leaves nothing but a bundle that will be pruned. Then, without a
break in between, the name is settled and the event is written together with the declaration under the caller's own
submission id, so a request that was dropped and comes again finds that it was already granted.
"""

from __future__ import annotations

import asyncio
import getpass
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stellwerk.controller import bundles, intake, outlooks, planning
from stellwerk.controller.intake import Machine
from stellwerk.controller.log import Declared
from stellwerk.controller.loop import Controller
from stellwerk.scheduling.events import Event, FleetChanged, Submitted
from stellwerk.scheduling.model import Demand
from stellwerk.scheduling.state import copied

if TYPE_CHECKING:
    from stellwerk import spec

_LONGEST_NAME = 40


def this_user() -> str:
    """The name of the user whose process this is; empty where the system has none for it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


class NameInUse(Exception):
    """A living workload has the name that was asked for."""


class Submissions:
    """Takes declarations in for one controller; `machine` plays its fleet."""

    def __init__(self, controller: Controller, machine: Machine, user: str | None = None) -> None:
        """Submissions for a controller that has recovered; `user` submits them, this process's user unless said."""
        self._controller = controller
        self.user = this_user() if user is None else user
        self._machine = machine
        self._folder = controller.home / "bundles"
        self._packing = 0
        fleet = controller.log.fleet()
        self.fleet_declared = fleet is not None
        """False while pools come into being as workloads ask for them."""
        self.accelerators = frozenset((fleet or {}).get("accelerators", {}))
        """Names of accelerators that only the fleet declares."""

    async def submit(self, workload: spec.Workload, name: str | None, submission: str) -> Declared:
        """Take a workload in under the `name` that was asked for, or one made from its own.

        The same `submission` gives the same answer. Raises NameInUse, intake.Unsupported and bundles.BundleError.
        """
        log = self._controller.log
        if known := log.declared(submission=submission):
            return known
        intake.check_supported(workload)
        self._free_name(workload.name, name)
        self._packing += 1
        try:
            declaration = await self._shipped(workload)
            return log.declared(submission=submission) or self._commit(workload, declaration, name, submission)
        finally:
            self._packing -= 1

    def change_fleet(self, declared: spec.Fleet) -> None:
        """Declare the fleet anew."""
        fleet = intake.fleet(declared, self._machine)
        now = self._controller.clock.now()
        self._controller.take([FleetChanged(now, fleet)], fleet=declared.model_dump(mode="json"))
        self.fleet_declared = True
        self.accelerators = frozenset(declared.accelerators)

    async def plan(self, workload: spec.Workload) -> planning.Plan:
        """What would come of the workload now; raises intake.Unsupported. The controller goes on meanwhile."""
        intake.check_supported(workload)
        machine = None if self.fleet_declared else self._machine
        now, known = self._controller.clock.now(), self._controller.outlooks
        history, calibration = known.history.copy(), known.hindsight.calibration.copy()
        alone = copied(self._controller.state, ended=False)

        def made() -> planning.Plan:
            scheduler = outlooks.at_time(alone, now)
            about = planning.Past(history, calibration, self.user, outlooks.LOOK)
            return planning.plan(workload, None, scheduler, now, machine=machine, past=about)

        return await asyncio.to_thread(made)

    def prune(self) -> None:
        """Remove bundles that no living workload runs from."""
        if self._packing:
            return
        living = (w.key for w in self._controller.state.workloads.values() if w.phase != "ended")
        declared = [found for key in living if (found := self._controller.log.declared(key=key))]
        bundles.prune(self._folder, {Path(found.declaration.get("working_dir", "")).name for found in declared})

    async def _shipped(self, workload: spec.Workload) -> dict[str, Any]:
        """The declaration, with its folder replaced by a bundle."""
        declaration = workload.model_dump(mode="json")
        if workload.kind != "cluster" and "://" not in workload.working_dir:
            source, home = Path(workload.working_dir), self._controller.home
            bundle = await asyncio.to_thread(bundles.pack, source, self._folder, exclude=home)
            declaration["working_dir"] = str(bundle)
        return declaration

    def _commit(
        self, workload: spec.Workload, declaration: Mapping[str, Any], asked: str | None, submission: str
    ) -> Declared:
        name = self._free_name(workload.name, asked)
        now = self._controller.clock.now()
        demand = intake.demand(workload, self._new_key(name), name, self.user)
        declared = Declared(demand.key, name, submission, now, dict(declaration) | {"name": name})
        self._controller.take([*self._new_pools(demand, now), Submitted(now, demand)], declared=declared)
        return declared

    def _new_pools(self, demand: Demand, now: float) -> list[Event]:
        current = self._controller.state.fleet
        fleet = current if self.fleet_declared else intake.grown(current, demand.options, self._machine)
        return [] if fleet is current else [FleetChanged(now, fleet)]

    def _free_name(self, own: str, asked: str | None) -> str:
        taken = {w.demand.name for w in self._controller.state.workloads.values() if w.phase != "ended"}
        if asked is not None:
            if asked in taken:
                raise NameInUse(f"{asked} is the name of a workload that has not ended; choose another, or stop it")
            return asked
        name, number = own, 2
        while name in taken:
            suffix = f"-{number}"
            name, number = own[: _LONGEST_NAME - len(suffix)].rstrip("-") + suffix, number + 1
        return name

    def _new_key(self, name: str) -> str:
        """A key that is new in the log, and safe as a file name since names are."""
        while self._controller.log.declared(key=(key := f"{name}-{secrets.token_hex(3)}")) is not None:
            continue
        return key
