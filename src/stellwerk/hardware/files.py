"""The data files, read once each and only when something asks for them.

``pkgutil`` reads them because ``importlib.resources`` would double the import time of the layer.
"""

from __future__ import annotations

import json
from functools import cache
from pkgutil import get_data
from typing import Any, cast

from stellwerk.hardware.model import Source


@cache
def read(name: str) -> dict[str, Any]:
    """The content of ``data/<name>.json``."""
    content = get_data("stellwerk.hardware", f"data/{name}.json")
    if content is None:
        raise FileNotFoundError(f"stellwerk/hardware/data/{name}.json")
    return cast("dict[str, Any]", json.loads(content))


@cache
def entries() -> dict[str, tuple[str, dict[str, Any]]]:
    """Shown name -> (kind, raw entry), in the order of listings: TPUs by age, GPUs, cpu."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for kind, key in (("tpu", "generations"), ("gpu", "gpus"), ("cpu", "cpus")):
        for entry in read(kind)[key]:
            found[entry["name"]] = (kind, entry)
    return found


@cache
def sources() -> dict[str, Source]:
    """Every source by its key."""
    table = read("sources")["sources"]
    return {key: Source(key, item["title"], item["date"]) for key, item in table.items()}
