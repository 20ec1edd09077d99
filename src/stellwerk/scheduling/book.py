"""The state and its indexes, changed together: the only place where either changes.

A `Book` knows no policy: it enters workloads in lines, books grants and returns, and marks the lanes whose answers may
have changed (`dirty`) or whose size may have to (`sized`). Everything in it but `state` can be made anew from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stellwerk.scheduling.catalogue import Catalogue
from stellwerk.scheduling.commands import Command, StartAttempt
from stellwerk.scheduling.index import Account, Cohort, Entry, Lane, WaitClass, chips_held, entry_of
from stellwerk.scheduling.model import NO_LIMITS, Demand, Grant
from stellwerk.scheduling.order import EntryOrder, Order, ShareOrder, Standings
from stellwerk.scheduling.parking import MOST_ASKED, Parking
from stellwerk.scheduling.placement.index import INF, make
from stellwerk.scheduling.policy import fairshare, queues
from stellwerk.scheduling.policy.rules import RULES, Rules, by_share, remaining, rules_for
from stellwerk.scheduling.state import Attempt, State, WorkloadState, attempt_of
from stellwerk.scheduling.timers import Timers

Hook = Callable[["Book", WorkloadState], None]


class Book(Parking):
    """State and indexes of one scheduler. `out` collects the orders of the event that is being handled: a list of its
    own for each, by which the event is known too. `over` are the workloads that ended by the event `over_by`."""

    def __init__(self, state: State, schedule: Hook, settle: Hook) -> None:
        """`schedule` sets the next time of a workload, `settle` sees to the units that were made for one."""
        self.state = state
        self.out: list[Command] = []
        self.over: list[WorkloadState] = []
        self.over_by = self.out
        self.forget = False
        self.serving: Lane | None = None
        self.schedule_hook, self.settle_hook = schedule, settle
        self.rebuild()

    def schedule(self, workload: WorkloadState) -> None:
        """Set the next time at which something about a workload changes by itself."""
        self.schedule_hook(self, workload)

    def settle(self, workload: WorkloadState) -> None:
        """See to the units that were made for a workload and are not needed for it any more."""
        if self.meant:
            self.settle_hook(self, workload)

    # Making the indexes

    def rebuild(self) -> None:
        """Make all indexes anew from the state."""
        state = self.state
        self.rules: Rules = rules_for(state.fleet.policy, state.fleet.preempt)
        self.preempts = state.fleet.preempt
        self.fair = by_share(state.fleet)
        self._building = True
        self.accounted = bool(state.queues)
        self.tracking = (
            self.rules.displaces
            or self.rules.backfill
            or any(RULES[q.policy].backfill for q in state.queues.values() if q.policy)
        )
        self.timers = Timers()
        self.standings = Standings()
        self.lanes = {
            pool.name: Lane(pool, make(pool, track=self.tracking, plain=not self.rules.backfill), number, self._order())
            for number, pool in enumerate(state.pools.values())
        }
        self.bare = self._bare()
        self.catalogue = Catalogue(state, self.lanes, self.rules, self._order, self.bare)
        self.accounts = self.catalogue.accounts
        self.class_of = self.catalogue.class_of
        self.account_of = self.catalogue.account_of
        self.rules_of = self.catalogue.rules_of
        self.chips_total: dict[str, int] = {}
        self.memory = state.fleet.memory
        self.claim: Entry | None = None
        self.serial = 0
        self.waiting: dict[str, WorkloadState] = {}
        self.members = {name: {} for name in state.pools}
        self.attention, self.meant, self.abandoned = {}, {}, {}
        self.claims: dict[str, int] = {}
        self.lifted: dict[str, None] = {}
        self.flexible: dict[str, WorkloadState] = {}
        self.held: dict[str, WorkloadState] = {}
        self.asking: dict[Cohort, None] = {}
        for pool in state.pools.values():
            self.chips_total[pool.accelerator] = self.chips_total.get(pool.accelerator, 0) + pool.maximum * pool.chips
        self.dirty, self.sized = dict.fromkeys(self.lanes.values()), dict.fromkeys(self.lanes.values())
        self.enter_units()
        self._enter_attempts()
        self._building = False
        for name, cool in state.cool_downs.items():
            self.timers.set(("pool", name), cool.until)

    def _order(self) -> Order:
        return ShareOrder(self.standings) if self.fair else EntryOrder()

    def _bare(self) -> bool:
        """Whether nothing but free chips can stand in anybody's way, and nothing is foreseen."""
        asked = self.tracking or self.accounted or self.preempts or self.state.fleet.memory is not None
        steady = all(lane.counts is not None and not lane.elastic for lane in self.lanes.values())
        return steady and not asked and all(unit.meant is None for unit in self.state.units.values())

    def _enter_attempts(self) -> None:
        live = [workload for workload in self.state.workloads.values() if workload.phase != "ended"]
        for workload in sorted(live, key=lambda workload: workload.order):
            if workload.phase == "waiting":
                self.wait(workload)
            else:
                attempt = workload.attempts[-1]
                self._occupy(workload, attempt, attempt.grants + attempt.leaving, known=True)
                if workload.demand.options[attempt.option].maximum is not None:
                    self.flexible[workload.key] = workload
                    self.bare = False
                if workload.stop_for is not None:
                    self.claims[workload.stop_for] = self.claims.get(workload.stop_for, 0) + 1
                self.schedule_hook(self, workload)

    # Waiting

    def enter(self, workload: WorkloadState, found: WaitClass) -> WaitClass:
        """Enter a waiting workload in the line of its class."""
        self.waiting[workload.demand.key] = workload
        found.shape.waiting += 1
        key = 0.0 if found.aged else self.rules_of(found.account).key(workload, self.state.now)
        if found.backfills:
            runtime = remaining(workload)
            found.line.push(workload, key, runtime)
            if runtime < INF:
                found.shape.enter(workload, runtime, found)
        else:
            found.line.push(workload, key, INF)
        entry = found.entry
        first = entry is None or key < entry[2] or (key == entry[2] and workload.order < entry[3])
        if first and found.parked is None:
            self.refresh(found)
        if workload.reclaims:
            found.account.cohort.claimants[workload.key] = found
        if self.fair and ("shares", "") not in self.timers.due:
            self.timers.set(("shares", ""), fairshare.next_tick(self.state.now))
        return found

    def place_of(self, found: WaitClass, workload: WorkloadState) -> tuple[int, float, float, int]:
        """Where a workload that need not be the first of its class comes in the order of all."""
        key = 0.0 if found.aged else self.rules_of(found.account).key(workload, self.state.now)
        return found.rank, found.account.level if self.fair else 0.0, key, workload.order

    def wait(self, workload: WorkloadState) -> None:
        """Enter a workload that waits, or hold it back until its time has come."""
        if workload.hold_until > self.state.now:
            self.held[workload.key] = self.waiting[workload.key] = workload
        else:
            self.ask(self.enter(workload, self.class_of(workload.demand)))
        self.schedule_hook(self, workload)

    def leave(self, workload: WorkloadState) -> None:
        """A waiting workload is over."""
        del self.waiting[workload.key]
        if workload.key in self.held:
            del self.held[workload.key]
            return
        found = self.class_of(workload.demand)
        if workload.reclaims:
            self._reclaimed(workload, found)
        found.line.leave(workload)
        found.shape.waiting -= 1
        if found.parked is not None and not found.line.size:
            self.unpark(found)
        self.refresh(found)
        self.dirty.update(dict.fromkeys(found.shape.lanes))

    def _reclaimed(self, workload: WorkloadState, found: WaitClass) -> None:
        workload.reclaims = False
        found.account.cohort.claimants.pop(workload.key, None)
        self.ask_cohort(found.account.cohort)

    def refresh(self, found: WaitClass) -> None:
        """Give a class the entry that its first member and its queue's level ask for."""
        first = found.line.first() if found.line.size else None
        entry = found.entry
        if first is None or found.parked is not None:
            if entry is not None:
                self._out_of_order(found, entry)
            return
        if entry is None:
            self._activate(found)
        elif entry[3] == first.order and (found.aged or not found.skips):
            return
        level = found.account.level if self.fair else 0.0
        key = 0.0 if found.aged else self.rules_of(found.account).key(first, self.state.now)
        found.serial = self.serial = serial = self.serial + 1
        found.entry = made = entry_of(found.rank, level, key, first.order, found, first, serial)
        if found.backfills:
            found.shape.order.put(made, entry, len(found.shape.active))
        for lane in found.shape.lanes:
            if lane.put(made, entry) and entry is not None and lane is not self.serving:
                self.dirty[lane] = None
        if entry is not None:
            self._claim_over(found)

    def _out_of_order(self, found: WaitClass, entry: Entry) -> None:
        found.entry, found.serial = None, 0
        self._deactivate(found)
        for lane in found.shape.lanes:
            if lane.order.drop(entry) and lane is not self.serving:
                self.dirty[lane] = None
        self._claim_over(found)

    def _claim_over(self, found: WaitClass) -> None:
        """Whoever waited first for the machine's memory, of this class, has left: all may have another answer."""
        if self.claim is not None and self.claim.found is found:
            self.claim = None
            self.dirty.update(dict.fromkeys(self.lanes.values()))

    def _activate(self, found: WaitClass) -> None:
        shape, account = found.shape, found.account
        if not shape.active:
            for lane in shape.lanes:
                lane.active[shape] = None
        shape.active[found] = None
        if not account.classes:
            self.standings.enter(account)
        account.classes[found] = None
        if found.timed:
            account.cohort.timed[found] = None
        for lane in shape.lanes:
            lane.classes += 1
            account.lanes[lane] = account.lanes.get(lane, 0) + 1

    def _deactivate(self, found: WaitClass) -> None:
        shape, account = found.shape, found.account
        del shape.active[found]
        del account.classes[found]
        account.cohort.timed.pop(found, None)
        if not account.classes:
            self.standings.leave(account)
        for lane in shape.lanes:
            lane.classes -= 1
            account.lanes[lane] -= 1
            if not account.lanes[lane]:
                del account.lanes[lane]
            if not shape.active:
                del lane.active[shape]

    # Grants and returns

    def grant(self, workload: WorkloadState, found: WaitClass, option: int, grants: tuple[Grant, ...]) -> None:
        """Give `grants` to a waiting workload and order its next attempt. It must still be entered in its line."""
        self.start(workload, found, option, grants)
        if self.tracking or len(workload.attempts) > 1:
            _waited(workload)
        self.granted(workload, found)

    def granted(self, workload: WorkloadState, found: WaitClass) -> None:
        """A workload that has been started leaves its line."""
        del self.waiting[workload.demand.key]
        if workload.reclaims:
            self._reclaimed(workload, found)
        found.line.leave(workload)
        found.shape.waiting -= 1
        entry = found.entry
        if entry is None or entry[3] == workload.order:
            self.refresh(found)

    def start(self, workload: WorkloadState, found: WaitClass, option: int, grants: tuple[Grant, ...]) -> None:
        """As `grant`, for a workload that was never entered in a line."""
        demand, attempts, now = workload.demand, workload.attempts, self.state.now
        key, number = demand.key, len(attempts) + 1
        attempt = attempt_of(number, option, grants, now)
        attempts.append(attempt)
        expected = INF
        if self.tracking:
            expected = now + remaining(workload, option)
            attempt.expected = None if expected == INF else expected
        workload.phase = "starting"
        units = self.state.units
        for grant in grants:
            unit = units[grant.unit]
            held = unit.held
            held[key] = held[key] + grant.chips if key in held else grant.chips
            if unit.meant is not None:
                self.mean(unit, None)
        if found.plain is not None:
            lane = found.plain[0]
            lane.places.take(grants, key, expected, now)
            if lane.elastic:
                self.sized[lane] = None
            if self.accounted:
                found.account.live[key] = workload
                self._charge(found.account, demand, option, grants, 1)
        else:
            self._occupy(workload, attempt, grants)
        order = StartAttempt(key, number, option, grants)
        self.out.append(order)
        if found.timed or demand.limits is not NO_LIMITS or workload.hold_until:
            self.schedule_hook(self, workload)
        elif found.account.quota or found.skips:
            self.timers.set(("workload", key), None)
        if found.timed and demand.options[option].maximum is not None:
            self.flexible[key] = workload
            self.bare = False
        if self.meant:
            self.settle_hook(self, workload)

    def started(self, workload: WorkloadState) -> None:
        """What else follows from a start in the plain case: what held for the time of waiting holds no more."""
        _waited(workload)
        self.schedule_hook(self, workload)

    def _occupy(
        self, workload: WorkloadState, attempt: Attempt, grants: tuple[Grant, ...], *, known: bool = False
    ) -> None:
        """Book grants in the indexes; `known` ones the units already say are held."""
        key = workload.demand.key
        until = INF if attempt.expected is None else attempt.expected
        for lane, own in self.by_lane(grants):
            (lane.places.note if known else lane.places.take)(own, key, until, attempt.began)
            if lane.elastic:
                self.sized[lane] = None
        if self.accounted:
            account = self.account_of(workload.demand.queue)
            account.live[key] = workload
            self._charge(account, workload.demand, attempt.option, grants, 1)
        if self.memory is not None:
            self.memory -= self.memory_of(grants)

    def by_lane(self, grants: tuple[Grant, ...]) -> Iterator[tuple[Lane, tuple[Grant, ...]]]:
        """Grants by the lane they are in."""
        pools = {grants[0].pool: None} if len(grants) == 1 else {grant.pool: None for grant in grants}
        for pool in pools:
            lane = self.lanes.get(pool)
            if lane is not None:
                yield lane, (grants if len(pools) == 1 else tuple(grant for grant in grants if grant.pool == pool))

    def release(self, workload: WorkloadState, attempt: Attempt) -> None:
        """Take back everything that an attempt holds."""
        if self.flexible:
            self.flexible.pop(workload.demand.key, None)
        grants = attempt.grants + attempt.leaving if attempt.leaving else attempt.grants
        now, key, units = self.state.now, workload.demand.key, self.state.units
        for grant in grants:
            unit = units.get(grant.unit)
            if unit is not None:
                held = unit.held
                if key in held:
                    del held[key]
                    if not held:
                        unit.idle_since = now
                        if unit.phase != "up" or unit.leaving:
                            self.attention[unit.name] = None
        if len(grants) == 1 and (lane := self.lanes.get(grants[0].pool)) is not None:
            lane.places.give(grants, key)
            if lane.classes or lane.elastic or self.flexible:
                self._freed(lane)
        else:
            for lane, own in self.by_lane(grants):
                lane.places.give(own, key)
                self._freed(lane)
        if self.accounted:
            account = self.account_of(workload.demand.queue)
            del account.live[key]
            self._charge(account, workload.demand, attempt.option, grants, -1)
        if self.memory is not None:
            self._give_memory(grants)

    def rebook(
        self, workload: WorkloadState, attempt: Attempt, grants: tuple[Grant, ...], leaving: tuple[Grant, ...]
    ) -> None:
        """Let a live attempt stand on `grants`, and still hold what it is `leaving`; what it held else is free."""
        key, now, before = workload.demand.key, self.state.now, attempt.grants + attempt.leaving
        held: dict[str, int] = {}
        for grant in grants + leaving:
            unit = self.state.units.get(grant.unit)
            if unit is not None and unit.incarnation == grant.incarnation:
                held[grant.unit] = held.get(grant.unit, 0) + grant.chips
        for lane, own in self.by_lane(before):
            lane.places.give(own, key)
        for name in dict.fromkeys(grant.unit for grant in before + grants):
            unit = self.state.units.get(name)
            if unit is not None and (unit.held.pop(key, None), held.get(name)) != (None, None):
                if name in held:
                    unit.held[key] = held[name]
                elif not unit.held:
                    unit.idle_since = now
                    if unit.phase != "up" or unit.leaving:
                        self.attention[name] = None
        attempt.grants, attempt.leaving = grants, leaving
        until = INF if attempt.expected is None else attempt.expected
        for lane, own in self.by_lane(grants + leaving):
            lane.places.retake(own, key, until, attempt.began)
        for lane, _ in self.by_lane(before):
            self._freed(lane)
        if self.accounted:
            account = self.account_of(workload.demand.queue)
            self._charge(account, workload.demand, attempt.option, grants + leaving, 1)
            self._charge(account, workload.demand, attempt.option, before, -1)
        if self.memory is not None:
            gained = self.memory_of(before) - self.memory_of(grants + leaving)
            self.memory += gained
            if gained > 0 and self.claim is not None:
                self._claim_over(self.claim[4])

    def _freed(self, lane: Lane) -> None:
        if lane.classes or lane.elastic or self.flexible:
            self.dirty[lane] = None
            if lane.elastic:
                self.sized[lane] = None

    def _give_memory(self, grants: tuple[Grant, ...]) -> None:
        assert self.memory is not None
        self.memory += self.memory_of(grants)
        self.sized.update(dict.fromkeys(lane for lane in self.lanes.values() if lane.elastic and lane.classes))
        for workload in self.flexible.values():
            if (lane := self.lanes.get(workload.attempts[-1].grants[0].pool)) is not None:
                self.dirty[lane] = None
        if self.claim is not None:
            self.claim = None
            self.dirty.update(dict.fromkeys(self.lanes.values()))

    def memory_of(self, grants: tuple[Grant, ...]) -> int:
        """Bytes that an attempt with these grants takes of the machine that plays them."""
        held: dict[tuple[str, str], int] = {}
        for grant in grants:
            unit = grant.pool, grant.unit
            held[unit] = held.get(unit, 0) + grant.chips
        pools = self.state.pools
        parts = (pools[pool].memory_of(chips) for (pool, _), chips in held.items() if pool in pools)
        return self.state.fleet.overhead + sum(parts)

    def _charge(self, account: Account, demand: Demand, option: int, grants: tuple[Grant, ...], sign: int) -> None:
        """Book chips on a queue's account, or off it, and what follows for the order and for who was held back."""
        held, cohort, changed = account.held, account.cohort, chips_held(demand.options[option], grants)
        for accelerator, chips in changed.items():
            before = held.get(accelerator, 0)
            after = before + sign * chips
            if after:
                held[accelerator] = after
            else:
                held.pop(accelerator, None)
            if accelerator in account.guaranteed:
                own = account.guaranteed[accelerator]
                cohort.left[accelerator] -= (after - own if after > own else 0) - (before - own if before > own else 0)
        if self.fair and not self._building:
            self.weigh(account)
        if sign < 0:
            most = MOST_ASKED if held or any(each.held for each in cohort.accounts) else len(cohort.parked)
            for found in list(account.parked):
                self.unpark(found)
            if account.quota:
                self.ask_cohort(cohort, most)
        elif cohort.parked and not self._building and queues.owns_less(account, changed):
            self.ask_cohort(cohort)

    def weigh(self, account: Account) -> None:
        """Bring a queue's level, and the place of all its classes in the order, up to date."""
        level = fairshare.level(self.state, account, self.chips_total)
        if level == account.level:
            return
        before, now = account.level, self.state.now
        self.standings.move(account, level)
        for lane in account.lanes:
            moved = lane.order.moved(account)
            if lane is not self.serving and (moved or fairshare.yields_no_more(account, before, lane, now)):
                self.dirty[lane] = None
        if self.claim is not None and self.claim[4].account is account:
            self._claim_over(self.claim[4])

    def unclaim(self, claimant: str) -> None:
        """One of those who make room for a workload is gone."""
        left = self.claims.get(claimant, 0) - 1
        if left > 0:
            self.claims[claimant] = left
        else:
            self.claims.pop(claimant, None)
            self.dirty.update(dict.fromkeys(self.lanes.values()))

    def ended(self, workload: WorkloadState) -> None:
        """A workload is over: nothing is to be remembered for it."""
        if self.over_by is not self.out:
            self.over, self.over_by = [], self.out
        self.over.append(workload)
        if self.timers.due or self.meant:
            self.timers.set(("workload", workload.key), None)
            self.settle(workload)
        if self.forget:
            del self.state.workloads[workload.demand.key]


def _waited(workload: WorkloadState) -> None:
    """What held for the time of waiting holds no more."""
    workload.reasons, workload.promise = (), None
    workload.stop_cause = workload.stop_for = workload.made_room = None
