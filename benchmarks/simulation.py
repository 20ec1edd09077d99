"""Replays of public traces: `python -m benchmarks.simulation --traces DIR [--only ROW] [--json FILE]`.

`DIR` holds `philly20k.csv` and `philly_ge4.csv`: jobs of the Philly trace (Microsoft, 2017) with the columns
`job_id,submit_time,num_gpu,duration,user,vc`. The first are its 20,000 jobs from October 2017 on, for 80 nodes of 8
GPUs; the second all jobs of 4 GPUs and more, for 32 nodes, at an offered load of 0.95.

Every row runs in a process of its own, so that its memory is its own and no row warms another. Speed is workloads over
the CPU time of the replay alone, without reading the trace; where there is a goal for it, the median of some runs. As
machines differ, and one machine from minute to minute, it is also told against a bare loop in the same process: FIFO in
a dozen lines of Python that count free chips and nothing else. Beside a figure stand the limit that no scheduler can
beat, where there is one, and the goal.
"""

from __future__ import annotations

import argparse
import heapq
import json
import operator
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import alone, interpreter, peak_mib

from stellwerk.scheduling.model import PolicyName
from stellwerk.simulation.outcome import Outcome
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.submissions import Estimates
from stellwerk.simulation.traces import read
from stellwerk.simulation.traces.model import Job
from stellwerk.simulation.world import World
from stellwerk.spec import load_fleet

UNITS = {"philly20k": 80, "philly_ge4": 32}


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of a row by its path in the summary, and what it is to be."""

    figure: str
    path: str
    sign: str = ""
    goal: float | None = None
    limit: str | None = None

    def met(self, value: float) -> bool | None:
        """Whether the goal is met; None without one."""
        signs: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}
        return None if self.goal is None else signs[self.sign](value, self.goal)


@dataclass(frozen=True, slots=True)
class Row:
    """One replay and what is looked at."""

    trace: str
    policy: PolicyName
    goals: tuple[Goal, ...]
    preempt: bool = False
    estimates: str = "exact"


COMPLETION = "mean completion (s)"
LARGE = "mean wait over 8 GPUs (s)"
LONGEST = Goal("longest delay (s)", "delay_s.max")
BUSY = Goal("utilization", "utilization", limit="limits.utilization")
AGAINST_BARE = Goal("speed over a bare loop's", "speed_over_bare")
MEMORY = Goal("memory (MB)", "memory_mb", "<=", 200)


def completion(sign: str = "", goal: float | None = None) -> Goal:
    """The mean completion with its limit."""
    return Goal(COMPLETION, "completion_s.mean", sign, goal, "limits.completion_s")


def speed(goal: float | None = None) -> Goal:
    """Workloads simulated in a second."""
    return Goal("workloads/s", "speed", ">=", goal)


FIFO_COMPLETION = 1_980_933.0
"""Mean completion that independent simulators agree on for FIFO on philly_ge4."""

ROWS: dict[str, Row] = {
    "ge4-fifo": Row(
        "philly_ge4",
        "fifo",
        (
            completion("<=", FIFO_COMPLETION * 1.003),
            Goal(COMPLETION, "completion_s.mean", ">=", FIFO_COMPLETION * 0.997),
            Goal(LARGE, "large.wait_s.mean"),
            Goal("mean delay over 8 GPUs (s)", "large.delay_s.mean"),
            LONGEST,
            BUSY,
            speed(),
        ),
    ),
    "ge4-sjf": Row("philly_ge4", "sjf", (completion(), Goal(LARGE, "large.wait_s.mean"), LONGEST, BUSY, speed())),
    "ge4-backfill": Row(
        "philly_ge4", "backfill", (completion(), Goal(LARGE, "large.wait_s.mean"), LONGEST, BUSY, speed())
    ),
    "ge4-default": Row(
        "philly_ge4",
        "default",
        (
            Goal("utilization", "utilization", ">=", 0.8379, "limits.utilization"),
            Goal(LARGE, "large.wait_s.mean", "<=", 1_652_411),
            completion(),
            LONGEST,
            speed(),
        ),
    ),
    "ge4-sjf-preempt": Row(
        "philly_ge4",
        "sjf",
        (
            completion("<=", 290_000),
            Goal("mean delay over 8 GPUs (s)", "large.delay_s.mean", "<=", 700_000),
            LONGEST,
            Goal("preemptions", "preemptions"),
            speed(),
        ),
        preempt=True,
    ),
    "ge4-sjf-preempt-estimates": Row(
        "philly_ge4", "sjf", (completion("<=", 400_000), LONGEST, speed()), preempt=True, estimates="1-5"
    ),
    "20k-fifo": Row("philly20k", "fifo", (speed(100_000), AGAINST_BARE, MEMORY, completion(), BUSY)),
    "20k-sjf": Row("philly20k", "sjf", (speed(), MEMORY, completion(), BUSY)),
    "20k-backfill": Row("philly20k", "backfill", (speed(), MEMORY, completion(), BUSY)),
    "20k-default": Row("philly20k", "default", (speed(20_000), AGAINST_BARE, MEMORY, completion(), BUSY)),
}


class Clock:
    """CPU seconds of a replay alone."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __enter__(self) -> None:
        self.began = time.process_time()

    def __exit__(self, *_: object) -> None:
        Clock.took = time.process_time() - self.began

    took = 0.0


