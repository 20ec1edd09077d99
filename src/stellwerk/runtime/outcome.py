"""How a driver ended, told from its exception: whose fault it was decides whether the user's retries are used up.

The exceptions of Ray, JAX and torch are known by name, so that none of them is imported here. They nest in many ways
(causes, contexts, failures per worker, pickled originals); all that is reachable counts, the gravest first:
out of memory, then lost infrastructure, then the user's own error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

Cause = Literal["user-error", "out-of-memory", "infrastructure"]

_LINKS = ("__cause__", "cause", "controller_failure", "health_check_failure", "_base_exc")
_GROUPS = ("worker_failures", "exceptions")
_WRAPPERS = {"TrainingFailedError", "RayTaskError", "UserExceptionWithTraceback"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_OUT_OF_MEMORY = {"MemoryError", "OutOfMemoryError"}
_INFRASTRUCTURE = {
    "NodeDiedError",
    "LocalRayletDiedError",
    "RaySystemError",
    "RpcError",
    "PreemptionError",
    "WorkerGroupStartupTimeoutError",
    "WorkerGroupStartupFailedError",
    "InsufficientClusterResourcesError",
    "ActorPlacementGroupRemoved",
    "TaskPlacementGroupRemoved",
    "ActorUnschedulableError",
    "TaskUnschedulableError",
    "WorkerHealthCheckTimeoutError",
}
_DEATHS = {"RayActorError", "ActorDiedError", "WorkerCrashedError", "OwnerDiedError", "ObjectLostError"}
_NODE_DEATH = ("node has died", "node died", "node was dead", "node is dead", "owner's node has", "raylet")
# What remains may be a host's death or the user's own crash; only the state of the hosts can tell.
_PEER_LOSS = (
    "gloo",
    "connection",
    "unavailable",
    "deadline_exceeded",
    "heartbeat",
    "coordination service",
    "barrier",
    "socket closed",
    "peer",
    "aborted",
)
_PEER_ERRORS = {"JaxRuntimeError", "XlaRuntimeError", "DistBackendError", "DistNetworkError", "RuntimeError"}


@dataclass(frozen=True)
class Outcome:
    """What the driver leaves behind; `cause` is None when it succeeded, `message` is one line."""

    exit_code: int
    cause: Cause | None = None
    message: str = ""
    exception: str | None = None

    def write(self, path: Path) -> None:
        """Writes the JSON object as a whole or not at all, and onto the disk."""
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with part.open("w") as file:
            file.write(json.dumps(asdict(self)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def of_exit(status: object) -> Outcome:
    """The outcome of `sys.exit(status)`: None is 0, a number is itself, anything else is a message and exit code 1."""
    if status is None or status == 0:
        return Outcome(0)
    if isinstance(status, int):
        return Outcome(int(status), "user-error", f"exit code {int(status)}", "SystemExit")
    return Outcome(1, "user-error", _one_line(str(status)), "SystemExit")


def of_exception(error: BaseException, lost_hosts: Callable[[], bool] = lambda: False) -> Outcome:
    """The outcome of an exception that nothing caught.

    `lost_hosts` tells whether hosts of the workload have died; it may take a while to be sure, and is asked only when
    the exception is one that a lost host can cause.
    """
    if isinstance(error, KeyboardInterrupt):
        return Outcome(130, "user-error", "interrupted", "KeyboardInterrupt")
    family = list(reachable(error))
    culprit, cause = _judge(family, lost_hosts)
    name = type(culprit).__name__
    what = "lost a host or the head, seen as " if cause == "infrastructure" else ""
    return Outcome(1, cause, _one_line(f"{what}{name}: {culprit}"), name)


def reachable(error: BaseException) -> Iterator[BaseException]:
    """The exception and all that it wraps, each once, outermost first."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += _wrapped(one)


def _wrapped(error: BaseException) -> list[BaseException]:
    linked: list[Any] = [getattr(error, name, None) for name in _LINKS]
    if not error.__suppress_context__:
        linked.append(error.__context__)
    for name in _GROUPS:
        group: Any = getattr(error, name, None)
        linked += list(cast("dict[Any, Any]", group).values() if isinstance(group, dict) else group or ())
    return [one for one in linked if isinstance(one, BaseException)]


def _judge(family: list[BaseException], lost_hosts: Callable[[], bool]) -> tuple[BaseException, Cause]:
    if grown := [error for error in family if _is_out_of_memory(error)]:
        return _origin(grown), "out-of-memory"
    if lost := [error for error in family if _is_infrastructure(error)]:
        return _origin(lost), "infrastructure"
    suspect = next((error for error in family if _may_be_lost_peer(error)), None)
    if suspect is not None and lost_hosts():
        return suspect, "infrastructure"
    return _origin(family), "user-error"


def _is_out_of_memory(error: BaseException) -> bool:
    if _names(error) & _OUT_OF_MEMORY:
        return True
    text = str(error)
    if _names(error) & {"JaxRuntimeError", "XlaRuntimeError"}:
        return text.startswith("RESOURCE_EXHAUSTED")
    return bool(_names(error) & _DEATHS) and "running low on memory" in text


def _is_infrastructure(error: BaseException) -> bool:
    names = _names(error)
    if names & _INFRASTRUCTURE or getattr(error, "preempted", False) is True:
        return True
    text = str(error).lower()
    if names & _DEATHS:
        return any(sign in text for sign in _NODE_DEATH)
    return "ConnectionError" in names and ("gcs" in text or "ray cluster" in text)


def _may_be_lost_peer(error: BaseException) -> bool:
    names = _names(error)
    text = str(error).lower()
    return bool(names & _DEATHS) or (bool(names & _PEER_ERRORS) and any(sign in text for sign in _PEER_LOSS))


def _origin(family: list[BaseException]) -> BaseException:
    """The exception that was raised: the outermost below Ray's wrappers, else the outermost of all."""
    if _names(family[0]) & _WRAPPERS:
        return next((error for error in family if not _names(error) & _WRAPPERS), family[0])
    return family[0]


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _one_line(text: str, most: int = 500) -> str:
    """The first line that says something; a message in a table has to fit on one."""
    lines = [line.strip() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    line = lines[0] if lines else text.strip()
    if line.endswith(":") and len(lines) > 1:
        line += " " + lines[1]
    return line if len(line) <= most else line[: most - 1] + "…"
