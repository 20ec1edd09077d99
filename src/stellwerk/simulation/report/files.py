"""The files of a replay: `workloads.csv`, `summary.json`, plots and `report.html`; and of several side by side."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from stellwerk.simulation.outcome import Outcome
from stellwerk.simulation.report import page, plots
from stellwerk.simulation.world import Span

COLUMNS = ("name", "queue", "submit_s", "start_s", "end_s", "chips", "attempts", "busy_s", "pool")
FORECASTS = ("name", "at_s", "p50_s", "p90_s", "start_s")
Named = Sequence[tuple[str, Outcome]]


def write_report(outcome: Outcome, folder: Path) -> None:
    """Write all files of one replay into `folder`, which is made when it is missing. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "workloads.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows(outcome))
    if outcome.forecasts is not None:
        with (folder / "forecasts.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(FORECASTS)
            writer.writerows(forecast_rows(outcome))
    _write_json(folder / "summary.json", outcome.summary())
    named = [("", outcome)]
    drawn = {**_drawn(named), "units": plots.units(outcome)}
    _write_plots(folder, drawn)
    (folder / "report.html").write_text(page.render([(outcome.labels.title, outcome)], drawn), encoding="utf-8")


def write_comparison(runs: Named, folder: Path) -> None:
    """Write every replay into a folder of its own, and all side by side into `folder`. Raises `OSError`."""
    for name, outcome in runs:
        write_report(outcome, folder / name)
    _write_json(folder / "summary.json", [{"name": name, **outcome.summary()} for name, outcome in runs])
    drawn = _drawn(runs)
    _write_plots(folder, drawn)
    (folder / "report.html").write_text(page.render(runs, drawn), encoding="utf-8")


def rows(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    """The rows of `workloads.csv`, in the order of the submits; what never was is empty.

    `pool` are the pools of the last attempt.
    """
    last: dict[str, Span] = {}
    counts: dict[str, int] = {}
    for span in outcome.spans:
        key = span.job.demand.key
        last[key] = span
        counts[key] = counts.get(key, 0) + 1
    for job in outcome.jobs:
        key, span = job.demand.key, last.get(job.demand.key)
        pools = " ".join(dict.fromkeys(grant.pool for grant in span.grants)) if span is not None else ""
        chips = span.chips if span is not None else job.demand.options[0].chips
        times = (_seconds(job.at), _seconds(job.start), _seconds(job.end))
        yield job.demand.name, job.demand.queue, *times, chips, counts.get(key, 0), _seconds(job.busy), pools


def forecast_rows(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    """The rows of `forecasts.csv`, in the order in which they were told; times as in `workloads.csv`."""
    jobs = {job.demand.key: job for job in outcome.jobs}
    for told in outcome.forecasts or ():
        job = jobs[told.key]
        yield job.demand.name, _seconds(told.at), _seconds(told.p50), _seconds(told.p90), _seconds(job.start)


def _drawn(runs: Named) -> dict[str, str]:
    return {
        "utilization": plots.utilization(runs),
        "waits": plots.waits(runs),
        "completions": plots.completions(runs),
        "cost": plots.cost(runs),
    }


def _write_plots(folder: Path, drawn: dict[str, str]) -> None:
    for name, text in drawn.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _seconds(value: float | None) -> str:
    """Seconds to the microsecond, without trailing zeros."""
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
