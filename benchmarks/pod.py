"""How full a pod of 64 cubes gets, by placement rule: `python -m benchmarks.pod [--jobs N] [--json FILE]`.

A pod of 4x4x4 cubes with wrap-around on every axis and a queue that is always full: 50 jobs wait at any time, of
1, 2, 4, 8, 16 or 32 cubes with weights 40, 20, 15, 12, 8, 5, running for log-normal times (sigma 1.5, in units of
the median). First come, first served stops at the first job that does not fit; backfill passes over it to any of
the 50. No job is promised a time, so the figures show placement alone. Utilization is busy cube-time over all
cube-time, without the first tenth of the jobs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

from stellwerk.scheduling.placement.grid import Grid, Sides
from stellwerk.scheduling.placement.pods import Pod
from stellwerk.scheduling.placement.torus import table

SHAPES: tuple[Sides, ...] = ((1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 4), (2, 4, 4))
WEIGHTS = (40, 20, 15, 12, 8, 5)
WINDOW = 50
SIGMA = 1.5
SEEDS = range(5)
TORUS = Grid((4, 4, 4), (True, True, True))
POLICIES = ("fcfs", "backfill")
RULES: dict[str, Callable[[], Pod]] = {
    "any free cubes (optical switching)": lambda: Pod(TORUS, switched=True, shapes=SHAPES),
    "static torus, first fit": lambda: Pod(TORUS, rule="first", shapes=SHAPES),
    "static torus, snug": lambda: Pod(TORUS, rule="snug", shapes=SHAPES),
}
FLOORS = {
    ("any free cubes (optical switching)", "backfill"): 0.966,
    ("static torus, snug", "backfill"): 0.874,
}


@dataclass(slots=True)
class Run:
    """One simulation."""

    rule: str
    policy: str
    seed: int
    utilization: float
    fragmentation: float
    decisions: int
    microseconds_a_decision: float


class Simulation:
    """A pod, a full queue, and a clock that jumps from one end of a job to the next."""

    def __init__(self, pod: Pod, *, backfill: bool, seed: int) -> None:
        self.pod, self.backfill = pod, backfill
        self.random = random.Random(seed)
        self.queue = [self.draw() for _ in range(WINDOW)]
        self.running: list[tuple[float, int, int]] = []
        self.now = self.area = self.elapsed = self.scattered = self.spent = 0.0
        self.started = self.decisions = 0

    def draw(self) -> tuple[Sides, float]:
        """The next job: shape and running time."""
        shape = self.random.choices(SHAPES, WEIGHTS)[0]
        return shape, self.random.lognormvariate(0, SIGMA)

    def start(self) -> None:
        """Everything that fits, in queue order; each job that starts is followed by a new one at the end."""
        position, refused = 0, set[Sides]()
        while position < len(self.queue):
            shape, duration = self.queue[position]
            if shape not in refused and self.place(shape, duration):
                self.queue.pop(position)
                self.queue.append(self.draw())
                continue
            if not self.backfill:
                return
            refused.add(shape)
            position += 1

    def place(self, shape: Sides, duration: float) -> bool:
        """Start a job if it fits."""
        before = time.process_time()
        place = self.pod.fit(shape)
        self.spent += time.process_time() - before
        self.decisions += 1
        if place is None:
            return False
        self.pod.take(place.mask)
        self.started += 1
        heapq.heappush(self.running, (self.now + duration, self.started, place.mask))
        return True

    def advance(self, *, counted: bool) -> None:
        """To the next end of a job."""
        until, _, mask = heapq.heappop(self.running)
        if counted:
            self.area += self.pod.held.bit_count() * (until - self.now)
            self.scattered += self.pod.fragmentation() * (until - self.now)
            self.elapsed += until - self.now
        self.now = until
        self.pod.give(mask)


def simulate(rule: str, policy: str, seed: int, jobs: int) -> Run:
    """One run until `jobs` jobs have started."""
    simulation = Simulation(RULES[rule](), backfill=policy == "backfill", seed=seed)
    while simulation.started < jobs:
        simulation.start()
        simulation.advance(counted=simulation.started >= jobs / 10)
    elapsed = simulation.elapsed
    return Run(
        rule,
        policy,
        seed,
        simulation.area / elapsed / TORUS.points,
        simulation.scattered / elapsed,
        simulation.decisions,
        simulation.spent / simulation.decisions * 1e6,
    )


def table_of(runs: list[Run]) -> str:
    """Mean and spread over the seeds, as Markdown."""
    lines = [
        "| rule | policy | utilization | standard error | fragmentation | us a decision |",
        "|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        for policy in POLICIES:
            mine = [run for run in runs if (run.rule, run.policy) == (rule, policy)]
            used = [run.utilization for run in mine]
            error = stdev(used) / len(used) ** 0.5 if len(used) > 1 else 0.0
            scattered, cost = mean(run.fragmentation for run in mine), mean(run.microseconds_a_decision for run in mine)
            lines.append(f"| {rule} | {policy} | {mean(used):.3f} | {error:.3f} | {scattered:.2f} | {cost:.0f} |")
    return "\n".join(lines)


def missed(runs: list[Run]) -> list[str]:
    """The floors that were not reached."""
    found: list[str] = []
    for (rule, policy), floor in FLOORS.items():
        reached = mean(run.utilization for run in runs if (run.rule, run.policy) == (rule, policy))
        if round(reached, 3) < floor:
            found.append(f"{rule}, {policy}: {reached:.3f} is below {floor}")
    return found


def main() -> int:
    """Run all rules, print the table, write the JSON; 1 if a floor was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=12_000, help="jobs started in each run")
    parser.add_argument("--json", type=Path, help="where to write all runs")
    chosen = parser.parse_args()
    for shape in SHAPES:
        table(TORUS, shape)
    runs = [simulate(rule, policy, seed, chosen.jobs) for rule in RULES for policy in POLICIES for seed in SEEDS]
    print(table_of(runs))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    for line in missed(runs):
        print(line, file=sys.stderr)
    return 1 if missed(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
