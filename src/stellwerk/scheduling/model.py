"""What the core knows about demand and supply, in its own plain terms.

The declarations of `stellwerk.spec` are written for people; these are their reduction to what a decision
needs. They are frozen, hashable where possible, hold no I/O and serialise as they are (see `codec`).
Times are seconds since the epoch (or since the start of a simulation), money is US dollars,
memory is bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["job", "train", "batch", "serve", "tune", "rl", "cluster", "pipeline"]
Market = Literal["on-demand", "spot", "reserved", "flex-start"]
Layout = Literal["units", "subslices", "torus", "optical"]
PolicyName = Literal["fifo", "sjf", "backfill", "default"]
Outcome = Literal["succeeded", "failed", "stopped"]
Cause = Literal[
    "user-error",
    "out-of-memory",
    "run-limit",
    "wait-limit",
    "start-limit",
    "cost-limit",
    "infrastructure",
    "preempted",
    "stopped-by-user",
    "impossible",
]


@dataclass(frozen=True, slots=True)
class Part:
    """The hardware of one role in one option.

    A TPU part asks for `count` whole slices of `topology`; a GPU or CPU part asks for `count` groups of
    `chips` chips each. `chips` is always the chips of one group, so `count * chips` is the total.
    `machine` and `market` restrict the pools that serve it; `None` accepts any.
    """

    role: str
    accelerator: str
    topology: str | None
    chips: int
    count: int = 1
    machine: str | None = None
    market: Market | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One acceptable hardware choice: all parts together, or nothing.

    `patience` is how long (s) to wait for it before a later option is preferred; `None` leaves it to the policy.
    `runtime` is the estimate (s) on this hardware, `None` for the workload's own. An option with a `maximum` is
    elastic: its only part is granted `minimum..maximum` groups, as many as are free, and is grown and shrunk later;
    its estimate is for the part's own `count`.
    """

    short: str
    parts: tuple[Part, ...]
    patience: float | None = None
    runtime: float | None = None
    minimum: int | None = None
    maximum: int | None = None

    @property
    def chips(self) -> int:
        """Chips of all parts together."""
        return sum(part.count * part.chips for part in self.parts)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a workload is ended whatever it does: seconds of waiting, starting, running; dollars spent."""

    wait: float | None = None
    start: float | None = None
    run: float | None = None
    cost: float | None = None


NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Demand:
    """A workload as the core sees it.

    `key` is unique in the log; `name` is what people type and is unique among the living. `runtime` is an
    estimate in seconds. `retries` counts the user's own failures that are tried again. `user` is who asked, as far as
    that is known; forecasts learn from it.
    """

    key: str
    name: str
    kind: Kind
    options: tuple[Option, ...]
    queue: str = "default"
    priority: int = 0
    runtime: float | None = None
    limits: Limits = NO_LIMITS
    retries: int = 0
    user: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Units of one accelerator, topology, machine type and market.

    `chips` and `hosts` are those of one unit. `minimum..maximum` units exist; `buffer` more than are in use are
    kept warm within the maximum. `price` is US dollars per chip-hour, `None` when unknown. `provision` is the time
    (s) a new unit takes, `idle` how long (s) an unneeded unit above the minimum is kept. `footprint` is the memory
    (bytes) that one unit in use takes from `Fleet.memory` where units are played by one machine.
    `emulated` units cost nothing; their price is what they would cost. `layout` says how units are handed out:
    whole or by chips (`units`), in aligned parts of a unit (`subslices`), or as cubes of one pod that is wired as a
    `torus` or switched freely (`optical`); `topology` is then the pod's, and a unit is one cube of it. `lifetime` is
    how long (s) the provider leaves a unit before it takes it away, `None`: for ever. `fixed` is what of the footprint
    even the smallest part of a unit takes, `None`: all of it.
    """

    name: str
    accelerator: str
    topology: str | None
    machine: str | None
    chips: int
    hosts: int
    maximum: int
    minimum: int = 0
    buffer: int = 0
    market: Market = "on-demand"
    price: float | None = None
    provision: float = 0.0
    idle: float = 600.0
    footprint: int = 0
    emulated: bool = False
    layout: Layout = "units"
    lifetime: float | None = None
    fixed: int | None = None

    def memory_of(self, chips: int) -> int:
        """Bytes that an attempt takes with so many chips of one unit."""
        if self.fixed is None or chips >= self.chips:
            return self.footprint
        return self.fixed + -(-(self.footprint - self.fixed) * chips // self.chips)

    @property
    def unit_topology(self) -> str | None:
        """The shape of one unit."""
        return "4x4x4" if self.layout in ("torus", "optical") else self.topology


@dataclass(frozen=True, slots=True)
class Queue:
    """A tenant's share: chips per accelerator it owns, its weight, what it may borrow or lend.

    An accelerator that `quota` does not name is not limited. Queues of one `cohort` lend each other what they do not
    use: a queue may hold `borrow` chips more than its quota (`None`: as many as are lent), and of its own it lends
    `lend` (`None`: all). `policy` orders the queue's own workloads; `None`: the fleet's.
    """

    name: str
    quota: tuple[tuple[str, int], ...] | None = None
    weight: float = 1.0
    borrow: int | None = None
    lend: int | None = None
    cohort: str = ""
    policy: PolicyName | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """All pools and queues of one site, in order of preference.

    `memory` is what the machine that plays the units can give them (bytes), `None` where units are real, and
    `overhead` what each attempt takes of it besides its units. With no queue declared every queue exists, unlimited.
    `policy` is the order of all, `preempt` whether it may stop what runs.
    """

    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    memory: int | None = None
    overhead: int = 0
    policy: PolicyName = "default"
    preempt: bool = False

    def pool(self, name: str) -> Pool | None:
        """The pool of that name, or None."""
        return next((pool for pool in self.pools if pool.name == name), None)


@dataclass(frozen=True, slots=True)
class Grant:
    """One unit, or a cell of it, that an attempt holds for one group of one role.

    `chips` are the chips granted (the whole unit's for TPU slices), `hosts` the hosts they stand on,
    `group` the index of the group within the role. `place` tells where in the unit a cell lies, where that matters
    (`0,0/2x4`: origin and shape of a sub-slice).
    """

    role: str
    group: int
    pool: str
    unit: str
    incarnation: int
    chips: int
    hosts: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a workload waits on one option, as data.

    `code` is one of `quota capacity shape broken provisioning stock-out cool-down reserved dependency limit
    impossible`; `numbers` holds what the sentence was made from.
    """

    code: str
    message: str
    numbers: tuple[tuple[str, float | int | str | None], ...] = ()

    def to_json(self) -> dict[str, object]:
        """The listing's form: `{code, message, ...numbers}`."""
        return {"code": self.code, "message": self.message, **dict(self.numbers)}
