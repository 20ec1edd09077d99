"""What a site has: pools of whole units, queues that share them, and hardware of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from stellwerk import hardware
from stellwerk.spec.layouts import CUBE, PODS, Layout, check_pod, check_split, cubes
from stellwerk.spec.plain import is_list, is_mapping
from stellwerk.spec.problems import Collected, Flaw, Problem, did_you_mean, dotted, listed, shown
from stellwerk.spec.request import MARKETS, Market, kind_of, named
from stellwerk.spec.shapes import ambiguity, check_machine, machine_chips, readings, resolved
from stellwerk.spec.values import Duration, Memory, Money, Name, Text, Whole
from stellwerk.spec.wording import Declared, declared, with_names

Policy = Literal["fifo", "sjf", "backfill", "default"]
LONGEST_FLEX_START = 7 * 86_400.0
"""Seconds that a provider keeps a flex-start machine at most (GKE: `--flex-start`, 7 days a node)."""
_MOST = 10_000_000
_ACCELERATOR = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_Value = TypeVar("_Value", int, float)


class UnitRange(Declared):
    """How many units a pool has: from `min` to `max`, with `buffer` kept warm beyond what is in use."""

    min: Whole = Field(
        0, ge=0, le=_MOST, description="Units that are always kept; the pool starts with them.", examples=[2]
    )
    max: Whole = Field(ge=0, le=_MOST, description="Most units.", examples=[4])
    buffer: Whole = Field(
        0,
        ge=0,
        le=_MOST,
        description="Units kept warm beyond what is in use, within the maximum.",
        examples=[1],
    )

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, raw: Any) -> Any:
        if isinstance(raw, int) and not isinstance(raw, bool):
            return {"min": raw, "max": raw}
        if not isinstance(raw, UnitRange) and not is_mapping(raw):
            raise Flaw(
                "wrong-type",
                f"{shown(raw)} is not a number of units",
                "write for example 4 or {min: 0, max: 4}",
            )
        return raw

    @model_validator(mode="after")
    def _in_order(self) -> UnitRange:
        for key in ("min", "buffer"):
            if getattr(self, key) > self.max:
                raise Flaw(
                    "units",
                    f"`{key}` is {getattr(self, key)}, which is more than `max`, {self.max}",
                    path=(key,),
                )
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A number stands for a range of that number to itself."""
        full = handler.resolve_ref_schema(handler(schema))
        number = {"type": "integer", "minimum": 0, "description": "N is short for {min: N, max: N}."}
        return {"title": "UnitRange", "anyOf": [number, full]}


class CustomAccelerator(Declared):
    """Hardware that Stellwerk does not know by itself."""

    memory: Memory | None = Field(None, description="Memory of one chip, in bytes or with a unit.", examples=["16GiB"])
    price: Money | None = Field(None, description="US dollars per chip-hour.", examples=[1.46])


class Pool(Declared):
    """Units of one accelerator, topology, machine type and market."""

    name: Name = Field(description="Its name.", examples=["trillium"])
    accelerator: Text = Field(
        description="A class of chip in any spelling in use, or one of the fleet's own.", examples=["tpu-v6e"]
    )
    topology: Text | None = Field(
        None, description="TPU: the shape of one unit; of a pod, the whole pod's.", examples=["4x4"]
    )
    layout: Layout = Field(
        "units",
        description="TPU: units are handed out whole, in aligned parts (subslices), or are the cubes of one pod, "
        "wired as a torus or switched freely (optical).",
        examples=["subslices"],
    )
    machine: Text | None = Field(None, description="Machine type of every host.", examples=["ct6e-standard-4t"])
    market: Market = Field("on-demand", description="How the units are bought.", examples=["spot"])
    chips: Whole | None = Field(
        None,
        ge=1,
        le=_MOST,
        description="Chips of one unit; known for a topology or machine type.",
        examples=[8],
    )
    hosts: Whole | None = Field(
        None, ge=1, le=_MOST, description="Hosts of one unit; known for a topology, else 1.", examples=[4]
    )
    chips_per_host: Whole | None = Field(
        None, ge=1, le=_MOST, description="Chips on each host; known from the above.", examples=[4]
    )
    units: UnitRange = Field(description="How many units.", examples=[2])
    price: Money | None = Field(
        None, description="US dollars per chip-hour; the list price unless said.", examples=[2.7]
    )
    provision: Duration | None = Field(
        None, description="Time from ordering a unit until it is ready.", examples=["9m"]
    )
    idle: Duration | None = Field(
        None, description="How long an unused unit beyond the minimum is kept.", examples=["10m"]
    )
    lifetime: Duration | None = Field(
        None,
        description="How long the provider leaves a unit at most; 7 days for flex-start, without end for others.",
        examples=["7d"],
    )


