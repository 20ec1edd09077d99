"""Running the command line, and comparing what it prints with the files in `golden`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import stellwerk
from stellwerk.cli.app import run_app

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/cli/golden anew")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environment(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own to stand in, a state folder of its own, and a terminal that is none."""
    for name in list(os.environ):
        if name.startswith("STELLWERK_"):
            monkeypatch.delenv(name)
    source = str(Path(stellwerk.__file__).parents[1])
    settings = {"STELLWERK_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "100", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    for name, value in (settings | {"PYTHONPATH": source}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def cli(environment: None, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `stellwerk ARGS` in this process."""

    def run(*args: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run_app(list(args))
        printed = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        assert "Traceback" not in printed.err, printed.err
        return Done(code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def process(environment: None) -> Cli:
    """Run `stellwerk ARGS` as a process of its own."""

    def run(*args: str) -> Done:
        command = [sys.executable, "-m", "stellwerk", *args]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a kept file."""

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden", default=False):
            file.write_text(text)
        assert text == file.read_text()

    return compare
