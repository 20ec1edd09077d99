"""Bundles: a workload's folder as it was at submission, kept under the hash of its content.

Every attempt runs in a copy of the bundle, so neither edits after the submission nor what another attempt writes
change it, and two submissions of the same folder share one bundle. Content is hashed as it is copied, so a folder
that changes meanwhile cannot pass for another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

LIMIT = 512 * 2**20
"""Bytes that one bundle may have."""
IGNORE_FILE = ".stellwerkignore"
SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", ".DS_Store"}
)
"""Names that never travel: what can be made again, and the history of the code."""

_CHUNK = 2**20


class BundleError(Exception):
    """The folder cannot be shipped; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of the ignore file: a glob for a path (with a slash) or for a name, `!` to ship it after all."""

    pattern: str
    anchored: bool
    folders_only: bool
    ships: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        """Whether it speaks of this path, relative to the root."""
        if self.folders_only and not is_folder:
            return False
        return fnmatchcase(path if self.anchored else path.rpartition("/")[2], self.pattern)


def pack(source: Path, bundles: Path, *, exclude: Path | None = None, limit: int = LIMIT) -> Path:
    """Copy `source` into `bundles`; the copy's folder, which is named by its hash.

    `exclude` (a folder) is left out wherever it is. Raises BundleError on a link that leads outside, on a folder that
    is too large, and on what cannot be read.
    """
    if not source.is_dir():
        raise BundleError(f"working_dir {source} is not a folder")
    bundles.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(prefix=".new-", dir=bundles))
    try:
        digest = _Packing(source.resolve(), copy, exclude and exclude.resolve(), limit).run()
        return _settle(copy, bundles / digest)
    except OSError as error:
        raise BundleError(f"working_dir {source} cannot be copied: {error.strerror}: {error.filename}") from error
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def prune(bundles: Path, used: set[str]) -> None:
    """Remove every bundle whose name is not in `used`, and what an interrupted `pack` left."""
    for folder in bundles.iterdir() if bundles.is_dir() else ():
        if folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)


class _Packing:
    """One copy under way: its hash so far and its size."""

    def __init__(self, source: Path, copy: Path, exclude: Path | None, limit: int) -> None:
        self._source, self._copy, self._exclude, self._limit = source, copy, exclude, limit
        self._rules = _rules(source / IGNORE_FILE)
        self._hash = hashlib.sha256()
        self._size = 0

    def run(self) -> str:
        for entry, path in self._walk(self._source, ""):
            target = self._copy / path
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                self._link(Path(entry.path), path, target)
            elif stat.S_ISDIR(mode):
                self._note("folder", path)
                target.mkdir()
            elif stat.S_ISREG(mode):
                self._file(Path(entry.path), path, target, mode)
        return self._hash.hexdigest()

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[os.DirEntry[str], str]]:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            path = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if not self._ships(entry, path, is_folder):
                continue
            yield entry, path
            if is_folder:
                yield from self._walk(Path(entry.path), path + "/")

    def _ships(self, entry: os.DirEntry[str], path: str, is_folder: bool) -> bool:
        if entry.name in SKIPPED or entry.name.endswith(".pyc"):
            return False
        if is_folder and self._exclude is not None and Path(entry.path) == self._exclude:
            return False
        spoken = [rule.ships for rule in self._rules if rule.matches(path, is_folder)]
        return spoken[-1] if spoken else True

    def _link(self, link: Path, path: str, target: Path) -> None:
        leads_to = Path(os.path.realpath(link))
        if not leads_to.is_relative_to(self._source):
            raise BundleError(
                f"working_dir has a link that leads outside: {path} -> {os.readlink(link)}; "
                f"copy what it leads to, or name it in {IGNORE_FILE}"
            )
        relative = os.path.relpath(leads_to, Path(os.path.realpath(link.parent)))
        self._note("link", path, relative)
        target.symlink_to(relative)

    def _file(self, file: Path, path: str, target: Path, mode: int) -> None:
        runs = bool(mode & stat.S_IXUSR)
        self._note("program" if runs else "file", path)
        size = 0
        with file.open("rb") as reader, target.open("xb") as writer:
            while chunk := reader.read(_CHUNK):
                size += len(chunk)
                self._grow(len(chunk))
                self._hash.update(chunk)
                writer.write(chunk)
        self._note("size", str(size))
        target.chmod(0o700 if runs else 0o600)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise BundleError(
                f"working_dir {self._source} has more than {self._limit // 2**20} MiB; "
                f"name data and outputs in {IGNORE_FILE}, or point working_dir at the code alone"
            )

    def _note(self, *words: str) -> None:
        for word in words:
            self._hash.update(os.fsencode(word) + b"\0")


def _settle(copy: Path, bundle: Path) -> Path:
    """Give a finished copy its name; one of the same content that is there already stays."""
    try:
        copy.rename(bundle)
    except OSError:
        if not bundle.is_dir():
            raise
    return bundle


def _rules(file: Path) -> list[_Rule]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise BundleError(f"{file} is not UTF-8 text") from error
    return [_rule(line.strip()) for line in lines if line.strip() and not line.startswith("#")]


def _rule(line: str) -> _Rule:
    ships = line.startswith("!")
    pattern = line.removeprefix("!")
    folders_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    fields: dict[str, Any] = {"anchored": "/" in pattern, "folders_only": folders_only, "ships": ships}
    return _Rule(pattern.removeprefix("/"), **fields)
