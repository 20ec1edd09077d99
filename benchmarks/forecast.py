"""Forecasts of starts on public traces: `python -m benchmarks.forecast --traces DIR [--only ROW] [--every N]`.

`DIR` holds, in itself or in a folder below it, `wagap-2013.swf.gz` (MetaCentrum, 2013; estimates are the users' limits,
on its two clusters of 20 x 80 and 48 x 12 cores) and `philly_ge4.csv` (Microsoft, 2017: jobs of 4 GPUs and more, on 32
nodes of 8; estimates are the durations times a factor drawn from 1 to 5). The waits are those of the replay under the
default policy; what is said at a job's submit is compared with what came.

Baselines: `position` takes a job's place in the queue over the average rate of the last 50 starts; `limits` is one plan
in which every job takes the whole of its estimate and nothing is submitted any more. Neither has a 90 % bound of its
own: what they say is also taken for that. Who starts at once needs no forecast, and no method is given any.

A row is met when the forecast is better than both baselines; coverage has its own goal. Exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from stellwerk.scheduling.commands import Command, StartAttempt
from stellwerk.scheduling.events import Event, Submitted
from stellwerk.scheduling.forecast import Futures, draws
from stellwerk.scheduling.history import History
from stellwerk.simulation.forecast_figures import HORIZONS, figures, judged
from stellwerk.simulation.forecasting import Forecaster, Told, calibrated, forecasting
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.submissions import Estimates
from stellwerk.simulation.traces import read
from stellwerk.simulation.world import World
from stellwerk.spec import load_fleet

RESULTS = Path(__file__).parent / "results"
METHODS = ("forecast", "position", "limits")
SHARES = (
    ("within_1m", "starts within 1 min"),
    ("within_10m", "starts within 10 min"),
    ("within_10pct", "starts within 10 % of the wait"),
)
COVERED = (0.85, 0.95)
RECENT = 50
"""Starts whose rate the baseline `position` takes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One trace on its fleet."""

    file: str
    accelerator: dict[str, Any]
    pools: tuple[tuple[str, int, int], ...]
    estimates: str


ROWS = {
    "wagap-2013": Row(
        "wagap-2013.swf.gz", {"xeon": {"memory": "4GiB"}}, (("zewura", 20, 80), ("zegox", 48, 12)), "user"
    ),
    "philly-ge4": Row("philly_ge4.csv", {"p100": {"memory": "16GiB"}}, (("philly", 32, 8),), "1-5"),
}


class Baselines:
    """Both baselines, for one of several shares of the jobs."""

    def __init__(self, world: World, share: int, shares: int) -> None:
        self.told: dict[str, list[Told]] = {"position": [], "limits": []}
        self._world, self._share, self._shares = world, share, shares
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._submits = 0

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """What the scheduler was told, and what it ordered."""
        self._recent.extend(self._world.now for command in commands if isinstance(command, StartAttempt))
        if not isinstance(event, Submitted):
            return
        self._submits += 1
        if self._submits % self._shares == self._share:
            self._submitted(event.demand.key)

    def _submitted(self, key: str) -> None:
        scheduler, now = self._world.scheduler, self._world.now
        if scheduler.state.workloads[key].phase != "waiting":
            for told in self.told.values():
                told.append(Told(key, now, now, now, certain=True))
            return
        span = now - self._recent[0] if self._recent else 0.0
        at = now + len(scheduler.book.waiting) * span / max(1, len(self._recent))
        self.told["position"].append(Told(key, now, at, at))
        plan = draws(scheduler, History(), [], (key,), Futures(1, others=False))[key][0][0]
        self.told["limits"].append(Told(key, now, plan, plan) if plan < float("inf") else Told(key, now, None, None))


class Clock:
    """CPU seconds of the forecasts alone."""

    def __init__(self) -> None:
        self.took = 0.0

    def around(self, observe: Any) -> Any:
        """The observer with its time taken."""

        def timed(event: Event, commands: Sequence[Command]) -> None:
            began = time.process_time()
            observe(event, commands)
            self.took += time.process_time() - began

        return timed


def find(folder: Path, name: str) -> Path:
    """A file in a folder or below it."""
    found = sorted(folder.rglob(name))
    if not found:
        sys.exit(f"{folder}: there is no {name} in it")
    return found[0]


def one_share(name: str, folder: Path, share: int, shares: int) -> dict[str, Any]:
    """Replay a trace; the forecasts of one share of its jobs, by method, when all jobs started, and the CPU time."""
    row = ROWS[name]
    (accelerator,) = row.accelerator
    pools = [{"name": pool, "accelerator": accelerator, "units": n, "chips": c} for pool, n, c in row.pools]
    fleet = load_fleet({"accelerators": row.accelerator, "pools": pools})
    trace = read(str(find(folder, row.file)), accelerator, row.accelerator)
    made: list[tuple[Forecaster, Baselines]] = []
    clock = Clock()

    def watch(world: World) -> Any:
        forecaster = Forecaster(world, again=0, share=share, shares=shares)
        baselines = Baselines(world, share, shares)
        timed = clock.around(forecaster.observe)

        def observe(event: Event, commands: Sequence[Command]) -> None:
            timed(event, commands)
            baselines.observe(event, commands)

        made.append((forecaster, baselines))
        return forecasting(world, observe)

    outcome = replay(fleet, trace, Settings("default", estimates=Estimates.parse(row.estimates)), watch=watch)
    gc.collect()
    ((forecaster, baselines),) = made
    starts = {job.demand.key: job.start for job in outcome.jobs if job.start is not None}
    return {"forecast": forecaster.told, **baselines.told, "starts": starts, "cpu_s": clock.took}


def run(name: str, folder: Path, every: int, processes: int) -> dict[str, Any]:
    """The figures of one trace by method."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        parts = [pool.submit(one_share, name, folder, n, processes * every) for n in range(processes)]
        shares = [part.result() for part in parts]
    starts: dict[str, float] = shares[0]["starts"]
    told = {method: [each for share in shares for each in share[method]] for method in METHODS}
    told["forecast"] = calibrated(told["forecast"], starts)
    found = {method: figures(judged(told[method], starts)) for method in METHODS}
    return {"every": every, "cpu_s": sum(share["cpu_s"] for share in shares), "methods": found}


