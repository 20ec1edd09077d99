"""What the Ray node of an emulated host is started with: resources, labels and environment of the real machine.

TPU hosts carry the variables of the real host (`stellwerk.hardware.host_environment`), and Ray makes its labels and
resources from them by itself, as it does on the real machine. GPU hosts are told their type, which Ray would read
from the driver. JAX is sent to the CPU with as many devices as the host has chips.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
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
from stellwerk.scheduling.model import Fleet, Grant, Pool

OBJECT_STORE_BYTES = 200_000_000
"""Object store of one node; it is shared memory, taken as it fills, and spills to the disk beyond."""


@dataclass(frozen=True, slots=True)
class Host:
    """One Ray node to start: `name` is `UNIT-host-N`, `address` its own address on the loopback network."""

    name: str
    unit: str
    incarnation: int
    index: int
    address: str
    devices: int
    args: list[str] = field(default_factory=list[str])
    env: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the plan file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Held:
    """One unit, or the part of it, that an attempt holds."""

    pool: Pool
    unit: str
    incarnation: int
    chips: int
    hosts: int


def held_units(grants: Iterable[Grant], fleet: Fleet) -> list[Held]:
    """The units of some grants in order, cells of one unit together; KeyError where a pool is not in the fleet."""
    found: dict[str, Held] = {}
    for grant in grants:
        pool = fleet.pool(grant.pool)
        if pool is None:
            raise KeyError(grant.pool)
        before = found.get(grant.unit)
        chips = grant.chips + (before.chips if before else 0)
        hosts = max(grant.hosts, before.hosts if before else 0)
        found[grant.unit] = Held(pool, grant.unit, grant.incarnation, chips, hosts)
    return list(found.values())


def plan_hosts(held: Sequence[Held], network: str, indices: dict[str, list[int]] | None = None) -> list[Host]:
    """The hosts of some units; `network` is the head's address, the hosts' follow it.

    `indices` are the GPUs of this machine that a real (not emulated) unit may use.
    """
    hosts: list[Host] = []
    for part in held:
        first = ipaddress.ip_address(network) + 1 + len(hosts)
        addresses = [str(first + index) for index in range(part.hosts)]
        hosts += [_host(part, index, addresses, (indices or {}).get(part.unit)) for index in range(part.hosts)]
    return hosts


def slices(held: Sequence[Held]) -> int:
    """How many units, which for TPUs is the number of slices."""
    return max(1, len(held))


def tpu_shape(pool: Pool) -> Shape | None:
    """The reading of a TPU pool's topology; None for GPUs and CPUs."""
    if pool.topology is None:
        return None
    machine = pool.machine or default_machine(pool.accelerator, pool.topology)
    return shape_of(pool.accelerator, pool.topology, machine)


def machine_of(chip: Accelerator, pool: Pool, per_host: int) -> Machine | None:
    """The machine type behind a pool: the one it names, that of its shape, or the first with as many chips."""
    reading = tpu_shape(pool)
    name = reading.machine if reading else pool.machine
    named = [machine for machine in chip.machines if machine.name == name]
    alike = [machine for machine in chip.machines if machine.chips == per_host and not machine.on_request]
    return next(iter(named + alike), None)


def _host(part: Held, index: int, addresses: list[str], indices: list[int] | None) -> Host:
    chip = _accelerator(part.pool)
    per_host = max(1, part.chips // part.hosts)
    env = _environment(chip, part, index, per_host, addresses)
    if indices is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, indices))
    return Host(
        name=f"{part.unit}-host-{index}",
        unit=part.unit,
        incarnation=part.incarnation,
        index=index,
        address=addresses[index],
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
    chip: Accelerator | None, part: Held, index: int, per_host: int, addresses: list[str]
) -> dict[str, str]:
    env = {"RAY_NODE_TYPE_NAME": part.pool.name, "RAY_NODE_MARKET_TYPE": part.pool.market}
    reading = tpu_shape(part.pool) if chip is not None and chip.kind == "tpu" else None
    if reading is not None and part.pool.emulated:
        env |= host_environment(reading, part.unit, index, addresses)
    elif reading is not None:
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
