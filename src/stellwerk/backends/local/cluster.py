"""One attempt's Ray cluster as its keeper sees it: the head, a node per host, and which process belongs to which.

Every node has its own address on the loopback network (127.0.0.0/8), its own folder and ports that are chosen before:
nodes that choose for themselves race for the names of sockets when they start together, and the raylet waits for its
agents to have been imported before it registers when the ports are left to them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stellwerk.backends.local import processes
from stellwerk.backends.local.ports import Ports

HEAD = "head"
STARTS = 3
"""How often one node is tried: another process may have taken a port in between."""

_LEAVE_S = 3.0
"""How long the raylets of hosts that are given back may take to leave the cluster by themselves."""
_STEP_S = 0.02


class StartFailed(Exception):
    """A node did not come up; the message has the end of its log."""


class Cluster:
    """Starts the nodes of a plan and knows their processes; `handle` takes the starter's answers."""

    def __init__(self, plan: Mapping[str, Any], run_dir: Path, logs: Path, env: Mapping[str, str]) -> None:
        """`env` is what every process of the attempt has; the starter is a child of this process."""
        self._plan, self._run_dir, self._logs, self._env = plan, run_dir, logs, dict(env)
        self._hosts: dict[str, dict[str, Any]] = {host["name"]: host for host in plan["hosts"]}
        self._tries: dict[str, int] = {}
        self._ports = Ports()
        self._port, self._dashboard = self._ports.take(2)
        self._buffer = b""
        self.released = False
        self.up: set[str] = set()
        self.pids: dict[int, str] = {}
        self._starter = self._new_starter()

    def _new_starter(self) -> subprocess.Popen[bytes]:
        with (self._logs / "start.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "stellwerk.backends.local.ray_start"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env | self._plan["protected"],
                cwd="/",
            )

    @property
    def address(self) -> str:
        """Where drivers find the cluster."""
        return f"{self._plan['address']}:{self._port}"

    @property
    def dashboard(self) -> str:
        """Ray's dashboard, which asks for the token too."""
        return f"http://{self._plan['address']}:{self._dashboard}"

    @property
    def starter(self) -> int:
        """Process id of the starter."""
        return self._starter.pid

    @property
    def complete(self) -> bool:
        """Whether the head and every host are up."""
        return len(self.up) == len(self._hosts) + 1

    def fileno(self) -> int:
        """Where the starter's answers come from."""
        assert self._starter.stdout is not None
        return self._starter.stdout.fileno()

    def start_head(self) -> None:
        """Order the head node; it has no CPUs for tasks. What its processes leave when they are killed goes with it."""
        ports, scratch = self._ports.take(4), self._run_dir / "tmp"
        scratch.mkdir(mode=0o700, exist_ok=True)
        self._order(
            HEAD,
            [
                "--head",
                f"--port={self._port}",
                "--num-cpus=0",
                "--num-gpus=0",
                "--include-dashboard=true",
                f"--dashboard-host={self._plan['address']}",
                f"--dashboard-port={self._dashboard}",
                "--no-monitor",
                "--disable-usage-stats",
                f"--object-store-memory={self._plan['object_store']}",
                *_node(self._plan["address"], self._run_dir / HEAD, ports),
            ],
            {"TMPDIR": str(scratch)},
        )

    def start_hosts(self) -> None:
        """Order every host; they start together."""
        for name in self._hosts:
            self._start_host(name)

    @property
    def movable(self) -> bool:
        """Whether hosts can be added now: the last starter still takes orders, or is quite gone."""
        return self.released or not self._closed

    def add_hosts(self, hosts: Iterable[dict[str, Any]]) -> bool:
        """Order more hosts; True when it took a new starter, whose answers come from a new `fileno`."""
        fresh = self.released
        if fresh:
            self._starter, self._buffer, self.released = self._new_starter(), b"", False
        for host in hosts:
            self._hosts[host["name"]] = host
            self._tries.pop(host["name"], None)
            self._start_host(host["name"])
        return fresh

    def remove_hosts(self, names: Iterable[str]) -> None:
        """End some hosts: their raylets leave the cluster in order, then nothing of them remains."""
        going = [name for name in names if name in self._hosts]
        raylets = [pid for pid, name in self.pids.items() if name in going]
        self.pids = {pid: name for pid, name in self.pids.items() if name not in going}
        processes.kill(raylets, signal.SIGTERM)
        until = time.monotonic() + _LEAVE_S
        while any(processes.alive(pid) for pid in raylets) and time.monotonic() < until:
            time.sleep(_STEP_S)
        for name in going:
            host = self._hosts.pop(name)
            self.up.discard(name)
            processes.sweep(lambda name=name: self.processes_of(name), reap=False)
            shutil.rmtree(self._folder(host), ignore_errors=True)

    def handle(self) -> list[str]:
        """Read the starter's answers; names of the nodes that came up. Raises StartFailed."""
        raw = os.read(self.fileno(), 65536)
        if not raw:
            self.released = True
            if self.complete:
                return []
            raise StartFailed(f"the starter of Ray nodes ended; {_tail(self._logs / 'start.log')}")
        *lines, self._buffer = (self._buffer + raw).split(b"\n")
        came = [name for line in lines if (name := self._answer(json.loads(line)))]
        for name in came:
            self._note_processes(name)
        return came

    def release(self) -> None:
        """Let the starter go; it has nothing left to do."""
        if self._starter.stdin is not None:
            self._starter.stdin.close()

    @property
    def _closed(self) -> bool:
        return self._starter.stdin is None or self._starter.stdin.closed

    def _folder(self, host: Mapping[str, Any]) -> Path:
        return self._run_dir / f"h{host['number']}"

    def ended(self, reaped: Mapping[int, int]) -> list[tuple[str, int | None]]:
        """The nodes whose raylet (or GCS) has ended, with its exit code where that is known.

        `reaped` are children that have ended, with their codes. The head's are not children of the keeper as long as
        the process that started them lives, which on a busy machine may be half a minute.
        """
        dead = [pid for pid in self.pids if pid in reaped or not processes.alive(pid)]
        return [(self.pids.pop(pid), reaped.get(pid)) for pid in dead]

    def processes_of(self, host: str) -> list[int]:
        """Every process of one host."""
        return processes.marked(processes.HOST_MARKER, f"{self._plan['marker']}/{host}")

    def host(self, name: str) -> dict[str, Any]:
        """A host of the attempt."""
        return self._hosts[name]

    @property
    def hosts(self) -> list[dict[str, Any]]:
        """All hosts that there are now, or are being started."""
        return list(self._hosts.values())

    def _start_host(self, name: str) -> None:
        host = self._hosts[name]
        folder = self._folder(host)
        self._link_logs(folder, name)
        arguments = [f"--address={self.address}", "--include-log-monitor=false", *host["args"]]
        self._order(name, [*arguments, *_node(host["address"], folder, self._ports.take(4))], host["env"])

    def _link_logs(self, folder: Path, name: str) -> None:
        """Ray keeps a node's logs in its session folder; a link there puts them where they last."""
        session = folder / (self._run_dir / HEAD / "session_latest").resolve().name
        session.mkdir(parents=True, exist_ok=True)
        (self._logs / name).mkdir(mode=0o700, exist_ok=True)
        link = session / "logs"
        if not link.is_symlink():
            link.symlink_to(self._logs / name)

    def _order(self, name: str, arguments: list[str], env: Mapping[str, str]) -> None:
        self._tries[name] = self._tries.get(name, 0) + 1
        marker = {processes.HOST_MARKER: f"{self._plan['marker']}/{name}"}
        # Ray looks for "the" cluster of a machine where a worker asks without an address, and there may be several.
        here = {"RAY_ADDRESS": self.address}
        order = {
            "id": name,
            "args": arguments,
            "env": self._env | dict(env) | self._plan["env"] | here | self._plan["protected"] | marker,
            "cwd": self._plan["cwd"],
            "log": str(self._logs / "start.log"),
            "dashboard": self._plan["kind"] == "cluster",
        }
        assert self._starter.stdin is not None
        self._starter.stdin.write((json.dumps(order) + "\n").encode())
        self._starter.stdin.flush()

    def _answer(self, message: dict[str, Any]) -> str | None:
        name = message.get("id")
        if name is None:
            return None
        if message.get("up"):
            self.up.add(name)
            return name
        if message["code"] != 0 and name not in self.up:
            self._again(name)
        return None

    def _again(self, name: str) -> None:
        if self._tries[name] >= STARTS or name == HEAD:
            raise StartFailed(f"Ray node {name} did not start: {_tail(self._logs / 'start.log')}")
        processes.sweep(lambda: self.processes_of(name), reap=False)
        shutil.rmtree(self._folder(self._hosts[name]), ignore_errors=True)
        self._start_host(name)

    def _note_processes(self, name: str) -> None:
        """Remember the processes whose end is the end of the node."""
        for pid in self.processes_of(name):
            program = os.path.basename(next(iter(processes.command_line(pid)), ""))
            if program in ("raylet", "gcs_server"):
                self.pids[pid] = name


def _node(address: str, folder: Path, ports: list[int]) -> list[str]:
    names = ("metrics-export", "dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent")
    named = [f"--{name}-port={port}" for name, port in zip(names, ports, strict=True)]
    return [f"--node-ip-address={address}", f"--temp-dir={folder}", *named]


def _tail(log: Path, lines: int = 3) -> str:
    try:
        text = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text[-lines:] if line.strip())
