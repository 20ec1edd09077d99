"""Where all state lives: the folder, and what the controller writes there for its clients to find it.

`token` (mode 0600) and `controller.json` are written by the controller before it answers. Both are read anew for every
connection, since a controller that comes back may have another port.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Address:
    """Where a controller says that it listens, and the token that it wants."""

    host: str
    port: int
    token: str


def home_folder() -> Path:
    """`$STELLWERK_HOME`, or the platform's state folder for Stellwerk."""
    named = os.environ.get("STELLWERK_HOME")
    if named:
        return Path(named).expanduser().absolute()
    from platformdirs import user_state_path

    return user_state_path("stellwerk")


def cache_folder() -> Path:
    """What can be made anew: `$STELLWERK_HOME/cache`, or the platform's cache folder for Stellwerk."""
    if os.environ.get("STELLWERK_HOME"):
        return home_folder() / "cache"
    from platformdirs import user_cache_path

    return user_cache_path("stellwerk")


def read_address(home: Path) -> Address | None:
    """What the last controller of this home wrote, or None; whether it still runs is another question."""
    try:
        written = json.loads((home / "controller.json").read_text())
        token = (home / "token").read_text().strip()
        scheme, _, place = str(written["url"]).rstrip("/").partition("://")
        host, _, port = place.rpartition(":")
        return Address(host, int(port), token) if scheme == "http" and host else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
