"""What this machine can play: its memory, what a unit in use takes of it, and the fleet that follows.

The constants are estimates, meant to be above what Ray 2.60 processes with a small JAX program take (as proportional
set sizes); they have not been measured with all workers of an attempt running.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from stellwerk.backends.local.resources import machine_memory
from stellwerk.hardware import Accelerator, HardwareError, accelerator, default_machine, price
from stellwerk.hardware import shape as shape_of
from stellwerk.scheduling.model import Part, Pool

MIB = 2**20
HEAD_BYTES = 900 * MIB
"""An attempt besides its hosts: Ray's head with its dashboard, the driver, Ray Train's controller and helpers."""
HOST_BYTES = 420 * MIB
"""One host: raylet, its two agents, and a worker that has imported JAX."""
CHIP_BYTES = 15 * MIB
"""One device: its share of XLA's threads and buffers in a small program."""


def footprint(accelerator: str, hosts: int, chips: int) -> int:
    """Bytes that one unit in use takes, with its share of the head that every attempt needs."""
    return HEAD_BYTES + hosts * HOST_BYTES + min(chips, 256) * CHIP_BYTES


def default_fleet(asks: Iterable[Part]) -> tuple[Pool, ...]:
    """One pool for every hardware that is asked for, each as large as the machine can carry.

    An ask for something that does not exist gets no pool. A GPU or CPU pool's unit is as large as the group asked
    for, up to a whole machine, so that every unit is one Ray node and is counted as one.
    """
    pools: dict[str, Pool] = {}
    for part in asks:
        pool = _pool(part)
        if pool is not None:
            pools.setdefault(pool.name, pool)
    return tuple(pools.values())


def _pool(part: Part) -> Pool | None:
    try:
        chip = accelerator(part.accelerator)
        chips, hosts, machine = _unit(chip, part)
    except HardwareError:
        return None
    market = part.market or "on-demand"
    size = footprint(chip.name, hosts, chips)
    emulated = chip.kind != "cpu" or chips > (os.cpu_count() or 1)
    return Pool(
        name=_name(chip, part, chips, machine),
        accelerator=chip.name,
        topology=part.topology,
        machine=machine,
        chips=chips,
        hosts=hosts,
        maximum=machine_memory() // size,
        market=market,
        price=price(chip.name, market, machine=machine),
        footprint=size,
        emulated=emulated,
    )


def _unit(chip: Accelerator, part: Part) -> tuple[int, int, str | None]:
    """Chips, hosts and machine type of the unit that serves a part."""
    if part.topology is not None:
        machine = part.machine or default_machine(chip.name, part.topology)
        reading = shape_of(chip.name, part.topology, machine)
        return reading.chips, reading.hosts, reading.machine
    named = [machine for machine in chip.machines if machine.name == part.machine]
    largest = max((machine.chips for machine in named or chip.machines if not machine.on_request), default=part.chips)
    return max(1, min(part.chips, largest)), 1, part.machine


def _name(chip: Accelerator, part: Part, chips: int, machine: str | None) -> str:
    size = part.topology or str(chips)
    kind = machine if part.machine else None
    market = part.market if part.market not in (None, "on-demand") else None
    return "-".join(word for word in (chip.name, size, kind, market) if word)
