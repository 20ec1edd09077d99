"""What a command imports. Time depends on the machine; modules do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"ray", "jax", "numpy", "fastapi", "uvicorn", "sqlalchemy", "httpx", "pandas", "asyncio"}


def imported_by(*args: str) -> set[str]:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr))\n"
        f"from stellwerk.cli.app import run_app\nrun_app({list(args)!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "args", [("--help",), ("--version",), ("ls",), ("status", "--json"), ("run", "--help")], ids=" ".join
)
def test_listings_and_help_load_nothing_heavy(args: tuple[str, ...]) -> None:
    assert not imported_by(*args) & (HEAVY | {"pydantic", "ruamel", "rich"})


@pytest.mark.usefixtures("environment")
def test_plan_loads_no_engine() -> None:
    assert not imported_by("plan", "--accelerator", "tpu-v6e:4x4", "--", "true") & (HEAVY | {"rich"})


@pytest.mark.usefixtures("environment")
def test_hardware_loads_no_validation() -> None:
    assert not imported_by("hardware") & (HEAVY | {"pydantic", "ruamel", "rich"})


def test_the_command_runs_as_a_process(process: object) -> None:
    done = process("hardware", "nothing-like-it")  # type: ignore[operator]
    assert done.code == 2
    assert done.err.startswith("error[unknown-accelerator]: ")
