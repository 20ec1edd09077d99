"""From what a user names (a file, a mapping, a `Workload`) to a workload that this version can run, and its plan."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from stellwerk.api.errors import NoController, NotSupported
from stellwerk.api.home import home_folder, read_address

if TYPE_CHECKING:
    from stellwerk.spec import Workload

BACKENDS = ("local",)


def load(
    source: str | PathLike[str] | Mapping[str, Any] | Workload, *, fleet: Any = None, **overrides: Any
) -> Workload:
    """The workload, with the overrides that are not None; raises `stellwerk.spec.SpecError`.

    Accelerators that only a fleet declares are known when it is given as `fleet` or is the running controller's.
    """
    from stellwerk.spec import SpecError, Workload, load_workload

    given = {key: value for key, value in overrides.items() if value is not None}
    declared = cast("Any", dump(source) if isinstance(source, Workload) else source)
    try:
        return load_workload(declared, overrides=given, extra_accelerators=fleet.accelerators if fleet else ())
    except SpecError as error:
        if fleet or not any(problem.code == "unknown-accelerator" for problem in error.problems):
            raise
        known = _accelerators_of_controller()
        if not known:
            raise
        return load_workload(declared, overrides=given, extra_accelerators=known)


def _accelerators_of_controller() -> set[str]:
    """Names of the accelerators in the running controller's fleet; empty when there is no controller."""
    if read_address(home_folder()) is None:
        return set()
    from stellwerk.api.client import Client

    try:
        return {pool["accelerator"] for pool in Client(home_folder()).fleet()["pools"]}
    except NoController:
        return set()


def dump(workload: Workload) -> dict[str, Any]:
    """The declaration as the API takes it."""
    return workload.model_dump(mode="json")


def check_backend(on: str) -> None:
    """Raise `NotSupported` for a backend that this version lacks."""
    if on not in BACKENDS:
        raise NotSupported(f"backend {on} comes with a later version; this one has: {', '.join(BACKENDS)}")


def new_submission() -> str:
    """A fresh key for one submission: whoever sends it twice has submitted once."""
    return os.urandom(16).hex()


def plan_json(workload: Workload, fleet: Any = None) -> dict[str, Any]:
    """The plan as JSON: the controller's if one runs and no other fleet is named, else worked out here."""
    if fleet is None and read_address(home_folder()) is not None:
        from stellwerk.api.client import Client

        with contextlib.suppress(NoController):
            return Client(home_folder()).plan(dump(workload))
    from stellwerk.controller.planning import plan as plan_here

    return plan_here(workload, fleet).to_json()
