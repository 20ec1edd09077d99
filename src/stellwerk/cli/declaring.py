"""The workload that `run` and `plan` are about: a file, or hardware and a command on the command line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stellwerk.api import submission
from stellwerk.cli.errors import CliError

if TYPE_CHECKING:
    from stellwerk.spec import Workload


def declared(
    file: str | None,
    command: Sequence[str] | None,
    *,
    accelerator: list[str] | None,
    name: str | None,
    queue: str | None,
    on: str,
    fleet: Any = None,
) -> Workload:
    """Load what was named; the flags override the file. Warnings go to stderr."""
    submission.check_backend(on)
    if file is not None:
        if command is not None:
            raise CliError(f"{file} names its own entrypoint; leave out the command after --")
        source = Path(file)
    elif command and accelerator:
        source = _from_command(command, accelerator, name)
    elif command:
        raise CliError("a command needs hardware, for example --accelerator tpu-v6e:4x4 or --accelerator cpu:2")
    else:
        raise CliError("name a file, or give --accelerator HARDWARE and a command after --")
    workload = submission.load(source, fleet=fleet, accelerator=accelerator or None, name=name, queue=queue)
    for warning in workload.warnings:
        print(warning.render(), file=sys.stderr)
    return workload


def _from_command(command: Sequence[str], accelerator: list[str], name: str | None) -> dict[str, object]:
    return {
        "name": name or _name_of(command),
        "kind": "job",
        "entrypoint": list(command),
        "options": list(accelerator),
        "working_dir": str(Path.cwd()),
    }


def _name_of(command: Sequence[str]) -> str:
    """A name from the script (or program), made unique, as nobody chose it."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    stem = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")[:40] or "command"
    return f"{stem if stem[0].isalpha() else f'job-{stem}'}-{os.urandom(2).hex()}"
