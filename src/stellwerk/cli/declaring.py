"""The workload that `run` and `plan` are about: a file, or hardware and a command on the command line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stellwerk.api import submission
from stellwerk.cli.errors import CliError

if TYPE_CHECKING:
    from stellwerk.spec import Workload


def named(
    file: str | None, command: Sequence[str] | None, *, accelerator: list[str] | None, name: str | None, on: str
) -> Path | dict[str, object]:
    """The file, or a declaration made of the command; raises `CliError` when it is neither or both."""
    submission.check_backend(on)
    if file is not None:
        if command is not None:
            raise CliError(f"{file} names its own entrypoint; leave out the command after --")
        return Path(file)
    if command and accelerator:
        return _from_command(command, accelerator, name)
    if command:
        raise CliError("a command needs hardware, for example --accelerator tpu-v6e:4x4 or --accelerator cpu:2")
    raise CliError("name a file, or give --accelerator HARDWARE and a command after --")


def declared(
    file: str | None,
    command: Sequence[str] | None,
    *,
    accelerator: list[str] | None,
    name: str | None,
    queue: str | None,
    on: str,
) -> Workload:
    """Load what was named; the flags override the file. Warnings go to stderr."""
    source = named(file, command, accelerator=accelerator, name=name, on=on)
    workload = submission.load(source, accelerator=accelerator or None, name=name, queue=queue)
    for warning in workload.warnings:
        warn(warning.render())
    return workload


def warn(line: str) -> None:
    """A warning as a line on stderr."""
    print(line, file=sys.stderr)


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
