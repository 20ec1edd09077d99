"""Starts Ray nodes fast: one process imports Ray once, then forks for every node and runs `ray start` in the fork.

The only module of the local backend that touches what is private in Ray (written against 2.60); if a newer Ray moves
one of these, this is the place to mend:

* `ray.scripts.scripts.cli`: the command line `ray start`, called in place of a new interpreter (saves an import of Ray
  per node, about 1.5 s of CPU each).
* `RAY_OVERRIDE_NODE_ID_FOR_TESTING`: the id of a node. Forks inherit the state of Ray's random generator and would
  all draw the same id.
* `ray._private.node.Node.start_api_server`: on the head it blocks the raylet until the dashboard has been imported;
  here it runs beside it. Where the method is missing, Ray's own order is kept.
* `ray._private.services.start_ray_process`: through it the API server is told which of its modules to load. Ray Train
  needs the one for the state of actors; all nine are a process each (0.6 GB, 10 s of CPU) and for people who
  look at the dashboard, so only kind `cluster` has them.
* `ray._raylet.persist_port` and `Node.start_raylet`: the raylet registers only when its agents have been imported and
  have written the ports they listen on, even if these were given (and aborts after 15 s, as on a machine that starts
  several nodes at once). Ports that were given are written before.
* `ray.scripts.scripts.get_ray_client_dependency_error`: no option of `ray start` turns the Ray Client server off, which
  would be one more Python process per attempt.

Protocol: a JSON line in for every node, `{"id", "args", "env", "cwd", "log", "dashboard"}`; JSON lines out:
`{"ready": true}` at first, `{"id", "up": true}` once a node is registered, `{"id", "code"}` when its fork has ended.
End of input ends it.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import sys
import threading
import traceback
from importlib import import_module
from types import FrameType
from typing import Any

Order = dict[str, Any]

_DASHBOARD_NAMESPACE = b"dashboard"
_AGENT_PORTS = {
    "METRICS_AGENT_PORT_NAME": "metrics_agent_port",
    "METRICS_EXPORT_PORT_NAME": "metrics_export_port",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME": "dashboard_agent_listen_port",
    "RUNTIME_ENV_AGENT_PORT_NAME": "runtime_env_agent_port",
}
"""Name of a port file (a constant of `ray._raylet`) -> where Ray keeps the port that was asked for."""


def serve() -> None:
    """Take orders from stdin until it closes; forks that are under way go on by themselves."""
    answers = os.dup(1)
    os.dup2(2, 1)
    scripts: Any = import_module("ray.scripts.scripts")

    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _wake_only)
    _say(answers, {"ready": True})
    running: dict[int, str] = {}
    pending = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(answers, running)
        if 0 not in ready:
            continue
        raw = os.read(0, 65536)
        if not raw:
            return
        *lines, pending = (pending + raw).split(b"\n")
        for line in lines:
            order: Order = json.loads(line)
            running[_fork(scripts, order, answers)] = order["id"]


def _wake_only(number: int, frame: FrameType | None) -> None:
    """A handler, so that the signal writes to the wake-up pipe."""


def _fork(scripts: Any, order: Order, answers: int) -> int:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become_node(scripts, order, answers)
    return pid


def _reap(answers: int, running: dict[int, str]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _say(answers, {"id": running.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _become_node(scripts: Any, order: Order, answers: int) -> None:
    """Run `ray start` in a fork; never returns."""
    code = 1
    try:
        _enter(order)
        _ports_known_before()
        waiting = _prepare_head(scripts, order) if "--head" in order["args"] else []
        scripts.cli.main(["start", *order["args"]], standalone_mode=False)
        _say(answers, {"id": order["id"], "up": True})
        for thread in waiting:
            thread.join()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _enter(order: Order) -> None:
    """The fork's own process group, environment, folder and log.

    It stays in the session of its attempt: Linux shares processor time by session (`sched_autogroup`), and hosts that
    compute in step, each in one of its own, lose a quarter of their time to waiting for each other.
    """
    os.setpgid(0, 0)
    log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(order["env"])
    os.environ["RAY_OVERRIDE_NODE_ID_FOR_TESTING"] = secrets.token_hex(28)
    os.chdir(order["cwd"])


def _ports_known_before() -> None:
    """Write the files with the agents' ports, which the raylet waits for, before it starts."""
    raylet: Any = import_module("ray._raylet")
    node_class: Any = import_module("ray._private.node").Node
    original = node_class.start_raylet
    if not hasattr(raylet, "persist_port"):
        return

    def start_raylet(node: Any, *arguments: Any, **named: Any) -> Any:
        for label, parameter in _AGENT_PORTS.items():
            port = getattr(node._ray_params, parameter, 0)
            if port and hasattr(raylet, label):
                raylet.persist_port(node._session_dir, node._node_id, getattr(raylet, label), port)
        return original(node, *arguments, **named)

    node_class.start_raylet = start_raylet


def _prepare_head(scripts: Any, order: Order) -> list[threading.Thread]:
    """What is different on the head; threads to wait for before the fork ends."""
    if hasattr(scripts, "get_ray_client_dependency_error"):
        scripts.get_ray_client_dependency_error = lambda: "not wanted"
    if not order["dashboard"]:
        _only_state_modules()
    return _api_server_beside_raylet()


def _api_server_beside_raylet() -> list[threading.Thread]:
    """Let the API server start in a thread; the list holds that thread once it runs."""
    node_class: Any = import_module("ray._private.node").Node
    original = getattr(node_class, "start_api_server", None)
    threads: list[threading.Thread] = []
    if original is None:
        return threads

    def start_api_server(node: Any, **arguments: Any) -> None:
        parameters = node._ray_params
        node._webui_url = f"{parameters.dashboard_host}:{parameters.dashboard_port}"
        node.get_gcs_client().internal_kv_put(b"webui:url", node._webui_url.encode(), True, _DASHBOARD_NAMESPACE)
        thread = threading.Thread(target=original, args=(node,), kwargs=arguments)
        threads.append(thread)
        thread.start()

    node_class.start_api_server = start_api_server
    return threads


def _only_state_modules() -> None:
    """Let the API server load what answers questions about the state of the cluster, and nothing else."""
    from ray._private import ray_constants

    services: Any = import_module("ray._private.services")
    original = services.start_ray_process

    def start_ray_process(command: list[str], process_type: str, *arguments: Any, **named: Any) -> Any:
        if process_type == ray_constants.PROCESS_TYPE_DASHBOARD:
            command = [*command, "--modules-to-load=StateHead,UsageStatsHead"]
        return original(command, process_type, *arguments, **named)

    services.start_ray_process = start_ray_process


def _say(answers: int, message: Order) -> None:
    os.write(answers, (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    serve()
