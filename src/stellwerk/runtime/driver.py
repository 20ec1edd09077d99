"""Runs a workload's entrypoint as the driver of its Ray cluster and leaves its outcome in a file.

`python -m stellwerk.runtime.driver --outcome FILE [--framework jax|torch] -- ENTRYPOINT [ARGS...]`

ENTRYPOINT is a Python script, run as `__main__` in this process; or `module:function`, called once, or for kind
`train` on every host under Ray Train; or any other command, run as a child whose exit code is kept. The traceback of
an exception goes to stderr as always; the file tells the backend the cause, which an exit code alone cannot.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from stellwerk.runtime.context import current
from stellwerk.runtime.outcome import Outcome, of_exception, of_exit

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NODE_DEATH_PATIENCE_S = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the entrypoint, writes its outcome and returns its exit code."""
    options, entrypoint = _parse(list(sys.argv[1:] if arguments is None else arguments))
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # else each line printed under Ray Train comes twice
    outcome = _after_drain(run(entrypoint, framework=options.framework))
    outcome.write(options.outcome)
    return outcome.exit_code


def run(argv: Sequence[str], *, framework: str = "jax") -> Outcome:
    """Runs an entrypoint to its end; raises nothing, every way of ending is an outcome."""
    try:
        return of_exit(_start(list(argv), framework))
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        return of_exit(leaving.code)
    except BaseException as error:
        traceback.print_exception(type(error), error, _below_driver(error.__traceback__))
        return of_exception(error, _lost_hosts)


def _start(argv: list[str], framework: str) -> int | None:
    first, rest = argv[0], argv[1:]
    if first.endswith(".py"):
        return _script(first, rest)
    if _FUNCTION.fullmatch(first):
        return _function(first, rest, framework)
    return _child(argv)


def _script(path: str, arguments: list[str]) -> None:
    """As `python PATH ARGS` does it: the folder of the script comes first on the path, and Ray takes it to workers."""
    script = os.path.realpath(path)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


def _function(name: str, arguments: list[str], framework: str) -> int | None:
    """Calls `module:function`, found from the working folder; for kind `train` it is the loop of every host."""
    module, _, attribute = name.partition(":")
    sys.path[0] = os.getcwd()
    sys.argv = [name, *arguments]
    target: Any = importlib.import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    function: Callable[..., object] = target
    if current().kind == "train":
        from stellwerk.runtime.trainer import fit

        fit(function, framework)
        return None
    answer = function(*arguments)
    return answer if isinstance(answer, int) and not isinstance(answer, bool) else None


def _child(argv: list[str]) -> int:
    """Runs a command, hands signals on to it, and answers like a shell: 128 + N when signal N ended it."""
    with subprocess.Popen(argv) as child:

        def hand_on(number: int, _frame: FrameType | None) -> None:
            child.send_signal(number)

        before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _below_driver(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this module and of runpy, which say nothing to a user."""
    mine = (__file__, runpy.__file__, "<frozen runpy>")
    first = frames
    while first is not None and first.tb_frame.f_code.co_filename in mine:
        first = first.tb_next
    return first or frames


def _lost_hosts() -> bool:
    """Whether a node of the Ray cluster has died; waits for as long as Ray itself needs to notice."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    until = time.monotonic() + _NODE_DEATH_PATIENCE_S
    try:
        while all(node["Alive"] for node in ray.nodes()):
            if time.monotonic() > until:
                return False
            time.sleep(0.5)
    except Exception:
        pass  # a head that no longer answers is a lost host too
    return True


def _after_drain(outcome: Outcome) -> Outcome:
    """Leaving after a drain notice, in whatever way, is not the user's failure."""
    if outcome.cause == "user-error" and current().should_stop():
        return replace(outcome, cause="infrastructure", message=f"stopped on a drain notice ({outcome.message})")
    return outcome


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options before the first `--`, and the entrypoint with its arguments after it, untouched."""
    usage = "%(prog)s --outcome FILE [--framework jax|torch] -- ENTRYPOINT [ARGS...]"
    parser = argparse.ArgumentParser(prog="python -m stellwerk.runtime.driver", usage=usage)
    parser.add_argument("--outcome", type=Path, required=True, metavar="FILE", help="where the outcome goes, as JSON")
    parser.add_argument("--framework", choices=("jax", "torch"), default="jax", help="for kind train")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, entrypoint = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    if not entrypoint:
        parser.error("an entrypoint is missing: script.py, module:function or a command, after --")
    return options, entrypoint


if __name__ == "__main__":
    sys.exit(main())
