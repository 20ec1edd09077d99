"""Topologies: which are legal, how many hosts they are, and what can be cut out of them.

A topology alone does not fix the number of hosts. Where machines differ in it (v5e and v6e ``2x4``: one
host of 8 chips or two of 4) the machine has to be named, or told by chips per host or hosts; nothing is
guessed.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import permutations, product
from math import log, prod

from stellwerk.hardware import catalog
from stellwerk.hardware.errors import AmbiguousTopology, IllegalTopology, UnknownMachine
from stellwerk.hardware.files import read
from stellwerk.hardware.model import Accelerator, Machine, Shape
from stellwerk.hardware.names import accelerator

Part = tuple[tuple[int, int], ...]

_WRITTEN = re.compile(r"[0-9]{1,5}(x[0-9]{1,5}){1,2}")
_RAY_HOST = 4
_RAY_LARGEST_SINGLE_HOST = 8
_SHOWN_LENGTH = 40


def parse_topology(text: str) -> tuple[int, ...]:
    """The two or three sides of ``4x4`` or ``2 X 2 x 4``; IllegalTopology for anything else."""
    plain = re.sub(r"\s*x\s*", "x", text.strip().lower().replace("\N{MULTIPLICATION SIGN}", "x"))
    dims = catalog.dims_of(plain) if _WRITTEN.fullmatch(plain) else ()
    if dims and all(dims):
        return dims
    raise IllegalTopology(
        f"{text[:_SHOWN_LENGTH]!r} is no topology; one has two or three sides, such as 4x4 or 2x2x4",
        found=text,
    )


def shapes(acc: str, topology: str) -> tuple[Shape, ...]:
    """Every reading of a topology, one a machine type; at least one.

    Machines that GKE makes only when named are left out; ``shape`` finds them by name. Raises
    UnknownAccelerator, or IllegalTopology with the legal ones and the nearest.
    """
    chip = accelerator(acc)
    named_only = {machine.name for machine in chip.machines if machine.on_request}
    return tuple(shape for shape in _readings(chip, topology) if shape.machine not in named_only)


def shape(
    acc: str,
    topology: str,
    machine: str | None = None,
    *,
    chips_per_host: int | None = None,
    hosts: int | None = None,
) -> Shape:
    """The one reading of a topology that fits what else is known: machine, chips per host, number of hosts.

    Readings that agree on hosts and chips count as one; the first machine of the catalogue stands for
    them. Raises IllegalTopology (code ``host-count`` when the numbers cannot be), UnknownMachine, or
    AmbiguousTopology whose ``allowed`` are the machines.
    """
    chip = accelerator(acc)
    found = shapes(acc, topology) if machine is None else _on_machine(chip, topology, machine)
    found = _with_numbers(found, chips_per_host, hosts)
    if len({(reading.hosts, reading.chips_per_host) for reading in found}) > 1:
        raise _ambiguous(found)
    return found[0]


def default_machine(acc: str, topology: str) -> str:
    """The machine of the reading that Ray 2.60 assumes: one host for up to 8 chips of v5e and v6e, else
    hosts of 4.

    This settles v5e and v6e ``2x4`` as one host of 8 chips. A caller that uses it has to say so to the user.
    """
    chip = accelerator(acc)
    found = shapes(acc, topology)
    single = chip.suffix_counts == "chips" and found[0].chips <= _RAY_LARGEST_SINGLE_HOST
    assumed = found[0].chips if single else _RAY_HOST
    return next((reading for reading in found if reading.chips_per_host == assumed), found[0]).machine


def shapes_of_chips(acc: str, chips: int, *, ray_only: bool = False) -> tuple[str, ...]:
    """The topologies with exactly this many chips: 16 of v6e are ``4x4``; often there are none or several.

    With ``ray_only`` also those that Ray lists and no provider offers (v6e ``2x8``). The flat ``2x2`` of
    v4 lite devices is left out; it has to be written.
    """
    chip = accelerator(acc)
    flat = catalog.flat_topologies(chip.name)
    extra = chip.ray_only if ray_only else ()
    candidates = (*catalog.topologies(chip.name), *extra)
    return tuple(t for t in candidates if t not in flat and prod(catalog.dims_of(t)) == chips)


def subshapes(acc: str, parent: str, machine: str | None = None) -> tuple[str, ...]:
    """The legal topologies that can be cut out of a slice of topology ``parent``, smallest first.

    A part is legal when the TPU DRA driver cuts it from any larger shape, or when Ray 2.60 has both part
    and parent in its worker tables. With ``machine`` only parts made of whole hosts of that machine are
    given. Raises as ``shapes``.
    """
    chip = accelerator(acc)
    whole = shape(acc, parent, machine) if machine is not None else shapes(acc, parent)[0]
    host = whole.chips_per_host if machine is not None else 1
    return tuple(
        part
        for part in catalog.topologies(chip.name)
        if _can_cut(whole, part) and prod(catalog.dims_of(part)) % host == 0
    )


def aligned_parts(parent: str, child: str, *, rotate: bool = True) -> tuple[Part, ...]:
    """All places of a child topology in a parent, each as (start, size) per axis of the parent.

    A place starts at a multiple of the child's size on every axis (that is how Ray numbers sub-slices),
    so places of one orientation never overlap. The child lies as written first, then, with ``rotate``, in
    every other orientation that fits; places of different orientations may overlap. Empty when the child
    does not fit. Raises IllegalTopology when a word is no topology or the numbers of axes differ.
    """
    outer, inner = parse_topology(parent), parse_topology(child)
    if len(outer) != len(inner):
        raise IllegalTopology(f"{child} has {len(inner)} sides and {parent} has {len(outer)}", found=child)
    return _parts(outer, inner, rotate)


@cache
def _parts(outer: tuple[int, ...], inner: tuple[int, ...], rotate: bool) -> tuple[Part, ...]:
    orientations = tuple(dict.fromkeys(permutations(inner))) if rotate else (inner,)
    return tuple(
        tuple(zip(start, size, strict=True))
        for size in orientations
        for start in product(*(range(0, o - i + 1, i) for o, i in zip(outer, size, strict=True)))
    )


def _can_cut(whole: Shape, part: str) -> bool:
    inner, outer = catalog.dims_of(part), whole.dims
    if part == whole.topology or len(inner) != len(outer):
        return False
    if any(small > large for small, large in zip(inner, outer, strict=True)):
        return False
    tables = read("tpu")["subslices"]
    return part in tables["any_parent"] or (part in tables["ray"] and whole.topology in tables["ray"])


def _readings(chip: Accelerator, topology: str) -> tuple[Shape, ...]:
    """Every reading, also on machines that must be named."""
    if chip.kind != "tpu":
        raise IllegalTopology(
            f"{chip.name} has no topologies; a number of chips is written {chip.name}:N",
            found=topology,
        )
    try:
        dims = parse_topology(topology)
    except IllegalTopology as error:
        raise _illegal(chip, topology, (), error.message) from None
    found = catalog.readings(chip.name).get("x".join(map(str, dims)), ())
    if not found:
        raise _illegal(chip, topology, dims, _why_not(chip, dims))
    return found


def _why_not(chip: Accelerator, dims: tuple[int, ...]) -> str:
    written = "x".join(map(str, dims))
    legal = catalog.topologies(chip.name)
    if written in chip.ray_only:
        return f"{chip.name} is not offered as {written}, though Ray lists it"
    turned = next((other for other in legal if sorted(catalog.dims_of(other)) == sorted(dims)), None)
    if turned is not None:
        return f"{chip.name} writes {written} as {turned}"
    sides = len(catalog.dims_of(legal[0]))
    if len(dims) != sides:
        return f"{chip.name} topologies have {sides} sides, {written} has {len(dims)}"
    return f"{chip.name} does not come as {written}"


def _illegal(chip: Accelerator, topology: str, dims: tuple[int, ...], message: str) -> IllegalTopology:
    legal = catalog.topologies(chip.name)
    nearest = min(legal, key=lambda other: _distance(dims, catalog.dims_of(other))) if dims else None
    return IllegalTopology(message, found=topology, allowed=legal, suggestion=nearest)


def _distance(dims: tuple[int, ...], other: tuple[int, ...]) -> tuple[float, float]:
    """Nearest first by number of chips, then by how far the sorted sides are apart, as ratios."""
    wanted, offered = (tuple(sorted(sides, reverse=True)) for sides in (dims, other))
    apart = sum(abs(log(a / b)) for a, b in zip(wanted, offered, strict=False))
    return abs(log(prod(dims) / prod(other))), apart


def _on_machine(chip: Accelerator, topology: str, machine: str) -> tuple[Shape, ...]:
    readings = _readings(chip, topology)
    wanted = machine.strip().lower()
    found = tuple(reading for reading in readings if reading.machine.lower() == wanted)
    if found:
        return found
    known = next((item for item in chip.machines if item.name.lower() == wanted), None)
    names = tuple(reading.machine for reading in readings)
    if known is None:
        raise _unknown_machine(chip, machine, names)
    raise _not_on(known, readings[0].topology, names)


def _not_on(machine: Machine, topology: str, others: tuple[str, ...]) -> IllegalTopology:
    offered = ", ".join(machine.topologies[:6]) or "no topology"
    return IllegalTopology(
        f"{topology} does not come on {machine.name} ({machine.chips} chips a host: {offered}); "
        f"it comes on {' or '.join(others)}",
        found=topology,
        allowed=machine.topologies,
        code="topology-on-machine",
    )


def _unknown_machine(chip: Accelerator, machine: str, names: tuple[str, ...]) -> UnknownMachine:
    from difflib import get_close_matches

    close = get_close_matches(machine.strip().lower()[:_SHOWN_LENGTH], names, n=1)
    return UnknownMachine(
        f"{machine[:_SHOWN_LENGTH]!r} is no machine type of {chip.name}",
        found=machine,
        allowed=names,
        suggestion=close[0] if close else None,
    )


def _with_numbers(found: tuple[Shape, ...], per_host: int | None, hosts: int | None) -> tuple[Shape, ...]:
    """The readings with these numbers; IllegalTopology that names the right ones when there is none."""
    sized = tuple(reading for reading in found if per_host in (None, reading.chips_per_host))
    if not sized:
        raise _host_count(found, f"{_count(per_host or 0, 'chip')} a host")
    kept = tuple(reading for reading in sized if hosts in (None, reading.hosts))
    if not kept:
        told = _count(hosts or 0, "host") + ("" if per_host is None else f" of {_count(per_host, 'chip')}")
        raise _host_count(sized, told)
    return kept


def _host_count(found: tuple[Shape, ...], told: str) -> IllegalTopology:
    right = tuple(dict.fromkeys(_layout(reading) for reading in found))
    first = found[0]
    return IllegalTopology(
        f"{first.accelerator} {first.topology} is {first.chips} chips: {' or '.join(right)}, not {told}",
        found=told,
        allowed=right,
        suggestion=right[0] if len(right) == 1 else None,
        code="host-count",
    )


def _ambiguous(found: tuple[Shape, ...]) -> AmbiguousTopology:
    first = found[0]
    ways = " or ".join(f"{_layout(reading)} ({reading.machine})" for reading in found)
    return AmbiguousTopology(
        f"{first.accelerator} {first.topology} is {ways}; say which by its machine type",
        found=first.topology,
        allowed=tuple(reading.machine for reading in found),
    )


def _layout(reading: Shape) -> str:
    return f"{_count(reading.hosts, 'host')} of {_count(reading.chips_per_host, 'chip')}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
