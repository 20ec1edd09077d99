"""Facts about accelerators: names, topologies, machines, memory, speed and list prices, with their sources.

The lowest layer: it imports nothing of Stellwerk and only the standard library. Data files are read on
first use.
"""

from stellwerk.hardware.catalog import accelerators, source
from stellwerk.hardware.environment import chip_bounds, host_bounds, host_environment
from stellwerk.hardware.errors import (
    AmbiguousTopology,
    HardwareError,
    IllegalTopology,
    UnknownAccelerator,
    UnknownMachine,
)
from stellwerk.hardware.listing import to_json
from stellwerk.hardware.model import Accelerator, Fact, Machine, Price, Shape, Source
from stellwerk.hardware.names import accelerator, parse_name
from stellwerk.hardware.prices import MARKETS, listed_price, price
from stellwerk.hardware.topology import (
    aligned_parts,
    default_machine,
    parse_topology,
    shape,
    shapes,
    shapes_of_chips,
    subshapes,
)

__all__ = [
    "MARKETS",
    "Accelerator",
    "AmbiguousTopology",
    "Fact",
    "HardwareError",
    "IllegalTopology",
    "Machine",
    "Price",
    "Shape",
    "Source",
    "UnknownAccelerator",
    "UnknownMachine",
    "accelerator",
    "accelerators",
    "aligned_parts",
    "chip_bounds",
    "default_machine",
    "host_bounds",
    "host_environment",
    "listed_price",
    "parse_name",
    "parse_topology",
    "price",
    "shape",
    "shapes",
    "shapes_of_chips",
    "source",
    "subshapes",
    "to_json",
]
