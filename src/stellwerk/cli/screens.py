"""Where `run` shows what happens: a terminal with a status line, or plain lines.

The driver's log goes to stdout and Stellwerk's own lines to stderr, so that the output of a workload can be piped on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stellwerk.cli.tables import fancy

if TYPE_CHECKING:
    from stellwerk.cli.following import Item, Screen


def screen(name: str) -> Screen:
    """The screen that fits where stdout goes."""
    return TerminalScreen(name) if fancy() else PlainScreen(name)


class PlainScreen:
    """One line for everything, without colours."""

    def __init__(self, name: str) -> None:
        self._name = name

    def item(self, item: Item) -> None:
        """A state, a report, a checkpoint or a note as a line; the end is told by who follows."""
        if item["data"].get("state") != "ended":
            self.note(str(item["message"]))

    def log(self, line: str) -> None:
        """A line of the log as it is."""
        print(line, flush=True)

    def note(self, text: str) -> None:
        """A line with the workload's name before it."""
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing to clean up."""


class TerminalScreen:
    """Reports move the status line at the bottom, everything else scrolls above it."""

    def __init__(self, name: str) -> None:
        from rich.console import Console

        self._name = name
        self._console = Console(highlight=False)
        self._status = self._console.status(f"[bold]{name}[/bold]: submitted")

    def item(self, item: Item) -> None:
        """A report goes to the status line, the rest scrolls."""
        from rich.text import Text

        self._status.update(Text.assemble((self._name, "bold"), ": ", str(item["message"])))
        self._status.start()
        if item["kind"] != "progress" and item["data"].get("state") != "ended":
            self.note(str(item["message"]))

    def log(self, line: str) -> None:
        """A line of the log as it is."""
        self._console.print(line, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line in colour, with the workload's name before it."""
        from rich.text import Text

        self._console.print(Text.assemble((f"{self._name}: ", "bold cyan"), (text, "cyan")), soft_wrap=True)

    def close(self) -> None:
        """Take the status line away."""
        self._status.stop()
