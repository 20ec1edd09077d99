"""Finding and ending every process of an attempt, whatever it did to hide (Linux).

Several nets, because each has a hole. The keeper is the *subreaper* of all that it starts: a process whose parent ends
becomes the keeper's child, not init's, so that nothing leaves its tree, whatever it does to sessions or process groups.
And every process inherits a *marker* in its environment, by which it is found when the keeper itself has been killed.
Ray gives some processes another name (`ray::DashboardAgent`), which overwrites what the kernel shows of their
environment; these are found by that name and the folder that they work in, which no other attempt has.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

MARKER = "STELLWERK_ATTEMPT"
HOST_MARKER = "STELLWERK_HOST"

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
_QUIET_LOOKS = 3
_QUIET_S = 0.02
_EXEC_S = 2.0
"""How long a process may be between two programs before it counts as one that hides its environment."""
_KERNEL = 2
"""The parent of the kernel's own threads, which have no environment."""
_REMOVALS = 20


def become_subreaper() -> None:
    """Adopt every orphan among the descendants of this process (`prctl(2)`)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children_map() -> dict[int, list[int]]:
    """Parent pid -> pids of its living children, for the whole machine."""
    found: dict[int, list[int]] = {}
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None and stat[0] not in "ZX":
            found.setdefault(stat[1], []).append(pid)
    return found


def descendants(pid: int) -> list[int]:
    """Every living process below one, the nearest first."""
    tree = children_map()
    found: list[int] = []
    level = tree.get(pid, [])
    while level:
        found += level
        level = [child for parent in level for child in tree.get(parent, [])]
    return found


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty when it is gone or another's."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty when it is gone."""
    try:
        return [os.fsdecode(part) for part in (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[:-1]]
    except OSError:
        return []


def marked(name: str, value: str) -> list[int]:
    """Living processes whose environment has `name=value`, without this one."""
    wanted = f"{name}={value}".encode()
    own = os.getpid()
    return [pid for pid in _pids() if pid != own and _has(pid, wanted) and alive(pid)]


def of_attempt(marker: str, folder: Path) -> list[int]:
    """Every living process of the attempt with this marker, whose work folder is `folder`; without this one."""
    return sorted({*marked(MARKER, marker), *_renamed(folder.resolve())})


def _renamed(folder: Path) -> list[int]:
    """Living processes that Ray has renamed and that work in `folder`."""
    found: list[int] = []
    for pid in _pids():
        try:
            inside = (_PROC / str(pid) / "cwd").readlink() == folder
            if inside and (_PROC / str(pid) / "cmdline").read_bytes().startswith(b"ray::") and alive(pid):
                found.append(pid)
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each; those that are gone do not matter."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def sweep(find: Callable[[], list[int]], *, patience: float = 10.0, reap: bool = False) -> list[int]:
    """SIGKILL what `find` finds until it finds nothing; those left after `patience` seconds (uninterruptible ones).

    It looks again after every round, since a process may fork between the look and the signal, and believes only in
    finding nothing several times in a row, while no process is between two programs. `reap` collects the children of
    this process meanwhile.
    """
    began = time.monotonic()
    until = began + patience
    pause, quiet = 0.005, 0
    while quiet < _QUIET_LOOKS:
        left = find()
        unsure = not left and time.monotonic() < began + _EXEC_S and between_programs()
        quiet = 0 if left or unsure else quiet + 1
        kill(left)
        if reap:
            reap_children()
        if left and time.monotonic() > until:
            return left
        time.sleep(_QUIET_S if quiet else pause)
        pause = min(pause * 2, 0.1)
    return []


def remove_folder(path: Path, find: Callable[[], list[int]]) -> None:
    """Remove a folder that nobody should write to any more, ending whoever still does (as `find` finds them)."""
    for _ in range(_REMOVALS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        sweep(find)


def between_programs() -> bool:
    """Whether some process of this user is in the middle of `execve`, when it shows no environment to be found by."""
    own = os.getuid()
    for pid in _pids():
        try:
            folder = _PROC / str(pid)
            if folder.stat().st_uid == own and not (folder / "environ").read_bytes():
                stat = _stat(pid)
                if stat is not None and stat[0] not in "ZX" and stat[1] not in (0, _KERNEL) and pid != _KERNEL:
                    return True
        except OSError:
            continue
    return False


def reap_children() -> list[tuple[int, int]]:
    """Collect every child that has ended: (pid, exit code; minus the signal's number when one ended it)."""
    reaped: list[tuple[int, int]] = []
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            reaped.append((pid, os.waitstatus_to_exitcode(status)))
    return reaped


def oom_kills() -> int:
    """How often the kernel has ended a process for want of memory since it started."""
    try:
        for line in (_PROC / "vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and parent of a process; the command's name, which may hold anything, ends at the last `)`."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (fields[0], int(fields[1])) if len(fields) > 1 else None


def _has(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
