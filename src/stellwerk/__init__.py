"""Stellwerk: whole TPU slices and whole GPU gangs for Ray workloads.

`run` and `plan` take a declaration (a path, a mapping or a `Workload`); `current` answers inside a workload. Names are
imported when they are first used: `import stellwerk` alone imports neither Ray nor JAX, and takes no time to speak of.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stellwerk.api.python import Handle, Plan, PlannedOption, plan, run
    from stellwerk.runtime import Context, current
    from stellwerk.spec import Workload

__version__ = "0.1.0"

__all__ = ["Context", "Handle", "Plan", "PlannedOption", "Workload", "__version__", "current", "plan", "run"]

_HOMES = {
    "Context": "stellwerk.runtime",
    "Handle": "stellwerk.api.python",
    "Plan": "stellwerk.api.python",
    "PlannedOption": "stellwerk.api.python",
    "Workload": "stellwerk.spec",
    "current": "stellwerk.runtime",
    "plan": "stellwerk.api.python",
    "run": "stellwerk.api.python",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, also those not imported yet."""
    return sorted({*globals(), *__all__})
