"""From the data files to accelerators with their machines, shapes and prices.

A shape is keyed by (accelerator, topology, machine type): a v6e ``2x4`` is one host of 8 chips or two
hosts of 4. The 3-D topologies are written down as a rule, not as rows: the shapes below one 4x4x4 cube
are listed, all others have non-decreasing sides that are multiples of 4, up to a number of cubes.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, cast

from stellwerk.hardware.files import entries, sources
from stellwerk.hardware.model import Accelerator, Fact, FactValue, Kind, Machine, Price, Shape, Source

_CUBE = 4
_WRAPPING_SIDE_2D = 16
_FLOATS = (
    "memory_gib",
    "flops_bf16",
    "flops_fp8",
    "ops_int8",
    "memory_bandwidth",
    "interconnect_bandwidth",
)


def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator known: TPUs by generation, then GPUs, then ``cpu``."""
    return tuple(load(name) for name in entries())


def source(key: str) -> Source:
    """The source behind a key of a fact, a machine or a price; KeyError when there is none."""
    return sources()[key]


@cache
def load(name: str) -> Accelerator:
    """The accelerator with this shown name (exactly); KeyError when there is none."""
    kind, raw = entries()[name]
    machines = tuple(_machine(name, item) for item in raw.get("machines", ()))
    facts = {key: _fact(key, item) for key, item in raw.get("facts", {}).items()}
    hidden = {machine.name for machine in machines if machine.on_request}
    listed = [shape for found in readings(name).values() for shape in found]
    ray = raw.get("ray", {})
    return Accelerator(
        name=name,
        kind=cast("Kind", kind),
        spellings=tuple(dict.fromkeys([name, *raw["spellings"]])),
        **_figures(facts),
        suffix_counts=raw.get("suffix_counts", {}).get("value"),
        vendor=raw.get("vendor", "Google" if kind == "tpu" else None),
        machines=machines,
        shapes=tuple(shape for shape in listed if shape.machine not in hidden),
        ray_only=tuple(raw.get("topologies", {}).get("ray_only", ())),
        ray_type=ray.get("type"),
        ray_version=ray.get("pod_type"),
        gke_labels=tuple(raw.get("gke_labels", ())),
        resource=raw.get("resource", "google.com/tpu" if kind == "tpu" else None),
        prices=tuple(_price(item) for item in raw.get("prices", ())),
        facts=tuple(facts.values()),
        sources=_cited(raw),
        notes=_notes(raw),
    )


@cache
def readings(name: str) -> dict[str, tuple[Shape, ...]]:
    """Topology -> its shapes on every machine, machines that must be named last; empty unless a TPU."""
    kind, raw = entries()[name]
    if kind != "tpu":
        return {}
    machines = [_machine(name, item) for item in raw["machines"]]
    machines.sort(key=lambda machine: machine.on_request)
    found: dict[str, list[Shape]] = {topology: [] for topology in topologies(name)}
    for machine in machines:
        for topology in machine.topologies:
            found[topology].append(_shape(raw, topology, machine))
    return {topology: tuple(shapes) for topology, shapes in found.items()}


@cache
def topologies(name: str) -> tuple[str, ...]:
    """Every legal topology of a TPU, smallest first, flat shapes of lite devices last; empty for others."""
    kind, raw = entries()[name]
    if kind != "tpu":
        return ()
    rule = raw["topologies"]
    return (*rule["listed"], *_cubes(rule.get("cubes", 0)), *rule.get("flat", ()))


def flat_topologies(name: str) -> frozenset[str]:
    """The 2-D topologies that lite devices of a 3-D generation have."""
    return frozenset(entries()[name][1].get("topologies", {}).get("flat", ()))


def dims_of(topology: str) -> tuple[int, ...]:
    """The sides of a canonical topology."""
    return tuple(int(side) for side in topology.split("x"))


