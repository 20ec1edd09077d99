"""How good forecasts of starts were.

Only the answer at submit is judged. `all` is every workload that started, `waited` those that did not start at their
submit: who starts at once needs no forecast. Errors are those of p50, by how long the workload really waited; what
had no forecast counts as missed in the shares and is left out of the errors. `coverage` is the share of starts at or
before p90.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stellwerk.simulation.forecasting import Told

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
HORIZONS: tuple[tuple[str, float], ...] = (
    ("under 10 min", 10 * MINUTE),
    ("under 1 h", HOUR),
    ("under 6 h", 6 * HOUR),
    ("under 1 d", DAY),
    ("more", float("inf")),
)
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Judged:
    """A workload that really waited `wait` seconds, and what had been said of it at its submit (s), None if nothing."""

    wait: float
    p50: float | None
    p90: float | None
    certain: bool = False


def judged(told: Iterable[Told], starts: Mapping[str, float]) -> list[Judged]:
    """The forecasts at submit of those that started, beside what came."""
    return [
        Judged(starts[each.key] - each.at, _less(each.p50, each.at), _less(each.p90, each.at), each.certain)
        for each in told
        if each.first and each.key in starts
    ]


def figures(found: Sequence[Judged]) -> dict[str, Any]:
    """All figures, as `summary.json` has them."""
    waited = [each for each in found if not each.certain]
    return {"all": shares(found), "waited": {**shares(waited), **_errors(waited)}}


def shares(found: Sequence[Judged]) -> dict[str, Any]:
    """How many there are, and which shares started within a minute, ten, and a tenth of the wait of what was said."""
    return {
        "starts": len(found),
        "within_1m": _share(found, lambda each: MINUTE),
        "within_10m": _share(found, lambda each: 10 * MINUTE),
        "within_10pct": _share(found, lambda each: TOLERANCE * each.wait),
    }


def _errors(found: Sequence[Judged]) -> dict[str, Any]:
    errors, least = dict[str, dict[str, float | int | None]](), 0.0
    for name, most in HORIZONS:
        own = [error(each) for each in found if least <= each.wait < most]
        known = [each for each in own if each is not None]
        errors[name] = {"starts": len(own), "mean_s": sum(known) / len(known) if known else None}
        least = most
    bounded = [each for each in found if each.p90 is not None]
    covered = sum(each.p90 is not None and each.wait <= each.p90 for each in bounded)
    return {
        "unknown": sum(each.p50 is None for each in found),
        "coverage_p90": covered / len(bounded) if bounded else None,
        "error_s": errors,
    }


def error(each: Judged) -> float | None:
    """How far p50 was off (s)."""
    return None if each.p50 is None else abs(each.p50 - each.wait)


def _share(found: Sequence[Judged], tolerance: Callable[[Judged], float]) -> float | None:
    errors = [(error(each), tolerance(each)) for each in found]
    return sum(off is not None and off <= most for off, most in errors) / len(found) if found else None


def _less(at: float | None, origin: float) -> float | None:
    return None if at is None else at - origin
