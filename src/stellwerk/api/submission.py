"""From what a user names (a file, a mapping, a `Workload`) to a workload that this version can run, and its plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
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
    return _load(source, fleet, overrides)[0]


def _load(source: Any, fleet: Any, overrides: Mapping[str, Any]) -> tuple[Workload, bool]:
    """The workload, and whether it could be read without asking the controller for its fleet."""
    from stellwerk.spec import SpecError, Workload, load_workload

    given = {key: value for key, value in overrides.items() if value is not None}
    declared = cast("Any", dump(source) if isinstance(source, Workload) else source)
    try:
        extra = fleet.accelerators if fleet else ()
        return load_workload(declared, overrides=given, extra_accelerators=extra), True
    except SpecError as error:
        if fleet or not any(problem.code == "unknown-accelerator" for problem in error.problems):
            raise
        known = _accelerators_of_controller()
        if not known:
            raise
        return load_workload(declared, overrides=given, extra_accelerators=known), False


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
    told = _plan_of_controller(dump(workload)) if fleet is None else None
    return _plan_here(workload, fleet, time.time()) if told is None else told


def plan_source(
    source: Path | Mapping[str, Any], *, fleet: str | None = None, warn: Callable[[str], None], **overrides: Any
) -> dict[str, Any]:
    """`load` and `plan_json` in one, which for a file that was planned before are not repeated (see `memo`).

    `fleet` names a fleet file; `warn` is called with every warning about the workload.
    """
    from stellwerk.api import memo

    key = memo.key_of(source, fleet, overrides) if isinstance(source, Path) else None
    kept = memo.read(key) if key else None
    for warning in kept.warnings if kept else ():
        warn(warning)
    told = _plan_of_controller(kept.declaration) if kept and fleet is None else None
    told = told or (kept.plan_at(time.time()) if kept else None)
    return told or _plan_anew(source, fleet, None if kept else warn, overrides, key)


def _plan_anew(
    source: Path | Mapping[str, Any],
    fleet: str | None,
    warn: Callable[[str], None] | None,
    overrides: Mapping[str, Any],
    key: str | None,
) -> dict[str, Any]:
    from stellwerk.api import memo
    from stellwerk.spec import load_fleet

    pools = None if fleet is None else load_fleet(fleet)
    workload, alone = _load(source, pools, overrides)
    warnings = [warning.render() for warning in workload.warnings]
    if warn:
        for warning in warnings:
            warn(warning)
    declaration, at = dump(workload), time.time()
    told = _plan_of_controller(declaration) if pools is None else None
    plan, here = (told, False) if told is not None else (_plan_here(workload, pools, at), True)
    lasting = alone and (pools is not None or not here or _machine_is_known())
    # a file that was written to meanwhile has another key by now
    if key and lasting and key == memo.key_of(Path(str(source)), fleet, overrides):
        memo.write(key, memo.Entry.made(declaration, warnings, plan if here else None, at))
    return plan


def _plan_of_controller(declaration: Mapping[str, Any]) -> dict[str, Any] | None:
    """None when no controller runs."""
    if read_address(home_folder()) is None:
        return None
    from stellwerk.api.client import Client

    try:
        return Client(home_folder()).plan(declaration)
    except NoController:
        return None


def _plan_here(workload: Workload, fleet: Any, at: float) -> dict[str, Any]:
    from stellwerk.controller.planning import plan

    return plan(workload, fleet, now=at).to_json()


def _machine_is_known() -> bool:
    """False when this machine has devices and asking what they are has failed, as it may not the next time."""
    from stellwerk.backends.local import detect

    return not detect.has_devices() or bool(detect.detect())
