"""A state folder of a test's own: commands run in it, workloads awaited, and in the end nothing left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import stellwerk
from stellwerk.api.client import Client
from stellwerk.backends.local import processes
from stellwerk.backends.local.folder import attempt_folders

PATIENCE_S = 240.0
MARK = "END_TO_END_HOME"

WAIT_FOR_GATE = """
import os, pathlib, time
def wait_for_gate(stop=lambda: False):
    gate = pathlib.Path(os.environ["GATE"])
    while not gate.exists() and not stop():
        time.sleep(0.05)
"""
"""Beside every entrypoint as `gate.py`: the workload goes on when the test opens its gate."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Home:
    """One state folder; every process that comes of it carries its mark."""

    def __init__(self, folder: Path) -> None:
        """`folder` is empty; the state goes into `folder/home`, entrypoints into `folder/NAME`."""
        self.folder, self.path = folder, folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STELLWERK_")}
        source = str(Path(stellwerk.__file__).parents[1])
        self.env = kept | {
            "STELLWERK_HOME": str(self.path),
            "PYTHONPATH": source,
            "NO_COLOR": "1",
            "COLUMNS": "200",
            MARK: str(self.path),
        }
        self.client = Client(self.path)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start `stellwerk ARGS` and leave it running."""
        command = [sys.executable, "-m", "stellwerk", *args]
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else, under nohup, commands would not hear of Ctrl-C
        started = subprocess.Popen(  # unbuffered, so that `told` reads no further than it says
            command, env=self.env, cwd=self.folder, bufsize=0, stdin=null, stdout=pipe, stderr=pipe
        )
        self._started.append(started)
        return started

    def stellwerk(self, *args: str) -> Done:
        """Run `stellwerk ARGS` to its end."""
        return finish(self.start(*args))

    def good(self, *args: str) -> str:
        """What a command printed that must succeed."""
        done = self.stellwerk(*args)
        assert done.code == 0, (args, done)
        return done.out

    def json(self, *args: str) -> Any:
        """A listing."""
        return json.loads(self.good(*args, "--json"))

    def up(self, fleet: str | None = None) -> int:
        """Start the controller; its process id."""
        words: list[str] = []
        if fleet is not None:
            (self.folder / "fleet.yaml").write_text(textwrap.dedent(fleet))
            words = ["--fleet", "fleet.yaml"]
        self.good("up", *words)
        return int(self.json("status")["pid"])

    def declare(self, name: str, script: str, option: str, **more: Any) -> str:
        """A workload file with its entrypoint in a folder of its own; its path."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "main.py").write_text(textwrap.dedent(script))
        (folder / "gate.py").write_text(WAIT_FOR_GATE)
        env = {"GATE": str(folder / "gate"), "NOTES": str(folder / "notes")} | more.pop("env", {})
        declared = {"name": name, "kind": "job", "options": [option], "env": env, "working_dir": "."}
        if more.get("kind") != "cluster":
            declared["entrypoint"] = "main.py"
        (folder / "workload.yaml").write_text(json.dumps(declared | more))
        return str(folder / "workload.yaml")

    def submit(self, name: str, script: str, option: str, **more: Any) -> None:
        """Run a workload and do not follow it."""
        self.good("run", self.declare(name, script, option, **more), "--detach", "--yes")

    def open_gate(self, name: str) -> None:
        (self.folder / name / "gate").touch()

    def notes(self, name: str) -> list[Any]:
        """What the entrypoint wrote, a JSON value a line."""
        file = self.folder / name / "notes"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, name: str, wanted: Callable[[Any], bool]) -> Any:
        """The workload, as soon as it is as wanted; one that has ended otherwise is an error."""
        after, deadline = 0, time.monotonic() + PATIENCE_S
        while True:
            news = self.client.watch(name, after, timeout=5)
            found, after = news["workload"], news["seq"]
            if wanted(found):
                return found
            assert not news["ended"] and time.monotonic() < deadline, f"{found}\n{self.log(name)}"

    def running(self, name: str, attempt: int = 1) -> Any:
        """The workload, once that attempt runs."""
        return self.until(name, lambda found: (found["state"], found["attempt"]) == ("running", attempt))

    def ended(self, name: str) -> Any:
        """The workload, once it has ended."""
        return self.until(name, lambda found: found["state"] == "ended")

    def log(self, name: str) -> str:
        """All logs of the last attempt."""
        chunks = self.client.logs(name)["chunks"]
        return "".join(f"--- {chunk['source']}\n{chunk['text']}" for chunk in chunks)

    def kill_controller(self) -> None:
        """`kill -9`, and wait until it is gone."""
        controller = psutil.Process(int(self.client.status()["pid"]))
        controller.send_signal(signal.SIGKILL)
        psutil.wait_procs([controller], timeout=PATIENCE_S)

    def processes(self) -> dict[int, list[str]]:
        """Every living process of this home and its command line."""
        found = set(processes.marked(MARK, str(self.path)))
        for folder in attempt_folders(self.path):
            found |= set(processes.marked(processes.MARKER, folder.plan()["marker"]))
        return {pid: processes.command_line(pid) for pid in sorted(found)}

    def run_folders(self) -> list[str]:
        """Temporary folders of attempts that exist."""
        planned = (Path(folder.plan()["run_dir"]) for folder in attempt_folders(self.path))
        return [str(path) for path in planned if path.exists()]

    def take_down(self) -> None:
        """End everything as a user does, and see that nothing remains; what remains is killed all the same."""
        try:
            for left in self._started:
                if left.poll() is None:
                    left.kill()
                    left.communicate()
            done = self.stellwerk("down", "--stop-workloads")
            assert done.code in (0, 3), done
            assert self.stellwerk("status").code == 3
            self._wait_for_keepers()
            assert self.processes() == {}
            assert self.run_folders() == []
        finally:
            processes.sweep(lambda: list(self.processes()))
            for folder in self.run_folders():
                processes.remove_folder(Path(folder), list)

    def _wait_for_keepers(self) -> None:
        """A keeper has told the end of its attempt a moment before it ends itself."""
        keepers = [pid for pid, line in self.processes().items() if "stellwerk.backends.local.keeper" in line]
        psutil.wait_procs([psutil.Process(pid) for pid in keepers if psutil.pid_exists(pid)], timeout=PATIENCE_S)


def told(process: subprocess.Popen[bytes], text: str) -> None:
    """Wait until a command has written a line with `text` on stderr."""
    assert process.stderr is not None
    lines: list[str] = []
    while not lines or text not in lines[-1]:
        lines.append(process.stderr.readline().decode())
        assert lines[-1], f"never said {text!r}: {lines}"


def finish(process: subprocess.Popen[bytes]) -> Done:
    """Wait until a command has ended."""
    out, err = (text.decode() for text in process.communicate(timeout=PATIENCE_S))
    assert "Traceback" not in err, err
    return Done(process.returncode, out, err)
