"""`stellwerk check`: what is wrong with declarations."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stellwerk.cli.arguments import json_option
from stellwerk.cli.errors import WRONG_INPUT
from stellwerk.cli.tables import print_json


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Workload or fleet files.", show_default=False)],
    json: bool = json_option(),
) -> None:
    """Check workload and fleet files: every error and warning with its place, its code and how to mend it.

    Accelerators that a fleet file declares are known to the workload files checked with it. Exit code 2 when there is
    an error, 0 when there are warnings only.
    """
    check_files(files, json)


def check_files(files: list[str], json: bool) -> None:
    """Check and print; exits with code 2 when an error is found."""
    from stellwerk.spec import check as find_problems

    problems = find_problems([Path(file) for file in files])
    errors = sum(problem.severity == "error" for problem in problems)
    if json:
        print_json([asdict(problem) for problem in problems])
    else:
        for problem in problems:
            print(problem.render(), file=sys.stderr)
        if not problems:
            print(f"{len(files)} file{'s' if len(files) > 1 else ''} checked, nothing found")
    if errors:
        raise typer.Exit(WRONG_INPUT)
