"""Printing logs: what is there, and what comes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stellwerk.api.client import Client

_POLL = 20.0  # s


def print_logs(client: Client, name: str, attempt: int | None, source: str | None, follow: bool) -> None:
    """Print the log of one attempt; without a number that of the last and, with `follow`, of all that come after it."""
    chosen, after, seq = attempt, dict[str, int](), 0
    while True:
        part = client.logs(name, attempt=chosen, source=source, after=after, timeout=_POLL if follow else 0)
        chosen = part["attempt"]
        for chunk in part["chunks"]:
            after[chunk["source"]] = chunk["offset"]
            print_chunk(chunk, prefix=source is None)
        if part["chunks"] or (follow and not part["ended"]):
            continue
        if not follow or attempt is not None:
            return
        news = client.watch(name, seq, _POLL)
        seq, latest = news["seq"], news["workload"]["attempt"] or 0
        if latest > (chosen or 0):
            chosen, after = (chosen or 0) + 1, {}
        elif news["ended"]:
            return


def print_chunk(chunk: Mapping[str, str], *, prefix: bool) -> None:
    """Print a piece of log; with `prefix` every line begins with its source."""
    text = chunk["text"]
    if prefix:
        text = "".join(f"{chunk['source']}: {line}\n" for line in text.splitlines())
    sys.stdout.write(text)
    sys.stdout.flush()