def lines(name: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """The table's lines of one trace."""
    methods = result["methods"]
    made = list[dict[str, Any]]()
    for who in ("all", "waited"):
        for key, title in SHARES:
            values = [methods[method][who][key] for method in METHODS]
            made.append(_line(name, f"{title}, {who}", values, values[0] > max(values[1:])))
    for horizon, _ in HORIZONS:
        each = [methods[method]["waited"]["error_s"][horizon] for method in METHODS]
        values = [one["mean_s"] for one in each]
        if each[0]["starts"]:
            better = values[0] is not None and all(value is None or values[0] < value for value in values[1:])
            made.append(_line(name, f"mean error (s) of {each[0]['starts']:,} waits {horizon}", values, better))
    covered = [methods[method]["waited"]["coverage_p90"] for method in METHODS]
    made.append(_line(name, "coverage of p90", covered, COVERED[0] <= covered[0] <= COVERED[1]))
    return made


def _line(row: str, figure: str, values: list[float | None], met: bool) -> dict[str, Any]:
    return {"row": row, "figure": figure, **dict(zip(METHODS, values, strict=True)), "met": met}


def table(found: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    rows = ["| trace | figure | forecast | position | limits | met |", "|---|---|---|---|---|---|"]
    for line in found:
        values = " | ".join(_shown(line[method]) for method in METHODS)
        rows.append(f"| {line['row']} | {line['figure']} | {values} | {'yes' if line['met'] else 'NO'} |")
    return "\n".join(rows) + "\n"


def write(folder: Path, found: list[dict[str, Any]], results: dict[str, Any]) -> None:
    """Write `forecast.json` and `forecast.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "forecast.json").write_text(json.dumps({"figures": found, "traces": results}, indent=2) + "\n")
    every = ", ".join(f"{name}: one in {result['every']}" for name, result in results.items())
    (folder / "forecast.md").write_text(f"Submits that were foretold: {every}.\n\n{table(found)}")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value <= 1 else f"{value:,.0f}"


def main() -> None:
    """Run the rows; exit code 1 when the forecast is not the best of the three in one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="ROW")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="foretell one in N submits only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    arguments = parser.parse_args()
    results, made = dict[str, Any](), list[dict[str, Any]]()
    for name in arguments.only or ROWS:
        results[name] = run(name, arguments.traces, arguments.every, arguments.processes)
        made += lines(name, results[name])
    write(arguments.out, made, results)
    print(table(made), end="")
    sys.exit(not all(line["met"] for line in made))


if __name__ == "__main__":
    main()
