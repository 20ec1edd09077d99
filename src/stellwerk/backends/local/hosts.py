"""What the Ray node of an emulated host is started with: resources, labels and environment of the real machine.

TPU hosts carry the variables of the real host (`stellwerk.hardware.host_environment`), and Ray makes its labels and
resources from them by itself, as it does on the real machine. GPU hosts are told their type, which Ray would read
from the driver. JAX is sent to the CPU with as many devices as the host has chips.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from stellwerk.hardware import (
    Accelerator,
    HardwareError,
    Machine,
    Shape,
    accelerator,
    default_machine,
    host_environment,
)
from stellwerk.hardware import shape as shape_of
from stellwerk.hardware.environment import chip_bounds
from stellwerk.scheduling.model import Grant, Pool

OBJECT_STORE_BYTES = 200_000_000
"""Object store of one node; it is shared memory, taken as it fills, and spills to the disk beyond."""


@dataclass(frozen=True, slots=True)
class Host:
    """One Ray node to start: `name` is unlike any other's, `address` its own address on the loopback network.

    `index` counts the hosts of the unit from 0, `number` all hosts that the attempt ever had.
    """

    name: str
    unit: str
    incarnation: int
    index: int
    number: int
    address: str
    devices: int
    args: list[str] = field(default_factory=list[str])
    env: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the plan file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Held:
    """What an attempt holds of one unit: for one slice, or of a GPU or CPU unit in all.

    `name` is the unit's, with the place of a part of it. `slice` names the slice, `topology` is its shape (None
    unless TPU), `worker` the number in it of the first host here; `indices` count the hosts within the unit.
    """

    pool: Pool
    name: str
    unit: str
    incarnation: int
    chips: int
    indices: tuple[int, ...]
    slice: str
    topology: str | None = None
    worker: int = 0

    @property
    def hosts(self) -> int:
        """Hosts of this part."""
        return len(self.indices)


def held_units(
    grants: Iterable[Grant], pools: Mapping[str, Pool], topologies: Mapping[str, str | None] | None = None
) -> list[Held]:
    """What some grants hold, in order; GPU and CPU cells of one unit together, TPU slices each by itself.

    `topologies` are the shapes that each role asked for, the units' own unless said. KeyError where a pool is unknown.
    """
    counted: dict[str, Held] = {}
    workers: dict[tuple[str, int], tuple[str, int]] = {}
    found: list[Held | str] = []
    for grant in grants:
        pool = pools[grant.pool]
        topology = (topologies or {}).get(grant.role, pool.unit_topology)
        if topology is None:
            before = counted.get(grant.unit)
            counted[grant.unit] = _cells(pool, grant, before)
            found += [grant.unit] if before is None else []
            continue
        name = grant.unit + _suffix(pool, grant)
        first, worker = workers.get((grant.role, grant.group), (name, 0))
        indices = _indices(pool, grant)
        found.append(Held(pool, name, grant.unit, grant.incarnation, grant.chips, indices, first, topology, worker))
        workers[grant.role, grant.group] = first, worker + len(indices)
    return [counted[each] if isinstance(each, str) else each for each in found]


def _cells(pool: Pool, grant: Grant, before: Held | None) -> Held:
    chips = grant.chips + (before.chips if before else 0)
    hosts = max(grant.hosts, before.hosts if before else 0)
    return Held(pool, grant.unit, grant.unit, grant.incarnation, chips, tuple(range(hosts)), grant.unit)


def _suffix(pool: Pool, grant: Grant) -> str:
    """`-at-2-0` for a sub-slice that begins at 2,0 of its unit."""
    if pool.layout != "subslices" or not grant.place:
        return ""
    return "-at-" + grant.place.partition("/")[0].replace(",", "-")


def _indices(pool: Pool, grant: Grant) -> tuple[int, ...]:
    """The hosts of the unit that a grant stands on, counted row by row."""
    whole = tpu_shape(pool) if pool.layout == "subslices" and grant.place else None
    if whole is None or not whole.multi_host:
        return tuple(range(grant.hosts))
    origin, _, size = grant.place.partition("/")
    block = chip_bounds(whole)
    starts = [int(at) // each for at, each in zip(origin.split(","), block, strict=False)]
    sides = [int(side) // each for side, each in zip(size.split("x"), block, strict=False)]
    grid = [side // each for side, each in zip(whole.dims, block, strict=False)]
    inside = product(*(range(start, start + side) for start, side in zip(starts, sides, strict=True)))
    return tuple(_row_major(point, grid) for point in inside)


def _row_major(point: Sequence[int], grid: Sequence[int]) -> int:
    index = 0
    for at, side in zip(point, grid, strict=True):
        index = index * side + at
    return index


def plan_hosts(
    held: Sequence[Held], network: str, indices: Mapping[str, list[int]] | None = None, first: int = 0
) -> list[Host]:
    """The hosts of some units; `network` is the head's address, that of host `first` of the attempt the next one.

    `indices` are the GPUs of this machine that a real (not emulated) unit may use.
    """
    base, number = ipaddress.ip_address(network) + 1, first
    numbers: list[range] = []
    addresses: dict[str, list[str]] = {}
    for part in held:
        numbers.append(range(number, number + part.hosts))
        number += part.hosts
        addresses.setdefault(part.slice, []).extend(str(base + each) for each in numbers[-1])
    return [
        _host(part, offset, number, addresses[part.slice], (indices or {}).get(part.unit))
        for part, own in zip(held, numbers, strict=True)
        for offset, number in enumerate(own)
    ]


def allocation(held: Sequence[Held]) -> dict[str, Any]:
    """What an attempt is told of what it holds."""
    return {
        "units": list(dict.fromkeys(part.unit for part in held)),
        "slices": max(1, len({part.slice for part in held})),
        "hosts": sum(part.hosts for part in held),
        "chips": sum(part.chips for part in held),
    }


def tpu_shape(pool: Pool) -> Shape | None:
    """The reading of the topology of a TPU pool's units; None for GPUs and CPUs."""
    if pool.unit_topology is None:
        return None
    machine = pool.machine or default_machine(pool.accelerator, pool.unit_topology)
    return shape_of(pool.accelerator, pool.unit_topology, machine)


