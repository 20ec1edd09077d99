"""Shapes, classes and accounts: what can be asked for on this fleet, by whom, compiled when it is first asked for.

All of it follows from the fleet alone; a new fleet makes a new catalogue.
"""

from __future__ import annotations

from collections.abc import Callable

from stellwerk.scheduling import reasons
from stellwerk.scheduling.index import Account, Cohort, Lane, Shape, WaitClass
from stellwerk.scheduling.model import Demand, Option, Part, Reason
from stellwerk.scheduling.order import Order
from stellwerk.scheduling.placement.index import Need
from stellwerk.scheduling.policy import fairshare, queues
from stellwerk.scheduling.policy.rules import RULES, Rules, by_share
from stellwerk.scheduling.state import State

MEMO = 4096
"""Demands whose class is remembered by the identity of their options."""


class Catalogue:
    """The shapes and classes that were asked for on one fleet, and the accounts of its queues."""

    def __init__(
        self, state: State, lanes: dict[str, Lane], rules: Rules, order: Callable[[], Order], bare: bool
    ) -> None:
        """`order` makes an order for the classes of a shape, `bare` tells that the plain case is handled apart."""
        self.order = order
        self.state, self.lanes, self.rules, self.bare = state, lanes, rules, bare
        self.memory = state.fleet.memory
        self.fair = by_share(state.fleet)
        self.shapes: dict[tuple[object, ...], Shape] = {}
        self.classes: dict[tuple[int, str, int], WaitClass] = {}
        self.accounts: dict[str, Account] = {}
        self._memo: dict[tuple[int, str, int], tuple[tuple[Option, ...], WaitClass]] = {}
        self._last: tuple[Option, ...] = ()
        self._last_class: WaitClass | None = None
        self._open_accounts()

    def _open_accounts(self) -> None:
        cohorts: dict[str, Cohort] = {}
        for queue in self.state.queues.values():
            cohort = cohorts.setdefault(queue.cohort, Cohort())
            account = self.accounts[queue.name] = Account(queue.name, queue, cohort, len(self.accounts))
            account.level = fairshare.last_level(self.state, account) if self.fair else 0.0
            cohort.accounts.append(account)
            for accelerator, quota in account.quota.items():
                lent = quota - account.guaranteed[accelerator]
                cohort.lendable[accelerator] = cohort.lendable.get(accelerator, 0) + lent
                cohort.left[accelerator] = cohort.lendable[accelerator]

    def account_of(self, queue: str) -> Account:
        """The account of a queue; with no queues declared each exists, unlimited."""
        account = self.accounts.get(queue)
        if account is None:
            account = self.accounts[queue] = Account(queue, None, Cohort(), len(self.accounts))
        return account

    def shape_of(self, options: tuple[Option, ...]) -> Shape:
        """The compiled options; equal hardware in equal order has one shape, whatever its estimates."""
        key = tuple((option.parts, option.patience, option.minimum, option.maximum) for option in options)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = self._compile(options)
        return shape

    def _compile(self, options: tuple[Option, ...]) -> Shape:
        plans = tuple(tuple(self._serving(part) for part in reasons.parts_to_start(option)) for option in options)
        return Shape(options, plans, tuple(reasons.impossible(self.state, option) for option in options), self.order())

    def _serving(self, part: Part) -> tuple[tuple[Lane, Need], ...]:
        needs = ((lane, lane.places.need(part)) for lane in self.lanes.values())
        return tuple((lane, need) for lane, need in needs if need is not None)

    def class_of(self, demand: Demand) -> WaitClass:
        """The class that a demand waits in."""
        options, last = demand.options, self._last_class
        if (
            options is self._last
            and last is not None
            and last.rank == -demand.priority
            and last.account.name == demand.queue
        ):
            return last
        known = self._memo.get((id(options), demand.queue, demand.priority))
        found = known[1] if known is not None else self._remembered(demand)
        self._last, self._last_class = options, found
        return found

    def _remembered(self, demand: Demand) -> WaitClass:
        if len(self._memo) >= MEMO:
            self._memo.clear()
        found = self._class(demand)
        self._memo[id(demand.options), demand.queue, demand.priority] = (demand.options, found)
        return found

    def _class(self, demand: Demand) -> WaitClass:
        shape = self.shape_of(demand.options)
        key = (id(shape), demand.queue, demand.priority)
        found = self.classes.get(key)
        if found is None:
            account = self.account_of(demand.queue)
            rules = self.rules_of(account)
            found = WaitClass(shape, account, demand.priority, rules.line(), rules.backfill)
            found.aged, found.skips = rules.order == "age", self.rules.displaces
            found.timed = len(shape.options) > 1 or any(option.maximum is not None for option in shape.options)
            found.never = self._never(shape, account)
            if self.memory is None and not account.quota and found.never[0] is None:
                found.plain = shape.simple
            if found.plain is not None and self.bare:
                counts, need = found.plain[0].counts, found.plain[1]
                found.quick = (counts, need) if counts is not None and need.single else None
            self.classes[key] = found
        return found

    def _never(self, shape: Shape, account: Account) -> tuple[Reason | None, ...]:
        if self.state.queues and account.queue is None:
            return tuple(reasons.no_queue(self.state, account.name) for _ in shape.options)
        quota = (queues.never(account, shape, index) for index in range(len(shape.options)))
        return tuple(reason or over for reason, over in zip(shape.never, quota, strict=True))

    def rules_of(self, account: Account) -> Rules:
        """The policy of a queue; where the fleet's displaces, it is everybody's."""
        policy = account.queue.policy if account.queue else None
        return RULES[policy] if policy and not self.rules.displaces else self.rules
