"""From a `Launch` to the plan file that a keeper works from: processes, environments, files, context."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stellwerk.backends.local import hosts as host_plans
from stellwerk.backends.local.folder import AttemptFolder, home_id, make_run_dir, network
from stellwerk.backends.local.hosts import Held
from stellwerk.backends.protocol import Launch
from stellwerk.scheduling.model import Fleet, Pool

_FOREIGN = ("RAY_", "TPU_", "MEGASCALE_", "STELLWERK_", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV_PROMPT")
"""Variables of the controller that would mislead a node: they are about another cluster or this machine's hardware."""


def marker(home: Path, workload: str, attempt: int) -> str:
    """The value by which every process of an attempt is known."""
    return f"{home_id(home)}/{workload}/{attempt}"


def make_plan(home: Path, folder: AttemptFolder, launch: Launch, taken: Mapping[str, set[int]]) -> dict[str, Any]:
    """Everything the keeper needs; `taken` are the real GPUs of each unit that other attempts use.

    Raises KeyError when a grant's pool is not in the launch's fleet.
    """
    pools = {grant.pool: _pool(launch.fleet, grant.pool) for grant in launch.command.grants}
    topologies = {part.role: part.topology for part in launch.option.parts}
    held = host_plans.held_units(launch.command.grants, pools, topologies)
    mark = marker(home, folder.workload, folder.attempt)
    run_dir, address = make_run_dir(mark), network(mark)
    indices = _real_gpus(held, taken)
    hosts = host_plans.plan_hosts(held, address, indices)
    context = _context(launch, held, hosts[0].devices if hosts else 0, folder)
    emulated = all(part.pool.emulated or part.pool.accelerator == "cpu" for part in held)
    return {
        "name": launch.name,
        "kind": launch.kind,
        "marker": mark,
        "run_dir": str(run_dir),
        "socket": str(run_dir / "keeper.sock"),
        "token_file": str(run_dir / "token"),
        "token": secrets.token_hex(32),
        "address": address,
        "object_store": host_plans.OBJECT_STORE_BYTES,
        "hosts": [host.to_json() for host in hosts],
        "units": units_of(held),
        "pools": {name: asdict(pool) for name, pool in pools.items()},
        "topologies": topologies,
        "gpus": indices,
        "base": _base_environment(),
        "driver_env": host_plans.jax_on_cpu(hosts[0].devices) if emulated and hosts else {},
        "env": dict(launch.declaration.get("env") or {}),
        "protected": _protected(str(run_dir / "token"), context),
        "bundle": _bundle(launch.declaration),
        "cwd": str(folder.work),
        "entrypoint": _entrypoint(launch, folder),
    }


def units_of(held: Iterable[Held]) -> list[list[Any]]:
    """Unit and incarnation of what is held, each once."""
    return [[unit, incarnation] for unit, incarnation in {part.unit: part.incarnation for part in held}.items()]


def _pool(fleet: Fleet, name: str) -> Pool:
    pool = fleet.pool(name)
    if pool is None:
        raise KeyError(name)
    return pool


def _context(launch: Launch, held: Sequence[Held], per_host: int, folder: AttemptFolder) -> dict[str, Any]:
    first = held[0].pool
    checkpoints = folder.path.parent / "checkpoints"
    checkpoints.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "name": launch.name,
        "attempt": launch.command.attempt,
        "kind": launch.kind,
        "accelerator": first.accelerator,
        "topology": held[0].topology,
        "chips_per_host": per_host,
        "emulated": all(part.pool.emulated for part in held),
        "option": launch.option.short,
        "checkpoint_dir": str(checkpoints),
        "drain_file": str(folder.drain),
        "reports_file": str(folder.reports),
        "allocation_file": str(folder.allocation),
        **host_plans.allocation(held),
    }


def _base_environment() -> dict[str, str]:
    """The controller's environment without what is about other clusters, with what every Ray process needs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return kept | {
        "PYTHONPATH": os.pathsep.join(_python_path(kept.get("PYTHONPATH", ""))),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_agent_register_timeout_ms": "300000",
        # Notice of preemption comes through Stellwerk (`should_stop`), and Ray's own watcher is a process per run.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    }


def _protected(token_file: str, context: Mapping[str, Any]) -> dict[str, str]:
    """What a workload's own `env` does not override."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": token_file,
        "STELLWERK_CONTEXT": json.dumps(context),
    }


def _python_path(present: str) -> Iterable[str]:
    """Where this package lies, for the children, when it is not installed."""
    root = str(Path(__file__).resolve().parents[3])
    parts = [part for part in present.split(os.pathsep) if part]
    return parts if root in parts or "site-packages" in root else [root, *parts]


def _bundle(declaration: Mapping[str, Any]) -> str | None:
    path = str(declaration.get("working_dir") or "")
    return path if path and Path(path).is_dir() else None


def _entrypoint(launch: Launch, folder: AttemptFolder) -> list[str] | None:
    """The driver's command; None for kind `cluster`, which has none."""
    if launch.kind == "cluster":
        return None
    declared = launch.declaration.get("entrypoint") or ()
    entrypoint = [declared] if isinstance(declared, str) else [str(part) for part in declared]
    arguments = [str(argument) for argument in launch.declaration.get("args") or ()]
    framework = launch.declaration.get("framework")
    options = ["--framework", str(framework)] if framework else []
    driver = [sys.executable, "-m", "stellwerk.runtime.driver", "--outcome", str(folder.outcome), *options, "--"]
    return [*driver, *entrypoint, *arguments]


def _real_gpus(held: Sequence[Held], taken: Mapping[str, set[int]]) -> dict[str, list[int]]:
    """For units that are GPUs of this machine: the lowest ones that no other attempt uses."""
    chosen: dict[str, list[int]] = {}
    for part in held:
        if part.pool.emulated or part.pool.topology is not None or part.pool.accelerator == "cpu":
            continue
        free = [index for index in range(part.pool.chips) if index not in taken.get(part.unit, set())]
        chosen[part.unit] = free[: part.chips]
    return chosen
