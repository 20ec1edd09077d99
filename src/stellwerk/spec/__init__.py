"""Declarations of workloads and fleets: loading with places, plain words for what is wrong, JSON schema.

Names load on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stellwerk.spec.fleet import CustomAccelerator, Fleet, Pool, Queue, UnitRange
    from stellwerk.spec.loading import check, describe, load_fleet, load_workload
    from stellwerk.spec.problems import Flaw, Problem, SpecError
    from stellwerk.spec.request import MARKETS, Option, parse_option
    from stellwerk.spec.roles import MAIN_ROLE, Choice, Part, Role
    from stellwerk.spec.schema import fleet_schema, workload_schema
    from stellwerk.spec.slices import SliceRange
    from stellwerk.spec.values import parse_duration, parse_memory, parse_money
    from stellwerk.spec.workload import KINDS, Limits, Step, Workload

__all__ = [
    "KINDS",
    "MAIN_ROLE",
    "MARKETS",
    "Choice",
    "CustomAccelerator",
    "Flaw",
    "Fleet",
    "Limits",
    "Option",
    "Part",
    "Pool",
    "Problem",
    "Queue",
    "Role",
    "SliceRange",
    "SpecError",
    "Step",
    "UnitRange",
    "Workload",
    "check",
    "describe",
    "fleet_schema",
    "load_fleet",
    "load_workload",
    "parse_duration",
    "parse_memory",
    "parse_money",
    "parse_option",
    "workload_schema",
]

_HOME = {
    **dict.fromkeys(("CustomAccelerator", "Fleet", "Pool", "Queue", "UnitRange"), "fleet"),
    **dict.fromkeys(("check", "describe", "load_fleet", "load_workload"), "loading"),
    **dict.fromkeys(("Flaw", "Problem", "SpecError"), "problems"),
    **dict.fromkeys(("MARKETS", "Option", "parse_option"), "request"),
    **dict.fromkeys(("MAIN_ROLE", "Choice", "Part", "Role"), "roles"),
    **dict.fromkeys(("fleet_schema", "workload_schema"), "schema"),
    "SliceRange": "slices",
    **dict.fromkeys(("parse_duration", "parse_memory", "parse_money"), "values"),
    **dict.fromkeys(("KINDS", "Limits", "Step", "Workload"), "workload"),
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
