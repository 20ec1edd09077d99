"""What several benchmarks need: a process of one's own, the memory that it took, and what it ran on."""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stellwerk.scheduling import book
from stellwerk.scheduling.compiled import is_compiled

MEBIBYTE = 2**20


def alone(module: str, *arguments: str) -> Any:
    """What `python -m module arguments` prints as JSON, run in a process of its own. Raises CalledProcessError."""
    command = [sys.executable, "-m", module, *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def peak_mib() -> float:
    """The most memory (MiB) that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1) / MEBIBYTE


def interpreter() -> str:
    """The interpreter, and whether the core was compiled.

    The version alone says little, as builds of one version differ in speed by a third.
    """
    core = "compiled core" if is_compiled(book) else "core as written"
    build = ", ".join(platform.python_build())
    return f"{platform.python_implementation()} {platform.python_version()} ({build}), {core}"


def write(file: Path, results: Sequence[Any]) -> None:
    """Write results as JSON, with the interpreter that they were taken on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"on": interpreter(), "results": results}, indent=1) + "\n")