def slice_shape(pool: Pool, topology: str) -> Shape:
    """The reading of a slice of a pool; a part of one host looks like a host of its own."""
    whole = tpu_shape(pool)
    try:
        return shape_of(pool.accelerator, topology, whole.machine if whole else pool.machine)
    except HardwareError:
        return shape_of(pool.accelerator, topology, default_machine(pool.accelerator, topology))


def machine_of(chip: Accelerator, pool: Pool, per_host: int) -> Machine | None:
    """The machine type behind a pool: the one it names, that of its shape, or the first with as many chips."""
    reading = tpu_shape(pool)
    name = reading.machine if reading else pool.machine
    named = [machine for machine in chip.machines if machine.name == name]
    alike = [machine for machine in chip.machines if machine.chips == per_host and not machine.on_request]
    return next(iter(named + alike), None)


def _host(part: Held, offset: int, number: int, addresses: list[str], gpus: list[int] | None) -> Host:
    """Host `offset` of a part; `addresses` are those of its whole slice."""
    chip = _accelerator(part.pool)
    per_host = max(1, part.chips // part.hosts)
    worker, index = part.worker + offset, part.indices[offset]
    env = _environment(chip, part, worker, per_host, addresses)
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    return Host(
        name=f"{part.name}-host-{index}",
        unit=part.unit,
        incarnation=part.incarnation,
        index=index,
        number=number,
        address=addresses[worker],
        devices=per_host,
        args=_arguments(chip, part, per_host),
        env=env,
    )


def _accelerator(pool: Pool) -> Accelerator | None:
    """What is known of a pool's accelerator; None for one that only the fleet file describes."""
    try:
        return accelerator(pool.accelerator)
    except HardwareError:
        return None


def _environment(
    chip: Accelerator | None, part: Held, worker: int, per_host: int, addresses: list[str]
) -> dict[str, str]:
    env = {
        "RAY_NODE_TYPE_NAME": part.pool.name,
        "RAY_NODE_MARKET_TYPE": part.pool.market,
        "STELLWERK_UNIT": part.name,
    }
    if part.topology is not None and part.pool.emulated:
        env |= host_environment(slice_shape(part.pool, part.topology), part.slice, worker, addresses)
    elif part.topology is not None:
        env |= {name: value for name, value in os.environ.items() if name.startswith("TPU_")}
    if part.pool.emulated or (chip is not None and chip.kind == "cpu"):
        env |= jax_on_cpu(per_host)
    return env


def jax_on_cpu(devices: int) -> dict[str, str]:
    """The variables that make JAX play accelerators with devices of the CPU, joined over hosts by gloo."""
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }


def _arguments(chip: Accelerator | None, part: Held, per_host: int) -> list[str]:
    machine = machine_of(chip, part.pool, per_host) if chip is not None else None
    kind = chip.kind if chip is not None else "gpu"
    share = min(1.0, per_host / machine.chips) if machine else 1.0
    cpus = per_host if kind == "cpu" else max(per_host, int(machine.vcpus * share) if machine and machine.vcpus else 0)
    resources: dict[str, float] = {"TPU": per_host} if kind == "tpu" else {}
    labels: dict[str, str] = {}
    if kind == "gpu":
        labels["ray.io/gpu-domain"] = part.unit
        if part.pool.emulated:
            name = (chip.ray_type if chip else None) or part.pool.accelerator
            resources[f"accelerator_type:{name}"] = 1
            labels["ray.io/accelerator-type"] = name
    arguments = [
        f"--num-cpus={cpus}",
        f"--num-gpus={per_host if kind == 'gpu' else 0}",
        f"--resources={json.dumps(resources)}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
    ]
    if machine and machine.memory_gib and part.pool.emulated:
        arguments.append(f"--memory={int(machine.memory_gib * share * 2**30)}")
    if labels:
        arguments.append("--labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
    return arguments
