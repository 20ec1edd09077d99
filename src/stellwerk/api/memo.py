"""Plans that were worked out before, so that the next command does not work them out again.

Without a controller a plan is a function of the declaration, the fleet file, the command line, this machine and the
code. All of that makes the key of an entry: nothing ever goes stale, an entry is found or it is not. Reading one
imports neither pydantic nor YAML, which take longer than all else that `stellwerk plan` does. Times are kept relative
to the moment of the plan. An entry that is damaged, or not ours, counts as none.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import stellwerk
from stellwerk.api.home import cache_folder
from stellwerk.backends.local import resources
from stellwerk.controller.times import parse_time, rfc3339

MOST_ENTRIES = 64
LARGEST_FILE = 2**20
"""Bytes of a declaration; a plan of a larger one is not kept."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """The declaration as the API takes it, what is doubtful about it, and its plan if one was made here.

    Times in `plan` are seconds from the moment at which it was made.
    """

    declaration: Json
    warnings: list[str]
    plan: Json | None = None

    @classmethod
    def made(cls, declaration: Json, warnings: list[str], plan: Json | None, at: float) -> Entry:
        """An entry with the plan that was made at the time `at` (s since the epoch)."""
        told = None if plan is None else _with_times(plan, lambda time: round(parse_time(time) - at, 6))
        return cls(declaration, warnings, told)

    def plan_at(self, now: float) -> Json | None:
        """The plan as it would be if it were made `now` (s since the epoch)."""
        return None if self.plan is None else _with_times(self.plan, lambda seconds: rfc3339(now + seconds))


def key_of(file: Path, fleet: str | None, overrides: Mapping[str, Any]) -> str | None:
    """The key of all that a plan depends on; None when there is no telling, as for a file that cannot be read."""
    try:
        files = [_digest(Path(name)) for name in (file, fleet) if name is not None]
        facts = [str(file), os.path.abspath(file), files, overrides, resources.fingerprint(), sys.version, _code()]
    except (OSError, ValueError):
        return None
    return sha256(json.dumps(facts).encode()).hexdigest()


def read(key: str) -> Entry | None:
    """The entry with this key, if it is whole and the folders that its declaration names still exist."""
    try:
        with open(_file(key), "rb", opener=_open_own) as stream:
            kept: Any = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return None
    found = cast("Json", kept) if isinstance(kept, dict) else {}
    if found.get("check") != _check(key, found.get("entry")):
        return None
    entry = Entry(**found["entry"])
    return entry if all(map(os.path.isdir, _folders(entry.declaration))) else None


def write(key: str, entry: Entry) -> None:
    """Keep an entry, whole or not at all; without a place to write to nothing is kept."""
    from tempfile import NamedTemporaryFile

    body = asdict(entry)
    file = _file(key)
    with contextlib.suppress(OSError):
        for folder in (file.parents[2], file.parents[1], file.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=file.parent, delete=False) as stream:  # mode 0600
            json.dump({"check": _check(key, body), "entry": body}, stream)
        os.replace(stream.name, file)
        _prune(file.parent)


def _with_times(plan: Json, change: Callable[[Any], Any]) -> Json:
    def changed(span: Json) -> Json:
        return {name: None if time is None else change(time) for name, time in span.items()}

    options = [option | {name: changed(option[name]) for name in ("start", "finish")} for option in plan["options"]]
    return plan | {"options": options}


def _digest(file: Path) -> str:
    about = file.stat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_FILE:
        raise ValueError(f"{file} is not kept")
    return sha256(file.read_bytes()).hexdigest()


def _code() -> list[tuple[str, int, int]]:
    """Every file of this package, and the folders that a new version of a library changes."""
    import site

    libraries = [(folder, os.stat(folder).st_mtime_ns, 0) for folder in site.getsitepackages() if os.path.isdir(folder)]
    return sorted(_stated(os.path.dirname(stellwerk.__file__))) + libraries


def _stated(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as found:
        for item in found:
            if item.is_dir():
                if item.name != "__pycache__":
                    yield from _stated(item.path)
            else:
                about = item.stat()
                yield item.path, about.st_mtime_ns, about.st_size


def _folders(declaration: Json) -> Iterator[str]:
    """The working folders on this machine; loading a declaration makes sure that there are such."""
    steps: Mapping[str, Json] = declaration.get("steps") or {}
    for part in (declaration, *steps.values()):
        folder = part.get("working_dir")
        if folder and "://" not in folder:
            yield folder


def _check(key: str, body: Any) -> str:
    return sha256(f"{key} {json.dumps(body)}".encode()).hexdigest()


def _file(key: str) -> Path:
    return cache_folder() / "plans" / f"{key}.json"


def _open_own(path: str, flags: int) -> int:
    """Open a file of this user's that is no link."""
    found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if os.fstat(found).st_uid != os.geteuid():
        os.close(found)
        raise PermissionError(path)
    return found


def _prune(folder: Path) -> None:
    """Take the oldest files away, and what an interrupted write has left."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST_ENTRIES]:
        file.unlink(missing_ok=True)