def bare(jobs: Sequence[Job], chips: int) -> float:
    """CPU seconds of a FIFO replay that knows one number of free chips, and neither nodes nor records."""
    began = time.process_time()
    line, ends, position = deque[Job](), list[tuple[float, int]](), 0
    while position < len(jobs) or ends:
        if ends and (position == len(jobs) or ends[0][0] <= jobs[position].submit):
            now, back = heapq.heappop(ends)
            chips += back
        else:
            now = jobs[position].submit
            line.append(jobs[position])
            position += 1
        while line and line[0].chips <= chips:
            job = line.popleft()
            chips -= job.chips
            heapq.heappush(ends, (now + job.duration, job.chips))
    return time.process_time() - began


def run(row: Row, folder: Path) -> dict[str, Any]:
    """The summary of one row, with its speed and its memory."""
    pool = {"name": "philly", "accelerator": "p100", "chips": 8, "units": UNITS[row.trace]}
    fleet = load_fleet({"accelerators": {"p100": {"memory": "16GiB", "price": 1.46}}, "pools": [pool]})
    trace = read(str(folder / f"{row.trace}.csv"), "p100", ["p100"])
    settings = Settings(row.policy, row.preempt, Estimates.parse(row.estimates))
    outcome: Outcome = replay(fleet, trace, settings, watch=Clock)
    took, memory = Clock.took, peak_mib()
    over_bare = bare(trace.jobs, 8 * UNITS[row.trace]) / took
    more = {"cpu_s": took, "speed": len(outcome.jobs) / took, "speed_over_bare": over_bare, "memory_mb": memory}
    return {**outcome.summary(), **more}


def look_up(summary: dict[str, Any], path: str) -> float:
    """A figure by its path."""
    value: Any = summary
    for key in path.split("."):
        value = value[key]
    return float(value)


def figures(name: str, row: Row, summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of one row in the table."""
    lines = list[dict[str, Any]]()
    for goal in row.goals:
        value = look_up(summary, goal.path)
        wanted = f"{goal.sign} {goal.goal:,.7g}" if goal.goal is not None else ""
        limit = look_up(summary, goal.limit) if goal.limit else None
        lines.append(
            {"row": name, "figure": goal.figure, "value": value, "limit": limit, "goal": wanted, "met": goal.met(value)}
        )
    return lines


def separate(name: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Run one row in processes of its own; its speed is the median of `repeats` where there is a goal for it."""
    aimed = any(goal.path == "speed" and goal.goal is not None for goal in ROWS[name].goals)
    count = repeats if aimed else 1
    found = [alone("benchmarks.simulation", "--traces", str(folder), "--one", name) for _ in range(count)]
    speeds = [each["speed"] for each in found]
    over_bare = statistics.median(each["speed_over_bare"] for each in found)
    return found[0] | {"speed": statistics.median(speeds), "speeds": speeds, "speed_over_bare": over_bare}


def show(lines: list[dict[str, Any]]) -> None:
    """The table as Markdown."""
    print("| row | figure | value | limit | goal | met |\n|---|---|---|---|---|---|")
    for line in lines:
        value, limit = (
            "" if number is None else f"{number:,.4f}" if abs(number) < 10 else f"{number:,.0f}"
            for number in (line["value"], line["limit"])
        )
        met = {None: "", True: "yes", False: "NO"}[line["met"]]
        print(f"| {line['row']} | {line['figure']} | {value} | {limit} | {line['goal']} | {met} |", flush=True)


def main() -> None:
    """Run the rows; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="ROW")
    parser.add_argument("--one", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="times that a speed with a goal is taken")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(ROWS[arguments.one], arguments.traces)))
        return
    lines, summaries = list[dict[str, Any]](), dict[str, Any]()
    for name in arguments.only or ROWS:
        summaries[name] = separate(name, arguments.traces, arguments.repeats)
        lines += figures(name, ROWS[name], summaries[name])
    show(lines)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"on": interpreter(), "figures": lines, "replays": summaries}, indent=2) + "\n"
        )
    sys.exit(any(line["met"] is False for line in lines))


if __name__ == "__main__":
    main()
