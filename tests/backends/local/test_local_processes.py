"""No process of an attempt escapes, neither from the tree nor from the marker."""

import os
import signal
import subprocess
import sys

import pytest

from stellwerk.backends.local import processes

RUNAWAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if "bare" in sys.argv:
            os.execve(sys.executable, [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], {})
        print(1, flush=True)
        time.sleep(60)
    os._exit(0)
"""

KEEPER = """
import os, subprocess, sys
from stellwerk.backends.local import processes
processes.become_subreaper()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], "bare"], stdout=subprocess.PIPE)
child.stdout.readline()
child.wait()
below = processes.descendants(os.getpid())
left = processes.sweep(lambda: processes.descendants(os.getpid()), reap=True)
print(len(below), len(left))
"""


def _environment(mark: str) -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return os.environ | {"PYTHONPATH": path, processes.MARKER: mark}


def test_a_daemon_without_parent_session_or_environment_stays_in_the_tree():
    done = subprocess.run(
        [sys.executable, "-c", KEEPER, RUNAWAY], capture_output=True, text=True, check=True, env=_environment("tree")
    )
    assert done.stdout.split() == ["1", "0"]


def test_a_daemon_is_found_by_its_marker():
    mark = f"test/{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", RUNAWAY], stdout=subprocess.PIPE, env=_environment(mark)) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.wait()
        found = processes.marked(processes.MARKER, mark)
        assert len(found) == 1
        assert processes.environment(found[0])[processes.MARKER] == mark
        assert processes.command_line(found[0])[:2] == [sys.executable, "-c"]
        assert processes.sweep(lambda: processes.marked(processes.MARKER, mark)) == []
        assert not processes.alive(found[0])


def test_a_marker_that_begins_alike_is_another():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=_environment("k/11")) as child:
        assert processes.marked(processes.MARKER, "k/1") == []
        assert processes.marked(processes.MARKER, "k/11") == [child.pid]
        child.kill()


@pytest.mark.parametrize(("program", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_children_are_reaped_with_their_exit(program: str, code: int):
    done = subprocess.run(
        [sys.executable, "-c", f"""
import os, sys, time
from stellwerk.backends.local import processes
pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", {program!r}])
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print([code for found, code in processes.reap_children() if found == pid], processes.reap_children())
"""],
        capture_output=True, text=True, check=True, env=_environment("reap"),
    )  # fmt: skip
    assert done.stdout.strip() == f"[{code}] []"


def test_what_is_gone_is_no_error():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    processes.kill([child.pid], signal.SIGTERM)
    assert processes.environment(child.pid) == {}
    assert processes.command_line(child.pid) == []
    assert not processes.alive(child.pid)
    assert processes.oom_kills() >= 0


RENAMED = """
import ctypes, os, sys
arguments = int(open("/proc/self/stat").read().rpartition(")")[2].split()[45])
environment = int(open("/proc/self/stat").read().rpartition(")")[2].split()[47])
end = int(open("/proc/self/stat").read().rpartition(")")[2].split()[48])
ctypes.memset(environment, 0, end - environment)
ctypes.memmove(arguments, b"ray::Agent\\0", 11)
print("renamed", flush=True)
input()
"""


def test_a_process_that_ray_renamed_is_found_by_the_folder_it_works_in(tmp_path):
    mark, other = f"renamed/{os.getpid()}", tmp_path / "other"
    other.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", RENAMED], cwd=tmp_path, env=_environment(mark), **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processes.marked(processes.MARKER, mark) == []
        assert processes.of_attempt(mark, tmp_path) == [child.pid]
        assert processes.of_attempt(mark, other) == []
        assert processes.sweep(lambda: processes.of_attempt(mark, tmp_path)) == []


def test_who_only_looks_into_the_folder_is_left_alone(tmp_path):
    command = [sys.executable, "-c", "print(1, flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=_environment("somebody"), **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processes.of_attempt("another", tmp_path) == []
        child.kill()
