"""The list of commands, and how one is found and run.

The list is a table of names, places and one-line helps, so that `stellwerk --help` imports none of the commands. A
command's module is imported when the command is asked for. What goes wrong in it is told by `errors.tell`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer

from stellwerk.cli import errors
from stellwerk.cli.coercion import PlainCommand, PlainGroup

# name: (module in stellwerk.cli, what the module calls it, one line of help), in the order of the listing
_SECTIONS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Workloads": {
        "run": ("run", "run", "Run a workload: show its plan, then follow it; its exit code is the workload's."),
        "plan": ("plan", "plan", "Say what every option would give: start, finish, cost. Changes nothing."),
        "check": ("check", "check", "Check declarations: errors and warnings with place, code and mend."),
        "ls": ("workloads", "ls", "List the live workloads."),
        "show": ("workloads", "show", "Show one workload with its attempts."),
        "why": ("workloads", "why", "Say why a workload waits, per option, and what would start it now."),
        "logs": ("workloads", "logs", "Print the log of a workload; -f follows it."),
        "stop": ("workloads", "stop", "Stop a workload; its code may save its state first."),
        "history": ("workloads", "history", "List the workloads that have ended."),
        "cost": ("cost", "cost", "The bill: unit-time by state, chip-hours, money."),
        "chaos": ("chaos", "app", "Break hosts and units of a workload on purpose."),
        "demo": ("demo", "demo", "Train on an emulated TPU slice, kill a host, see it resume, read the bill."),
    },
    "Planning": {
        "simulate": (
            "simulate",
            "simulate",
            "Replay a trace in virtual time: utilization, waits, cost, and their limits.",
        ),
        "whatif": ("whatif", "whatif", "Replay the event log with a change, beside what is."),
        "size": ("size", "size", "Find the cheapest fleet that meets a goal, by simulating it."),
    },
    "Hardware": {
        "hardware": ("hardware", "hardware", "Accelerators: topologies, machines, memory, speed, prices, sources."),
        "fleet": ("fleet", "app", "Pools, units, hosts and their health."),
        "schema": ("schema", "schema", "JSON schema of a workload or a fleet, for editors."),
    },
    "Controller": {
        "up": ("controller", "up", "Start the controller."),
        "down": ("controller", "down", "Stop the controller."),
        "status": ("controller", "status", "Say whether the controller runs, and where."),
    },
}
COMMANDS = {name: place for section in _SECTIONS.values() for name, place in section.items()}


class LazyGroup(PlainGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build one command; None when there is none of that name."""
        return _built(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command; an unknown one is told with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise errors.CliError(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table as help."""
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, _, text) in commands.items()])


_HELP = {"help_option_names": ["-h", "--help"]}


def new_typer(cls: type[PlainGroup] = PlainGroup) -> typer.Typer:
    """A Typer without completion, colours and tracebacks of its own."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        cls=cls,
        context_settings=_HELP,
    )


app = new_typer(LazyGroup)


def _print_version(wanted: bool) -> None:
    if wanted:
        from stellwerk import __version__

        print(f"stellwerk {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Whole TPU slices and whole GPU gangs for Ray workloads: declared, granted all at once, run, healed and billed."""


def run_app(args: list[str] | None = None) -> None:
    """Run a command line and exit with its code; nothing that goes wrong ends in a traceback."""
    try:
        app(args, prog_name="stellwerk")
    except SystemExit:
        raise
    except KeyboardInterrupt:
        sys.exit(errors.INTERRUPTED)
    except BaseException as error:
        sys.exit(errors.tell(error))


def _built(name: str) -> Any:
    module, attribute, text = COMMANDS[name]
    found = getattr(import_module(f"stellwerk.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        found.info.help = found.info.help or text
        return typer.main.get_command(found)
    one = new_typer()
    one.command(name, cls=getattr(found, "cls", PlainCommand))(found)
    return typer.main.get_command(one)


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"no such command: {name}" + (f"; did you mean {near[0]}?" if near else "; see stellwerk --help")