def _cubes(most: int) -> list[str]:
    """Shapes of up to ``most`` 4x4x4 cubes, sides non-decreasing, by chips and then by sides."""
    in_cubes = [
        (a, b, c) for a in range(1, most + 1) for b in range(a, most // a + 1) for c in range(b, most // (a * b) + 1)
    ]
    in_cubes.sort(key=lambda sides: (prod(sides), sides))
    return ["x".join(str(side * _CUBE) for side in sides) for sides in in_cubes]


@cache
def _machine_topologies(name: str, chips: int) -> tuple[str, ...]:
    """What hosts of ``chips`` chips can make up when a machine is not limited to some topologies."""
    flat = flat_topologies(name)
    return tuple(t for t in topologies(name) if t not in flat and prod(dims_of(t)) % chips == 0)


def _machine(name: str, raw: dict[str, Any]) -> Machine:
    offered = raw.get("topologies", ())
    return Machine(
        name=raw["name"],
        cloud=raw["cloud"],
        chips=raw["chips"],
        vcpus=raw.get("vcpus"),
        memory_gib=raw.get("memory_gib"),
        label=raw.get("label"),
        topologies=_machine_topologies(name, raw["chips"]) if offered == "*" else tuple(offered),
        flex_start=raw.get("flex_start"),
        on_request=raw.get("on_request", False),
        chip_memory_gib=raw.get("chip_memory_gib"),
        usd_per_hour=raw.get("usd"),
        region=raw.get("region"),
        price_date=raw.get("date"),
        sources=tuple(raw["sources"]),
        note=raw.get("note"),
    )


def _shape(raw: dict[str, Any], topology: str, machine: Machine) -> Shape:
    dims = dims_of(topology)
    chips = prod(dims)
    in_cores = raw["suffix_counts"]["value"] == "tensorcores"
    size = chips * (raw["facts"]["cores_per_chip"]["value"] if in_cores else 1)
    rule = raw["topologies"]
    return Shape(
        accelerator=raw["name"],
        topology=topology,
        machine=machine.name,
        chips=chips,
        hosts=chips // machine.chips,
        chips_per_host=machine.chips,
        multi_host=chips > machine.chips,
        wrap=_wrap(rule["wrap"], dims),
        accelerator_type=f"{raw['accelerator_type']}-{size}",
        ray_pod_type=f"{raw['ray']['pod_type']}-{size}",
        ray_valid=_in_ray(rule, topology),
        twist=_twist(rule["twist"], dims),
        doubt=_doubt(rule.get("documented_max_chips"), chips),
    )


def _wrap(rule: str | None, dims: tuple[int, ...]) -> tuple[bool, ...]:
    """``whole-torus``: all axes once every side is 4 or more; ``side-16``: each axis of length 16."""
    if rule is None:
        return ()
    if rule == "whole-torus":
        return (min(dims) >= _CUBE,) * 3
    sides = (*dims, 1)[:3]
    return tuple(side == _WRAPPING_SIDE_2D for side in sides)


def _twist(rule: str | bool | None, dims: tuple[int, ...]) -> bool | None:
    """A twisted torus needs n x n x 2n or n x 2n x 2n, n a multiple of 4."""
    if rule != "rule":
        return cast("bool | None", rule)
    if len(dims) != 3 or dims[0] % _CUBE:
        return False
    a, b, c = dims
    return c == 2 * a and b in (a, 2 * a)


def _in_ray(rule: dict[str, Any], topology: str) -> bool:
    """Ray lists each topology, or takes every multiple of 4 within a box beside the small shapes."""
    ray = rule["ray"]
    if "listed" in ray:
        return topology in ray["listed"]
    dims, box = dims_of(topology), dims_of(ray["within"])
    if len(dims) != len(box):
        return False
    return topology in rule["listed"] or all(side <= most for side, most in zip(dims, box, strict=True))


def _doubt(documented: int | None, chips: int) -> str | None:
    if documented is None or chips <= documented:
        return None
    return f"documented slices end at {documented} chips; only xpk and Cluster Toolkit accept {chips}"


def _fact(key: str, raw: dict[str, Any]) -> Fact:
    value = raw["value"]
    kept: FactValue = tuple(cast("list[str]", value)) if isinstance(value, list) else value
    return Fact(key, kept, tuple(raw["sources"]), raw.get("note"))


def _figures(facts: dict[str, Fact]) -> dict[str, Any]:
    """The figures that are fields of Accelerator, with floats where a rate or a size is meant."""
    others = ("interconnect", "cores_per_chip", "devices_per_chip")
    found: dict[str, Any] = {key: facts[key].value for key in others if key in facts}
    for key in _FLOATS:
        value = facts[key].value if key in facts else None
        found[key] = float(value) if isinstance(value, int | float) else None
    domain = facts.get("domain") or facts.get("max_chips")
    return {**found, "domain": domain.value if domain else None}


def _price(raw: dict[str, Any]) -> Price:
    return Price(
        region=raw["region"],
        market=raw["market"],
        usd_per_chip_hour=float(raw["usd"]),
        date=raw["date"],
        source=raw["source"],
        cloud=raw["cloud"],
        basis=raw.get("basis", "machine"),
        machine=raw.get("machine"),
        note=raw.get("note"),
        doubt=raw.get("doubt"),
    )


def _cited(raw: Any) -> tuple[str, ...]:
    """Every source key under an entry, in the order of the sources table."""
    used: set[str] = set()

    def walk(item: Any) -> None:
        if isinstance(item, dict):
            for key, value in cast("dict[str, Any]", item).items():
                if key == "sources":
                    used.update(value)
                elif key == "source":
                    used.add(value)
                else:
                    walk(value)
        elif isinstance(item, list):
            for value in cast("list[Any]", item):
                walk(value)

    walk(raw)
    return tuple(key for key in sources() if key in used)


def _notes(raw: dict[str, Any]) -> tuple[str, ...]:
    note = raw.get("topologies", {}).get("note")
    return (*raw.get("notes", ()), *([note] if note else []))
