"""The command line.

`main` is the entry point. Only what a command needs is imported, and only when it runs: see `app.py`.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    from stellwerk.cli.app import run_app

    run_app()


__all__ = ["main"]
