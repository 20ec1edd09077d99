"""`stellwerk schema`: JSON schemas for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from stellwerk.cli.errors import CliError
from stellwerk.cli.tables import print_json


def schema(
    what: Annotated[str, typer.Argument(metavar="workload|fleet", help="Which declaration.", show_default=False)],
) -> None:
    """Print the JSON schema of a workload or a fleet file.

    For an editor with the YAML language server, save it and begin a file with:
    # yaml-language-server: $schema=PATH
    """
    from stellwerk.spec import fleet_schema, workload_schema

    makers = {"workload": workload_schema, "fleet": fleet_schema}
    if what not in makers:
        raise CliError(f"no schema of {what!r}; there is one of: {', '.join(makers)}")
    print_json(makers[what]())
