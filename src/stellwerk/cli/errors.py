"""Exit codes, and how everything that goes wrong is told: a sentence on stderr, never a traceback.

0: done. 1: the workload or the check failed at run time. 2: the input was wrong and nothing changed. 3: no
controller, cluster or permission. 130: left with Ctrl-C. `STELLWERK_TRACEBACK=1` shows the
traceback of a fault in Stellwerk itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

FAILED = 1
WRONG_INPUT = 2
UNAVAILABLE = 3
INTERRUPTED = 130

_REFUSED = {401: UNAVAILABLE, 403: UNAVAILABLE, 404: WRONG_INPUT, 409: WRONG_INPUT, 422: WRONG_INPUT}


class CliError(Exception):
    """Something to be told, with the exit code that goes with it."""

    def __init__(self, message: str, code: int = WRONG_INPUT) -> None:
        self.code = code
        super().__init__(message)


def tell(error: BaseException) -> int:
    """Print what went wrong on stderr; return the exit code."""
    lines, code = _in_words(error)
    for line in lines:
        print(line, file=sys.stderr)
    return code


def render_problem(problem: Mapping[str, Any]) -> str:
    """`FILE:LINE:COLUMN: error[CODE]: message; mend` of a problem in JSON."""
    place = ":".join(str(problem[key]) for key in ("file", "line", "column") if problem.get(key) is not None)
    mend = f"; {problem['mend']}" if problem.get("mend") else ""
    return f"{place}: {problem['severity']}[{problem['code']}]: {problem['message']}{mend}"


def _in_words(error: BaseException) -> tuple[list[str], int]:
    from stellwerk.api.errors import ApiError, NoController, NotSupported

    match error:
        case CliError():
            return [f"stellwerk: {error}"], error.code
        case NotSupported():
            return [f"stellwerk: {error}"], WRONG_INPUT
        case NoController():
            return [f"stellwerk: {error}", "start one with: stellwerk up"], UNAVAILABLE
        case ApiError():
            told = [render_problem(problem) for problem in error.problems] or [f"stellwerk: {error}"]
            return told, _REFUSED.get(error.status, FAILED)
        case PermissionError():
            return [f"stellwerk: no permission: {error.filename}"], UNAVAILABLE
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return [f"stellwerk: {place}{error.strerror or error}"], WRONG_INPUT if error.filename else FAILED
        case _:
            return _of_lower_layers(error) or _fault(error)


def _of_lower_layers(error: BaseException) -> tuple[list[str], int] | None:
    """Errors of layers that need not have been imported: if they were not, it is not one of theirs."""
    if "stellwerk.spec" in sys.modules:
        from stellwerk.spec import SpecError

        if isinstance(error, SpecError):
            return [problem.render() for problem in error.problems], WRONG_INPUT
    if "stellwerk.hardware" in sys.modules:
        from stellwerk.hardware import HardwareError

        if isinstance(error, HardwareError):
            return [f"error[{error.code}]: {error}"], WRONG_INPUT
    if "stellwerk.controller.intake" in sys.modules:
        from stellwerk.controller.intake import Unsupported

        if isinstance(error, Unsupported):
            return [f"error[{error.code}]: {error}" + (f"; {error.mend}" if error.mend else "")], WRONG_INPUT
    return None


def _fault(error: BaseException) -> tuple[list[str], int]:
    if os.environ.get("STELLWERK_TRACEBACK"):
        raise error
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return [
        f"stellwerk: this is a fault in Stellwerk itself: {what}",
        "run it again with STELLWERK_TRACEBACK=1 to see where, and report it",
    ], FAILED
