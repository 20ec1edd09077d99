"""The units in the book: which there are, for whom they are made, and which need attention."""

from __future__ import annotations

from stellwerk.scheduling.index import Lane
from stellwerk.scheduling.placement.units import natural
from stellwerk.scheduling.state import State, UnitState
from stellwerk.scheduling.timers import Timers, notice


class Units:
    """The part of a `Book` that keeps units and what is known of them together.

    `members` are the units of each pool, `meant` those that were made for a workload, by its key, `attention` those
    that have to be rebuilt or given back, `abandoned` those that nobody needs any more. `dirty` are the lanes whose
    answers may have changed, `sized` those whose size may have to.
    """

    state: State
    lanes: dict[str, Lane]
    members: dict[str, dict[str, UnitState]]
    meant: dict[str, dict[str, None]]
    attention: dict[str, None]
    abandoned: dict[str, None]
    dirty: dict[Lane, None]
    sized: dict[Lane, None]
    timers: Timers

    def enter_units(self) -> None:
        """Tell the indexes of all units that there are."""
        for name in sorted(self.state.units, key=natural):
            self.unit_changed(self.state.units[name])

    def touch(self, lane: Lane) -> None:
        """The answers of a lane, and its size, may have changed."""
        self.dirty[lane] = self.sized[lane] = lane.blocked = None

    def mean(self, unit: UnitState, key: str | None) -> None:
        """A unit is made for the workload `key`, or for nobody any more."""
        if unit.meant is not None:
            units = self.meant[unit.meant]
            del units[unit.name]
            if not units:
                del self.meant[unit.meant]
        unit.meant = key
        if key is not None:
            self.meant.setdefault(key, {})[unit.name] = None

    def unit_changed(self, unit: UnitState) -> None:
        """Tell the indexes of a unit that is new, or whose health or incarnation has changed."""
        lane = self.lanes.get(unit.pool)
        if unit.meant is not None and unit.name not in self.meant.get(unit.meant, ()):
            self.meant.setdefault(unit.meant, {})[unit.name] = None
        if unit.phase != "up" or unit.leaving or lane is None:
            self.attention[unit.name] = None
        if lane is None:
            return
        self.members[unit.pool][unit.name] = unit
        if (lifetime := lane.pool.lifetime) is not None:
            at = unit.since + lifetime - notice(lifetime)
            self.timers.set(("unit", unit.name), at if unit.phase == "up" and not unit.leaving else None)
        if unit.phase == "up" and not unit.leaving:
            lane.places.put(unit)
        elif unit.phase in ("provisioning", "recycling"):
            lane.places.expect(unit.name, unit.since + lane.pool.provision)
        else:
            lane.places.drop(unit.name)
        self.touch(lane)

    def unit_gone(self, unit: UnitState) -> None:
        """The unit is no more."""
        if unit.meant is not None:
            self.mean(unit, None)
        del self.state.units[unit.name]
        self.attention.pop(unit.name, None)
        self.timers.due.pop(("unit", unit.name), None)
        lane = self.lanes.get(unit.pool)
        if lane is not None:
            self.members[unit.pool].pop(unit.name, None)
            lane.named = 0
            lane.places.drop(unit.name)
            self.touch(lane)