def _share(value: Any) -> Any:
    if isinstance(value, int) and value >= 0:
        return value
    raise Flaw("wrong-type", f"{shown(value)} is neither true, false nor a number of chips")


Share = Annotated[bool | int, BeforeValidator(_share)]


class Queue(Declared):
    """A tenant's share."""

    name: Name = Field(description="Its name; the key in the file.")
    quota: dict[str, Annotated[int, Field(strict=True, ge=0)]] = Field(
        {}, description="Chips by accelerator.", examples=[{"tpu-v6e": 32}]
    )
    weight: float = Field(
        1.0,
        gt=0,
        le=1e6,
        strict=True,
        description="Share of what is free, beside other queues.",
        examples=[2],
    )
    cohort: Name | None = Field(
        None, description="Queues of one cohort lend to each other; those without lend among themselves."
    )
    borrow: Share = Field(
        True,
        description="Whether, or by how many chips, the quota may be exceeded while others leave theirs.",
    )
    lend: Share = Field(True, description="Whether, or how many chips, others may borrow.")
    policy: Policy | None = Field(None, description="The order of this queue; the fleet's unless said.")


class Fleet(Declared):
    """All pools and queues of one site."""

    accelerators: dict[str, CustomAccelerator] = Field(
        {}, description="Hardware that Stellwerk does not know by itself."
    )
    prices: dict[str, Money] = Field(
        {},
        description="US dollars per chip-hour by ACCELERATOR or ACCELERATOR@MARKET, instead of list prices.",
    )
    pools: tuple[Pool, ...] = Field(description="What there is.")
    queues: dict[Name, Queue] = Field({}, description="Who shares it.")
    policy: Policy = Field("default", description="The order of all who wait.", examples=["backfill"])
    preempt: bool = Field(
        False, strict=True, description="Whether work that runs may be stopped for other work.", examples=[True]
    )

    @cached_property
    def warnings(self) -> tuple[Problem, ...]:
        """What is legal but doubtful; with places when the fleet was loaded from a file."""
        return tuple(
            Problem("fleet", None, None, "warning", flaw.code, f"{dotted(flaw.path)}: {flaw.message}", flaw.mend)
            for flaw in doubts(self)
        )

    def price(self, pool: Pool) -> float | None:
        """US dollars per chip-hour of a pool: its own, the fleet's, or the list price; None when unknown."""
        if pool.price is not None:
            return pool.price
        for key in (f"{pool.accelerator}@{pool.market}", pool.accelerator):
            if key in self.prices:
                return self.prices[key]
        own = self.accelerators.get(pool.accelerator)
        return own.price if own else hardware.price(pool.accelerator, pool.market, machine=pool.machine)

    @field_validator("accelerators")
    @classmethod
    def _accelerators(cls, given: dict[str, CustomAccelerator]) -> dict[str, CustomAccelerator]:
        for name in given:
            if not _ACCELERATOR.fullmatch(name.strip().lower()):
                message = f"{shown(name)} cannot name an accelerator; allowed are a-z, 0-9, -, _ and ."
                raise Flaw("name", message, path=(name,), of_key=True)
        return {name.strip().lower(): own for name, own in given.items()}

    @field_validator("prices")
    @classmethod
    def _prices(cls, given: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        own = _own(info)
        return given if own is None else _by_accelerator(given, own, with_market=True)

    @field_validator("pools", mode="wrap")
    @classmethod
    def _pools(cls, raw: Any, inner: ValidatorFunctionWrapHandler, info: ValidationInfo) -> tuple[Pool, ...]:
        own = _own(info)
        if own is None or not is_list(raw):
            return inner(raw)
        if not raw:
            raise Flaw("pools", "`pools` is empty; a fleet has at least one pool")
        return _read_pools(raw, own)

    @field_validator("queues", mode="wrap")
    @classmethod
    def _queues(cls, raw: Any, inner: ValidatorFunctionWrapHandler, info: ValidationInfo) -> dict[str, Queue]:
        names = _own(info)
        if names is None or not is_mapping(raw):
            return inner(raw)
        own, found = names, Collected()
        entries: dict[str, Any] = {name: dict[str, Any]() if queue is None else queue for name, queue in raw.items()}
        queues = {
            name: found.take(lambda queue=queue: _queue(queue, own), name)
            for name, queue in with_names(entries).items()
        }
        found.refuse()
        return {name: queue for name, queue in queues.items() if queue}


def _own(info: ValidationInfo) -> frozenset[str] | None:
    """Names of the fleet's own accelerators; None when those were not understood."""
    own = info.data.get("accelerators")
    return None if own is None else frozenset(own)


def _read_pools(raw: Sequence[Any], own: frozenset[str]) -> tuple[Pool, ...]:
    found = Collected()
    pools = [found.take(lambda entry=entry: _pool(entry, own), index) for index, entry in enumerate(raw)]
    names: set[str] = set()
    for index, pool in enumerate(pools):
        if pool and pool.name in names:
            message = f"a pool named {pool.name} exists already"
            found.flaws.append(Flaw("duplicate-name", message, path=(index, "name")))
        names |= {pool.name} if pool else set()
    found.refuse()
    return tuple(pool for pool in pools if pool)


def _pool(raw: Any, own: frozenset[str]) -> Pool:
    pool = declared(Pool, raw)
    name, counted = named(pool.accelerator, own)
    tpu = kind_of(name, own) == "tpu"
    fields = _tpu_unit(pool, name, counted) if tpu else _counted_unit(pool, name, counted, name in own)
    return pool.model_copy(update={"accelerator": name, "lifetime": _lifetime(pool), **fields})


def _lifetime(pool: Pool) -> float | None:
    """How long a unit lasts; nobody keeps a flex-start machine longer than the provider does."""
    if pool.market != "flex-start":
        return pool.lifetime
    longest = LONGEST_FLEX_START if pool.lifetime is None else pool.lifetime
    if longest > LONGEST_FLEX_START:
        message = "`lifetime` of flex-start units is at most 7 days"
        raise Flaw("lifetime", message, "write lifetime: 7d, or leave it out", path=("lifetime",))
    return longest


def _queue(raw: Any, own: frozenset[str]) -> Queue:
    queue = declared(Queue, raw)
    found = Collected()
    quota = found.take(lambda: _by_accelerator(queue.quota, own), "quota")
    found.refuse()
    return queue.model_copy(update={"quota": quota})


def _by_accelerator(given: Mapping[str, _Value], own: frozenset[str], with_market: bool = False) -> dict[str, _Value]:
    """The same values under the one name of every accelerator. Raises `Flaws` at the keys."""
    found, flaws = dict[str, _Value](), Collected()
    for spelling, value in given.items():
        name = flaws.take(lambda spelling=spelling: _key(spelling, own, with_market, found))
        if name is not None:
            found[name] = value
    flaws.refuse()
    return found


def _key(spelling: str, own: frozenset[str], with_market: bool, taken: Mapping[str, Any]) -> str:
    word, at, market = spelling.partition("@")
    try:
        name, counted = named(word, own)
    except Flaw as flaw:
        raise Flaw(flaw.code, flaw.message, flaw.mend, path=(spelling,), of_key=True) from flaw.__cause__
    key = f"{name}{at}{market.strip()}"
    if counted is not None or (at and not with_market):
        raise Flaw(
            "accelerator",
            f"{shown(spelling)} says too much; only the accelerator belongs here",
            f"write {name}",
            path=(spelling,),
            of_key=True,
        )
    if at and market.strip() not in MARKETS:
        message = f"{shown(market)} is not a market; allowed are {listed(MARKETS)}"
        raise Flaw("market", message, did_you_mean(market, MARKETS), path=(spelling,), of_key=True)
    if key in taken:
        raise Flaw("duplicate-key", f"{key} is given twice", "leave one of them out", path=(spelling,), of_key=True)
    return key


def _tpu_unit(pool: Pool, name: str, counted: int | None) -> dict[str, Any]:
    if pool.topology is None:
        raise Flaw(
            "missing-topology",
            f"a pool of {name} needs a `topology`, the shape of one unit",
            "write for example topology: 4x4",
        )
    pod = pool.layout in PODS
    if pod:
        check_pod(pool.topology, cubes(name, pool.topology, pool.layout), pool.units.max)
    shape = resolved(name, CUBE if pod else pool.topology, pool.machine, pool.hosts, pool.chips_per_host)
    if shape is None:
        ways = readings(name, pool.topology, None)
        machines = listed(way.machine for way in ways)
        message = f"{ambiguity(ways)}; a pool says which"
        raise Flaw("ambiguous-topology", message, f"write machine: {machines}", path=("topology",))
    if pool.layout == "subslices":
        check_split(shape)
    chips = {pool.chips, counted, shape.chips} - {None, shape.chips}
    if chips:
        message = f"`chips` is {chips.pop()}, but a {shape.topology} of {name} has {shape.chips}"
        raise Flaw(
            "chips",
            message,
            f"write chips: {shape.chips}, or leave it out",
            path=("chips" if pool.chips else "accelerator",),
        )
    whole = "x".join(map(str, hardware.parse_topology(pool.topology))) if pod else shape.topology
    return {
        "topology": whole,
        "machine": shape.machine,
        "chips": shape.chips,
        "hosts": shape.hosts,
        "chips_per_host": shape.chips_per_host,
    }


def _counted_unit(pool: Pool, name: str, counted: int | None, own: bool) -> dict[str, Any]:
    if pool.topology is not None:
        raise Flaw(
            "not-a-tpu",
            f"`topology` is for TPUs; a unit of {name} has `chips`",
            "write for example chips: 8",
            path=("topology",),
        )
    if pool.layout != "units":
        message = f"`layout: {pool.layout}` is for TPUs; {name} is handed out by chips"
        raise Flaw("layout", message, "leave `layout` out", path=("layout",))
    hosts = pool.hosts or 1
    machine = check_machine(name, pool.machine) if pool.machine and not own else pool.machine
    each = None if own else machine_chips(name, machine)
    known = each * hosts if each else pool.chips_per_host * hosts if pool.chips_per_host else None
    chips = pool.chips or known or counted
    if chips is None:
        raise Flaw(
            "missing-chips",
            f"a pool of {name} needs `machine` or `chips`, the chips of one unit",
            "write for example chips: 8",
        )
    if known not in (None, chips) or chips % hosts or (pool.chips_per_host or chips // hosts) * hosts != chips:
        expected = (
            f"{known} on {hosts} x {machine}" if each else f"a multiple of its hosts, {hosts}, by `chips_per_host`"
        )
        raise Flaw("chips", f"`chips` is {chips}, but must be {expected}", path=("chips",))
    return {"machine": machine, "chips": chips, "hosts": hosts, "chips_per_host": chips // hosts}


def doubts(fleet: Fleet) -> list[Flaw]:
    """What is legal but doubtful: quotas for hardware that no pool has, flex-start where no provider offers it."""
    return [*_unused_quotas(fleet), *_no_flex_start(fleet)]


def _no_flex_start(fleet: Fleet) -> list[Flaw]:
    return [
        Flaw(
            "no-flex-start",
            f"machines {pool.machine} are not offered as flex-start",
            path=("pools", index, "market"),
        )
        for index, pool in enumerate(fleet.pools)
        if pool.market == "flex-start" and pool.machine and pool.accelerator not in fleet.accelerators
        for machine in hardware.accelerator(pool.accelerator).machines
        if machine.name == pool.machine and machine.flex_start is False
    ]


def _unused_quotas(fleet: Fleet) -> list[Flaw]:
    has = {pool.accelerator for pool in fleet.pools}
    return [
        Flaw(
            "unused-quota",
            f"no pool has {name}",
            did_you_mean(name, has),
            path=("queues", queue.name, "quota", name),
            of_key=True,
        )
        for queue in fleet.queues.values()
        for name in queue.quota
        if name not in has
    ]
