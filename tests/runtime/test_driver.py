"""The driver as the backend starts it: a process, an entrypoint, an outcome file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stellwerk.runtime.context import VARIABLE

DRIVER = [sys.executable, "-m", "stellwerk.runtime.driver"]


@dataclass
class Ended:
    code: int
    outcome: dict[str, Any]
    out: str
    err: str


class Folder:
    """A working folder with entrypoints in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcome = path / "outcome.json"

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text)

    def context(self, **changes: object) -> dict[str, str]:
        data = {
            "name": "w",
            "attempt": 1,
            "kind": "job",
            "units": [],
            "accelerator": "cpu",
            "topology": None,
            "slices": 1,
            "hosts": 1,
            "chips": 1,
            "chips_per_host": 1,
            "emulated": True,
            "option": "cpu:1",
            "checkpoint_dir": str(self.path),
            "drain_file": str(self.path / "drain"),
            "reports_file": str(self.path / "reports"),
        } | changes
        return {VARIABLE: json.dumps(data)}

    def command(self, *entrypoint: str) -> list[str]:
        return [*DRIVER, "--outcome", str(self.outcome), "--", *entrypoint]

    def drive(self, *entrypoint: str) -> Ended:
        done = subprocess.run(
            self.command(*entrypoint),
            cwd=self.path,
            env=os.environ | self.context(),
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(done.returncode, json.loads(self.outcome.read_text()), done.stdout, done.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_script_runs_as_main(folder: Folder) -> None:
    folder.write("sub/helper.py", "WORD = 'helped'")
    folder.write("sub/main.py", "import sys, helper\nif __name__ == '__main__': print(helper.WORD, sys.argv, __file__)")
    ended = folder.drive("sub/main.py", "--flag", "--", "x")
    script = str((folder.path / "sub/main.py").resolve())
    assert ended.out == f"helped {[script, '--flag', '--', 'x']} {script}\n"
    assert (ended.code, ended.outcome) == (0, {"exit_code": 0, "cause": None, "message": "", "exception": None})


@pytest.mark.parametrize(
    ("line", "code", "cause"),
    [
        ("sys.exit()", 0, None),
        ("sys.exit(0)", 0, None),
        ("sys.exit(75)", 75, "user-error"),
        ("sys.exit('too bad')", 1, "user-error"),
        ("raise ValueError('x')", 1, "user-error"),
        ("raise MemoryError", 1, "out-of-memory"),
        ("raise KeyboardInterrupt", 130, "user-error"),
        ("raise ConnectionError('GCS is gone')", 1, "infrastructure"),
    ],
)
def test_the_ways_of_ending(folder: Folder, line: str, code: int, cause: str | None) -> None:
    folder.write("main.py", f"import sys\n{line}\n")
    ended = folder.drive("main.py")
    assert (ended.code, ended.outcome["exit_code"], ended.outcome["cause"]) == (code, code, cause)


def test_a_message_on_exit_goes_to_stderr_too(folder: Folder) -> None:
    folder.write("main.py", "raise SystemExit('too bad')")
    ended = folder.drive("main.py")
    assert (ended.err, ended.outcome["message"]) == ("too bad\n", "too bad")


def test_the_traceback_begins_with_the_users_code(folder: Folder) -> None:
    folder.write("main.py", "def f():\n    raise ValueError('x')\n\nf()\n")
    ended = folder.drive("main.py")
    first = next(line for line in ended.err.splitlines() if "File" in line)
    assert "main.py" in first
    assert "runpy" not in ended.err
    assert ended.err.endswith("ValueError: x\n")


def test_a_syntax_error_is_the_users(folder: Folder) -> None:
    folder.write("main.py", "def f(:\n")
    ended = folder.drive("main.py")
    assert (ended.code, ended.outcome["exception"]) == (1, "SyntaxError")


def test_a_missing_script_is_told(folder: Folder) -> None:
    ended = folder.drive("nowhere.py")
    assert ended.outcome["exception"] == "FileNotFoundError"
    assert "nowhere.py" in ended.outcome["message"]


@pytest.mark.parametrize(("body", "code"), [("return None", 0), ("return 4", 4), ("return True", 0), ("return 'x'", 0)])
def test_a_function_is_called(folder: Folder, body: str, code: int) -> None:
    folder.write("work.py", f"def go(*names):\n    print(names)\n    {body}\n")
    ended = folder.drive("work:go", "a")
    assert (ended.code, ended.out) == (code, "('a',)\n")


def test_a_command_keeps_its_exit_code(folder: Folder) -> None:
    ended = folder.drive(sys.executable, "-c", "import sys; sys.exit(9)")
    assert (ended.code, ended.outcome["cause"]) == (9, "user-error")


def test_a_command_that_does_not_exist(folder: Folder) -> None:
    ended = folder.drive("no-such-command-here")
    assert ended.outcome["exception"] == "FileNotFoundError"


def test_a_killed_command(folder: Folder) -> None:
    ended = folder.drive(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert ended.code == 137


def test_a_signal_reaches_the_command(folder: Folder) -> None:
    program = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); print('up', flush=True); signal.pause()"
    with subprocess.Popen(
        folder.command(sys.executable, "-c", program),
        cwd=folder.path,
        text=True,
        env=os.environ | folder.context(),
        stdout=subprocess.PIPE,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "up\n"
        driver.send_signal(signal.SIGTERM)
        assert driver.wait() == 3
    assert json.loads(folder.outcome.read_text())["exit_code"] == 3


def test_leaving_after_a_drain_notice_is_not_the_users_failure(folder: Folder) -> None:
    folder.write(
        "main.py",
        """
from stellwerk.runtime import current
raise SystemExit(75 if current().should_stop() else 0)
""",
    )
    folder.write("drain", json.dumps({"deadline": 1.0, "reason": "maintenance"}))
    ended = folder.drive("main.py")
    assert (ended.code, ended.outcome["cause"]) == (75, "infrastructure")


def test_reports_reach_the_file(folder: Folder) -> None:
    folder.write("main.py", "from stellwerk.runtime import current\ncurrent().report(7, loss=0.5)")
    folder.drive("main.py")
    assert json.loads((folder.path / "reports").read_text())["step"] == 7


def test_the_runtime_is_light() -> None:
    program = """
import sys, stellwerk.runtime.driver
print([module for module in ('ray', 'jax', 'numpy', 'pydantic') if module in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
