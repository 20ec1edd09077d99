"""`report.html`: one page with tables and plots that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from stellwerk.simulation.forecast_figures import HORIZONS
from stellwerk.simulation.outcome import Outcome, delay, distribution
from stellwerk.simulation.report.words import dollars, duration, percent

Named = Sequence[tuple[str, Outcome]]
_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}
h1{font-size:1.4rem}svg{width:100%;height:auto}.scroll{overflow-x:auto}
"""


def render(runs: Named, drawn: dict[str, str]) -> str:
    """The page for one replay or several, with the plots that were drawn."""
    first = runs[0][1]
    fleets = ", ".join(dict.fromkeys(outcome.labels.fleet for _, outcome in runs))
    title = f"{first.labels.trace} on {fleets}"
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head>{head}</head><body>',
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_about(first))}</p>",
        _table(["", *(name for name, _ in runs)], table(runs)),
        *(f'<div class="plot">{text}</div>' for text in drawn.values()),
        "</body></html>",
    ]
    return "\n".join(parts)


def table(runs: Named) -> list[list[str]]:
    """The figures that people compare: a row each, a column for every replay; limits stand beside."""
    saved = _SAVED if any(_best(outcome) is not None for _, outcome in runs) else ()
    foretold = _FORETOLD if any(outcome.foretold is not None for _, outcome in runs) else ()
    return [[title, *(show(outcome) for _, outcome in runs)] for title, show in (*_FIGURES, *saved, *foretold)]


def _about(outcome: Outcome) -> str:
    labels = outcome.labels
    pools = ", ".join(f"{pool.name}: {pool.maximum} x {pool.chips} {pool.accelerator}" for pool in outcome.pools)
    failures = f"; failures of {labels.failures}, seed {labels.seed}" if labels.failures else ""
    return f"{len(outcome.jobs):,} workloads; {pools}; estimates: {labels.estimates}{failures}."


def _table(head: list[str], body: list[list[str]]) -> str:
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = ("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in body)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _wait(key: str) -> Callable[[Outcome], str]:
    return lambda outcome: duration(distribution(outcome.waits)[key])


def _large(outcome: Outcome) -> str:
    return duration(outcome.summary()["large"]["wait_s"]["mean"])


def _limited(value: str, limit: str, sign: str) -> str:
    return f"{value} ({sign} {limit})"


def _utilization(outcome: Outcome) -> str:
    value = percent(outcome.utilization)
    return _limited(value, percent(outcome.limits.utilization), "≤") if outcome.limits else value


def _completion(outcome: Outcome) -> str:
    value = duration(distribution(outcome.completions)["mean"])
    return _limited(value, duration(outcome.limits.completion_s), "≥") if outcome.limits else value


def _makespan(outcome: Outcome) -> str:
    value = duration(outcome.ended)
    return _limited(value, duration(outcome.limits.makespan_s), "≥") if outcome.limits else value


_FIGURES: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
    ("workloads that ended", lambda outcome: f"{len(outcome.done):,} of {len(outcome.jobs):,}"),
    ("utilization (limit)", _utilization),
    ("mean completion (limit)", _completion),
    ("makespan (limit)", _makespan),
    ("mean wait", _wait("mean")),
    ("median wait", _wait("p50")),
    ("p90 wait", _wait("p90")),
    ("p99 wait", _wait("p99")),
    ("longest wait", _wait("max")),
    ("mean wait of more than one unit", _large),
    ("longest delay", lambda outcome: duration(max(map(delay, outcome.done), default=None))),
    ("preemptions", lambda outcome: f"{outcome.preemptions:,}"),
    ("attempts", lambda outcome: f"{len(outcome.spans):,}"),
    ("cost", lambda outcome: dollars(outcome.cost)),
    ("simulated in", lambda outcome: f"{outcome.wall_s:.2f} s"),
)


def _best(outcome: Outcome) -> float | None:
    return (outcome.checkpoints or {}).get("best_s")


def _saved(outcome: Outcome) -> str:
    every = (outcome.checkpoints or {}).get("every_s")
    return f"{'none' if every is None else duration(every)} ({duration(_best(outcome))})"


_SAVED: tuple[tuple[str, Callable[[Outcome], str]], ...] = (("time between checkpoints (best)", _saved),)
"""Where what breaks costs work that could have been saved."""


def _told(key: str) -> Callable[[Outcome], str]:
    return lambda outcome: percent((outcome.foretold or {}).get("waited", {}).get(key))


def _off(horizon: str) -> Callable[[Outcome], str]:
    def show(outcome: Outcome) -> str:
        errors = (outcome.foretold or {}).get("waited", {}).get("error_s", {})
        return duration(errors.get(horizon, {}).get("mean_s"))

    return show


def _waited(outcome: Outcome) -> str:
    return f"{(outcome.foretold or {}).get('waited', {}).get('starts', 0):,}"


_FORETOLD: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
    ("starts that were not at once", _waited),
    ("started within 1 minute of the forecast", _told("within_1m")),
    ("started within 10 minutes of it", _told("within_10m")),
    ("started within 10 % of the wait", _told("within_10pct")),
    ("started by p90", _told("coverage_p90")),
    *((f"mean error of waits {name}", _off(name)) for name, _ in HORIZONS),
)
"""Forecasts of those that did not start at once."""
