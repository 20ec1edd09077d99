"""Arguments that several commands share, and the command after `--`."""

from __future__ import annotations

from typing import Any

import typer

from stellwerk.cli.coercion import PlainCommand

_TAIL = "stellwerk.tail"


class TailCommand(PlainCommand):
    """A command that takes another command after `--`, untouched."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Split at the first `--`; what follows is kept for `tail`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_TAIL] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show in the usage line that a command may follow."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def tail(ctx: typer.Context) -> list[str] | None:
    """The command after `--`; None when there was no `--`."""
    return ctx.meta.get(_TAIL)


JSON_HELP = "Print JSON; its keys are stable."


def json_option() -> Any:
    """`--json`."""
    return typer.Option(False, "--json", help=JSON_HELP)


def name_argument() -> Any:
    """The name of a workload."""
    return typer.Argument(metavar="NAME", help="A workload's name.", show_default=False)
