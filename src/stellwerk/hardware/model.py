"""The facts as values: an accelerator, its machines, its shapes, its prices, and where each is from.

Units: memory GiB, bandwidth byte/s, rates FLOP/s or op/s per chip, prices USD per chip-hour.
A chip is one TPU chip, one GPU, or one CPU. None is "unknown", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["tpu", "gpu", "cpu"]
Cloud = Literal["gke", "eks", "aks", "gce"]
FactValue = float | int | str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact is from: a short key, what it is, and its day or version (None: not recorded)."""

    key: str
    title: str
    date: str | None


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure with the keys of its sources, and a note where sources differ."""

    name: str
    value: FactValue
    sources: tuple[str, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type: one host with its chips.

    ``topologies`` are those that its hosts can make up (TPU only). ``label`` is the value of the GKE
    accelerator label. ``on_request`` machines are only used when named. ``chip_memory_gib`` differs from
    the accelerator's own where a cloud reports another figure. ``usd_per_hour`` is the list price of the
    whole machine, on demand, in ``region`` on ``price_date``.
    """

    name: str
    cloud: Cloud
    chips: int
    vcpus: float | None
    memory_gib: float | None
    label: str | None = None
    topologies: tuple[str, ...] = ()
    flex_start: bool | None = None
    on_request: bool = False
    chip_memory_gib: float | None = None
    usd_per_hour: float | None = None
    region: str | None = None
    price_date: str | None = None
    sources: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """One reading of a topology: (accelerator, topology, machine) fixes hosts and chips per host.

    ``wrap`` has three flags, x, y, z, as a host's environment has them; it is empty where unknown.
    ``twist`` tells whether a twisted torus is possible (None: unknown). ``accelerator_type`` is the name
    that the cloud gives the slice, ``ray_pod_type`` the one that Ray gives it. ``ray_valid`` is False for
    topologies missing from Ray 2.60's list. ``doubt`` says why a shape may be refused after all.
    """

    accelerator: str
    topology: str
    machine: str
    chips: int
    hosts: int
    chips_per_host: int
    multi_host: bool
    wrap: tuple[bool, ...]
    accelerator_type: str
    ray_pod_type: str
    ray_valid: bool
    twist: bool | None = None
    doubt: str | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """The sides of the topology, in chips."""
        return tuple(int(side) for side in self.topology.split("x"))


@dataclass(frozen=True, slots=True)
class Price:
    """A list price in USD per chip-hour, without tax.

    ``basis`` is ``machine`` when the host is paid for as well and ``gpu`` when it costs extra. ``doubt``
    is set on prices that are never chosen by default.
    """

    region: str
    market: str
    usd_per_chip_hour: float
    date: str | None
    source: str
    cloud: str = "gcp"
    basis: Literal["machine", "gpu"] = "machine"
    machine: str | None = None
    note: str | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A class of chip with everything known about it; ``facts`` has the source of each figure.

    ``domain`` is the number of chips that one fast interconnect joins (a TPU pod, an NVLink domain).
    ``resource`` is the Kubernetes resource name. ``ray_only`` are topologies that Ray lists and no
    provider offers. Equality and hash go by name and kind.
    """

    name: str
    kind: Kind
    spellings: tuple[str, ...] = field(compare=False)
    memory_gib: float | None = field(default=None, compare=False)
    flops_bf16: float | None = field(default=None, compare=False)
    flops_fp8: float | None = field(default=None, compare=False)
    ops_int8: float | None = field(default=None, compare=False)
    memory_bandwidth: float | None = field(default=None, compare=False)
    interconnect: str | None = field(default=None, compare=False)
    interconnect_bandwidth: float | None = field(default=None, compare=False)
    domain: int | None = field(default=None, compare=False)
    cores_per_chip: int | None = field(default=None, compare=False)
    devices_per_chip: int | None = field(default=None, compare=False)
    suffix_counts: Literal["chips", "tensorcores"] | None = field(default=None, compare=False)
    vendor: str | None = field(default=None, compare=False)
    machines: tuple[Machine, ...] = field(default=(), compare=False, repr=False)
    shapes: tuple[Shape, ...] = field(default=(), compare=False, repr=False)
    ray_only: tuple[str, ...] = field(default=(), compare=False)
    ray_type: str | None = field(default=None, compare=False)
    ray_version: str | None = field(default=None, compare=False)
    gke_labels: tuple[str, ...] = field(default=(), compare=False)
    resource: str | None = field(default=None, compare=False)
    prices: tuple[Price, ...] = field(default=(), compare=False, repr=False)
    facts: tuple[Fact, ...] = field(default=(), compare=False, repr=False)
    sources: tuple[str, ...] = field(default=(), compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def gke_label_key(self) -> str | None:
        """The GKE node label whose values are ``gke_labels``; None for CPUs."""
        keys = {"tpu": "cloud.google.com/gke-tpu-accelerator", "gpu": "cloud.google.com/gke-accelerator"}
        return keys.get(self.kind)

    @property
    def chips_per_host(self) -> tuple[int, ...]:
        """Every number of chips that a host of this accelerator can have, ascending; empty for CPUs."""
        usable = (machine for machine in self.machines if self.kind != "tpu" or machine.topologies)
        return tuple(sorted({machine.chips for machine in usable}))
