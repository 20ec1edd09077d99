"""The keeper of one attempt: starts its Ray cluster and its driver, writes down what happens, leaves nothing behind.

`python -m stellwerk.backends.local.keeper FOLDER`, detached from the controller, which may be killed and come back: the
keeper needs it for nothing. It reads `plan.json`, appends to `journal.jsonl`, and listens on a Unix socket. A
connection gets a byte for every new record and may give orders, a JSON line each: `{"op": "stop", "cause", "grace"}`,
`{"op": "kill", "hosts": [NAME, ...]}`, `{"op": "command", "id", "argv", "env", "cwd"}`, `{"op": "resize", "resize",
"hosts", "units", "context", "grace"}` (see `resizing`).

Records: `began`, `ready` (the cluster is whole), `started` (the entrypoint has begun), `checkpoint`, `host-lost`,
`command`, `command-ended`, `resizing`, `resized`, `stopping`, and at the end, when every process and every temporary
file is gone, `ended`.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, cast

from stellwerk.backends.local import processes
from stellwerk.backends.local.cluster import HEAD, Cluster, StartFailed
from stellwerk.backends.local.folder import AttemptFolder
from stellwerk.backends.local.follow import HostLog, Reports
from stellwerk.backends.local.journal import Journal
from stellwerk.backends.local.outcomes import Ending, driver_ending, lost_ending, stop_ending
from stellwerk.backends.local.resizing import IN_PLACE, Resizing

POLL_S = 0.5
LOST_PATIENCE_S = 20.0
"""How long a gang that lost a host is left to the controller before the keeper ends it by itself."""
TERM_PATIENCE_S = 1.0

_ALREADY_RUN = 3


class Keeper:
    """The state of one attempt; `run` returns when it is over."""

    def __init__(self, folder: AttemptFolder) -> None:
        """Read the plan; nothing is started yet."""
        self._folder = folder
        self._plan = folder.plan()
        self._run_dir = Path(self._plan["run_dir"])
        self._journal = Journal(folder.journal)
        self._selector = selectors.DefaultSelector()
        self._connections: dict[socket.socket, bytes] = {}
        self._env = {**self._plan["base"], processes.MARKER: self._plan["marker"]}
        self._cluster: Cluster | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self._commands: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._followed: list[HostLog] = []
        self._known_logs: set[str] = set()
        self._reports = Reports(folder.reports)
        self._lost: list[str] = []
        self._stop: dict[str, Any] | None = None
        self._deadline: float | None = None
        self._ready = self._started = self._terminated = False
        self._resizes = 0
        self._wanted: dict[str, Any] | None = None
        self._resizing: Resizing | None = None
        self._oom_kills = processes.oom_kills()
        self._ending: Ending | None = None

    def run(self) -> None:
        """Keep the attempt until it is over and cleaned up."""
        processes.become_subreaper()
        self._listen()
        self._wake_on_child()
        self._record("began", pid=os.getpid())
        try:
            self._begin()
            while self._ending is None:
                self._turn()
        except StartFailed as error:
            self._ending = Ending("failed", "infrastructure", str(error))
        except Exception as error:
            self._ending = Ending("failed", "infrastructure", f"the keeper failed: {type(error).__name__}: {error}")
        self._clean_up()
        self._record("ended", **self._ending.to_json())

    def _begin(self) -> None:
        self._unpack()
        self._cluster = Cluster(self._plan, self._run_dir, self._folder.logs, self._env)
        self._selector.register(self._cluster, selectors.EVENT_READ, self._on_cluster)
        self._cluster.start_head()

    def _unpack(self) -> None:
        """A copy of the bundle for this attempt alone: what its code writes beside itself changes no other attempt."""
        if self._plan["bundle"] is None:
            self._folder.work.mkdir(mode=0o700)
        else:
            shutil.copytree(self._plan["bundle"], self._folder.work, symlinks=True)

    def _turn(self) -> None:
        """Wait for something to happen, at most until the next poll, and deal with it."""
        timeout = POLL_S
        for deadline in (self._deadline, self._resizing.deadline if self._resizing else None):
            if deadline is not None:
                timeout = min(timeout, max(0.0, deadline - time.monotonic()))
        for key, _ in self._selector.select(timeout):
            cast("Callable[[], None]", key.data)()
        self._reap()
        self._poll()
        self._resize()
        if self._deadline is not None and time.monotonic() >= self._deadline and self._ending is None:
            self._on_deadline()

    def _on_cluster(self) -> None:
        cluster = self._cluster
        assert cluster is not None
        for name in cluster.handle():
            if name == HEAD:
                self._follow(HEAD)
                cluster.start_hosts()
            else:
                self._follow(name)
        if cluster.complete and not self._ready:
            self._ready = True
            self._resize()
            if self._resizing is None and not self._started:
                cluster.release()
                self._start_entrypoint(cluster)
        if cluster.released:
            self._selector.unregister(cluster)

    def _start_entrypoint(self, cluster: Cluster) -> None:
        self._started = True
        self._record("ready", address=cluster.address, dashboard=cluster.dashboard, token=self._plan["token_file"])
        if self._stop is not None:
            return
        self._start_driver()
        self._record("started")

    def _start_driver(self) -> None:
        if self._plan["entrypoint"] is not None:
            self._driver = self._spawn(self._plan["entrypoint"], {}, self._plan["cwd"], "driver.log")

    def _spawn(self, argv: list[str], env: dict[str, str], cwd: str, log: str) -> subprocess.Popen[bytes]:
        assert self._cluster is not None
        whole = self._env | self._plan["driver_env"] | self._plan["env"] | env | self._plan["protected"]
        with (self._folder.logs / log).open("ab") as output:
            return subprocess.Popen(
                argv,
                env=whole | {"RAY_ADDRESS": self._cluster.address},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _follow(self, name: str) -> None:
        if name in self._known_logs:
            return
        self._known_logs.add(name)
        head_logs = self._run_dir / HEAD / "session_latest" / "logs"
        source = head_logs if name == HEAD else self._folder.logs / name
        self._followed.append(HostLog(source, self._folder.logs / f"{name}.log", None if name == HEAD else head_logs))

    def _poll(self) -> None:
        for log in self._followed:
            log.poll()
        for report in self._reports.poll():
            if isinstance(report.get("checkpoint"), str):
                self._record("checkpoint", uri=report["checkpoint"], step=report.get("step"))

    def _reap(self) -> None:
        """Deal with what has ended, nodes first: a driver that fails because its node is gone is not to blame."""
        reaped = dict(processes.reap_children())
        for name, code in self._cluster.ended(reaped) if self._cluster is not None else ():
            self._on_node_death(name, code)
        for pid, code in reaped.items():
            if self._driver is not None and pid == self._driver.pid:
                self._on_driver(code)
            elif pid in self._commands:
                identity, _ = self._commands.pop(pid)
                self._record("command-ended", id=identity, exit_code=code if code >= 0 else 128 - code)

    def _on_driver(self, code: int) -> None:
        if self._driver is not None:
            self._driver.returncode, self._driver = code, None
        ending = driver_ending(self._folder.outcome, code, processes.oom_kills() > self._oom_kills)
        told = self._stop is not None and self._stop["grace"] > 0
        if self._stop is not None and (told or ending.outcome != "succeeded"):
            # Code that was told to stop has stopped, not finished, whatever its exit code.
            ending = stop_ending(self._stop["cause"], ending)
        elif self._lost and ending.outcome != "succeeded":
            ending = lost_ending(self._lost)
        elif self._leaves_for_restart(ending):
            return
        self._ending = self._ending or ending

    def _on_node_death(self, name: str, code: int | None) -> None:
        if name == HEAD:
            self._ending = self._ending or Ending("failed", "infrastructure", f"Ray's head died ({_how(code)})")
            return
        assert self._cluster is not None
        if name in self._lost:
            return
        self._lost.append(name)
        host = self._cluster.host(name)
        processes.sweep(lambda: self._cluster.processes_of(name) if self._cluster else [], reap=False)
        self._record("host-lost", host=name, unit=host["unit"], incarnation=host["incarnation"], index=host["index"],
                     detail=f"its raylet ended ({_how(code)})")  # fmt: skip
        if self._deadline is None:
            self._deadline = time.monotonic() + LOST_PATIENCE_S

    def _on_deadline(self) -> None:
        if self._stop is None:
            self._ending = lost_ending(self._lost)
        elif self._driver is not None and not self._terminated and self._stop["grace"] > 0:
            self._terminated = True
            self._deadline = time.monotonic() + TERM_PATIENCE_S
            processes.kill([self._driver.pid], signal.SIGTERM)
        else:
            self._ending = stop_ending(self._stop["cause"], None)

    def _order_stop(self, order: dict[str, Any]) -> None:
        grace = float(order["grace"]) if self._driver is not None else 0.0
        deadline = time.monotonic() + grace
        if self._stop is None:
            self._stop = {"cause": order["cause"], "grace": grace}
            self._folder.write_drain(time.time() + grace, str(order["cause"]))
            self._record("stopping", cause=order["cause"], grace=grace)
            self._deadline = deadline
        elif self._deadline is not None and not self._terminated:
            self._stop["grace"] = min(self._stop["grace"], grace)
            self._deadline = min(self._deadline, deadline)

    def _order_resize(self, order: dict[str, Any]) -> None:
        """Take an order to resize, unless it was taken before; it is carried out as soon as the cluster is whole."""
        if int(order["resize"]) > self._resizes:
            self._resizes, self._wanted = int(order["resize"]), order

    def _resize(self) -> None:
        """Take the next step of resizing, as far as it can be taken now; an attempt that ends is left as it is."""
        if self._stop is not None or self._lost or not self._ready or self._ending is not None:
            return
        assert self._cluster is not None
        if self._resizing is None and self._wanted is not None and self._cluster.movable:
            order, self._wanted = self._wanted, None
            self._begin_resize(self._cluster, order)
        resizing = self._resizing
        if resizing is not None and not resizing.moving and self._may_move(resizing):
            self._move(self._cluster, resizing)
        if resizing is not None and resizing.moving and self._cluster.complete:
            self._settle(self._cluster, resizing)

    def _begin_resize(self, cluster: Cluster, order: dict[str, Any]) -> None:
        restart = self._driver is not None and self._plan["kind"] not in IN_PLACE
        self._resizing = resizing = Resizing.of(order, cluster.hosts, restart=restart)
        units = resizing.units_left(cluster.hosts)
        self._record("resizing", resize=resizing.number, hosts=resizing.hosts, units=resizing.units, leaving=units)
        runs = self._driver is not None or bool(self._commands)
        if not (resizing.restart or (resizing.leaving and runs)):
            return
        resizing.deadline = time.monotonic() + resizing.grace
        until, now = time.time() + resizing.grace, json.loads(self._plan["protected"]["STELLWERK_CONTEXT"])
        self._folder.write_allocation(resizing.told(units, until, now))
        if resizing.restart:
            self._folder.write_drain(until, "resized")

    def _may_move(self, resizing: Resizing) -> bool:
        """Whether the notice is over. Code that does not leave in time is ended, and code that had to be, is gone."""
        if resizing.deadline is None:
            return True
        late = time.monotonic() >= resizing.deadline
        if not resizing.restart:
            return late or self._folder.let_go(resizing.number) or (self._driver is None and not self._commands)
        if self._driver is not None and late:
            processes.kill([self._driver.pid], signal.SIGKILL if resizing.terminated else signal.SIGTERM)
            resizing.terminated, resizing.deadline = True, time.monotonic() + TERM_PATIENCE_S
        return self._driver is None

    def _move(self, cluster: Cluster, resizing: Resizing) -> None:
        resizing.moving, resizing.deadline = True, None
        self._plan["protected"]["STELLWERK_CONTEXT"] = json.dumps(resizing.context)
        cluster.remove_hosts(resizing.leaving)
        if resizing.joining and cluster.add_hosts(resizing.joining):
            self._selector.register(cluster, selectors.EVENT_READ, self._on_cluster)

    def _settle(self, cluster: Cluster, resizing: Resizing) -> None:
        """Everything stands as ordered: tell the code and the controller, and let it go on."""
        self._resizing = None
        self._folder.write_allocation(resizing.told((), None, None))
        for left in (self._folder.released, self._folder.drain if resizing.restart else self._folder.released):
            left.unlink(missing_ok=True)
        cluster.release()
        if not self._started:
            self._start_entrypoint(cluster)
        elif resizing.restart:
            self._folder.outcome.unlink(missing_ok=True)
            self._start_driver()
        self._record("resized", resize=resizing.number, hosts=resizing.hosts, units=resizing.units)

    def _leaves_for_restart(self, ending: Ending) -> bool:
        """Whether a driver that ended has left because it is to be started anew; one that succeeded has finished."""
        resizing = self._resizing
        if resizing is None or not resizing.restart or resizing.moving:
            return False
        return ending.outcome != "succeeded" and ending.cause != "out-of-memory"

    def _order_kill(self, order: dict[str, Any]) -> None:
        if self._cluster is not None:
            for name in order["hosts"]:
                processes.kill(self._cluster.processes_of(name))

    def _order_command(self, order: dict[str, Any]) -> None:
        identity = str(order["id"])
        self._record("command", id=identity, argv=order["argv"])
        log = f"command-{identity}.log"
        try:
            child = self._spawn(list(order["argv"]), dict(order["env"]), str(order["cwd"]), log)
        except OSError as error:
            with (self._folder.logs / log).open("a") as output:
                output.write(f"{order['argv'][0]}: {error.strerror}\n")
            self._record("command-ended", id=identity, exit_code=127)
        else:
            self._commands[child.pid] = (identity, child)

    def _listen(self) -> None:
        path = self._plan["socket"]
        with suppress(FileNotFoundError):
            os.unlink(path)
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(8)
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, lambda: self._accept(server))

    def _accept(self, server: socket.socket) -> None:
        with suppress(BlockingIOError):
            connection, _ = server.accept()
            connection.setblocking(False)
            self._connections[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: socket.socket) -> None:
        try:
            raw = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if not raw:
            self._selector.unregister(connection)
            del self._connections[connection]
            connection.close()
            return
        *lines, self._connections[connection] = (self._connections[connection] + raw).split(b"\n")
        for line in lines:
            order = json.loads(line)
            {
                "stop": self._order_stop,
                "kill": self._order_kill,
                "command": self._order_command,
                "resize": self._order_resize,
            }[order["op"]](order)

    def _record(self, kind: str, **fields: Any) -> None:
        self._journal.append(kind, **fields)
        for connection in self._connections:
            with suppress(OSError):
                connection.send(b"\n")

    def _wake_on_child(self) -> None:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._selector.register(woken, selectors.EVENT_READ, lambda: _drain(woken))

    def _clean_up(self) -> None:
        """End everything of the attempt, read what was written last, and remove the temporary folder."""
        own, marker = os.getpid(), self._plan["marker"]
        processes.sweep(lambda: processes.descendants(own), reap=True)

        def strays() -> list[int]:
            return processes.of_attempt(marker, self._folder.work)

        left = processes.sweep(strays, reap=True)
        with suppress(Exception):
            self._poll()
        self._keep_head_logs()
        processes.remove_folder(self._run_dir, strays)
        if left and self._ending is not None:
            self._ending = self._ending.with_note(f"{len(left)} processes could not be ended")

    def _keep_head_logs(self) -> None:
        source = (self._run_dir / HEAD / "session_latest" / "logs").resolve()
        with suppress(OSError, shutil.Error):
            shutil.copytree(source, self._folder.logs / HEAD, symlinks=True, dirs_exist_ok=True, ignore=_links)


def _links(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if os.path.islink(os.path.join(folder, name))]


def _wake_only(number: int, frame: FrameType | None) -> None:
    """A handler, so that the signal writes to the wake-up pipe."""


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass


def _how(code: int | None) -> str:
    if code is None:
        return "how is not known"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def main(arguments: list[str] | None = None) -> int:
    """Keep the attempt whose folder is named; at once back with another exit code where it is kept or has been."""
    folder = AttemptFolder(Path((arguments or sys.argv[1:])[0]).absolute())
    lock = os.open(folder.lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _ALREADY_RUN
    if folder.began():
        return _ALREADY_RUN
    os.chdir("/")
    Keeper(folder).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
