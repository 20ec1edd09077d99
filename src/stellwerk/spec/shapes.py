"""Which reading of a TPU topology a declaration means; where there are several, none is chosen silently."""

from __future__ import annotations

from stellwerk import hardware
from stellwerk.hardware import AmbiguousTopology, HardwareError, Shape, UnknownMachine
from stellwerk.spec.problems import Flaw, did_you_mean, listed, shown
from stellwerk.spec.wording import hardware_flaw


def readings(accelerator: str, topology: str, machine: str | None) -> tuple[Shape, ...]:
    """The layouts of hosts that a topology can mean, one each; one only with a machine. Raises `Flaw`."""
    if machine is not None:
        return (_one(accelerator, topology, machine, None, None),)
    try:
        shapes = hardware.shapes(accelerator, topology)
    except HardwareError as error:
        raise hardware_flaw(error, "topology") from error
    return tuple({(shape.hosts, shape.chips_per_host): shape for shape in reversed(shapes)}.values())[::-1]


def resolved(
    accelerator: str, topology: str, machine: str | None, hosts: int | None, chips_per_host: int | None
) -> Shape | None:
    """The one layout that fits what is said of machine and hosts; None while several do. Raises `Flaw`."""
    try:
        return _one(accelerator, topology, machine, hosts, chips_per_host)
    except AmbiguousTopology:
        return None


def ambiguity(shapes: tuple[Shape, ...]) -> str | None:
    """The readings of an ambiguous topology as a sentence, or None when there is one reading only."""
    if len(shapes) < 2:
        return None
    ways = listed(f"{_hosts(shape.hosts)} of {shape.chips_per_host} chips ({shape.machine})" for shape in shapes)
    return f"{shapes[0].accelerator} {shapes[0].topology} can be {ways}"


def assumed(shapes: tuple[Shape, ...]) -> Shape:
    """The reading that Ray assumes when nothing else is said."""
    machine = hardware.default_machine(shapes[0].accelerator, shapes[0].topology)
    return next((shape for shape in shapes if shape.machine == machine), shapes[0])


def check_machine(accelerator: str, machine: str) -> str:
    """The machine type as the catalogue spells it. Raises `Flaw` at `machine`."""
    names = [item.name for item in hardware.accelerator(accelerator).machines]
    found = next((name for name in names if name.lower() == machine.strip().lower()), None)
    if found is None and names:
        message = f"{shown(machine)} is no machine type of {accelerator}; allowed are {listed(names[:12])}"
        raise Flaw("unknown-machine", message, did_you_mean(machine, names), path=("machine",))
    return found or machine


def machine_chips(accelerator: str, machine: str | None) -> int | None:
    """Chips of one host of a machine type; None when the machine or its chips are unknown."""
    if machine is None:
        return None
    try:
        machines = hardware.accelerator(accelerator).machines
    except HardwareError:
        return None
    return next((item.chips for item in machines if item.name == machine), None)


def _one(accelerator: str, topology: str, machine: str | None, hosts: int | None, chips_per_host: int | None) -> Shape:
    try:
        return hardware.shape(accelerator, topology, machine, chips_per_host=chips_per_host, hosts=hosts)
    except AmbiguousTopology:
        raise
    except UnknownMachine as error:
        raise hardware_flaw(error, "machine") from error
    except HardwareError as error:
        at_hosts = "hosts" if hosts is not None else "chips_per_host"
        flaw = hardware_flaw(error, at_hosts if error.code == "host-count" else "topology")
        if error.code == "host-count" and hosts and chips_per_host:
            flaw = _too_small(flaw, hardware.shapes(accelerator, topology)[0].chips, hosts, chips_per_host)
        raise flaw from error


def _too_small(flaw: Flaw, chips: int, hosts: int, chips_per_host: int) -> Flaw:
    held = hosts * chips_per_host
    if held >= chips:
        return flaw
    part = "half a slice" if 2 * held == chips else f"{held} of the {chips} chips of a slice"
    return Flaw(flaw.code, f"{flaw.message}: that is {part}", flaw.mend, path=flaw.path)


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
