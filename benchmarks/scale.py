"""One decision on a large fleet: `python -m benchmarks.scale [--waiting N ...] [--json FILE]`.

10,000 nodes of 8 chips in 100 pools (one accelerator each), 1,000 queues in 20 cohorts with weights 1 to 3, the
default policy (fair share, backfill, reasons on demand). The fleet is filled, and work is submitted until N workloads
wait: 1 to 32 chips of one of the accelerators, exponential running times with a mean of an hour, estimates 1 to 3
times as long. Then ends of what runs and submissions follow each other in turn, and the time of each call of
`Scheduler.handle` is taken: what it costs to fold the event in, to decide, and to say what is to be done. `--quotas`
gives every queue a quota on every accelerator.

Every N runs in a process of its own, so that its memory is its own. Growth is told against the logarithm: the ratio
of the medians from the least N to the most, beside log(most) / log(least), and drawn into `scale.svg`.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from pathlib import Path

from benchmarks.measuring import alone, peak_mib, write

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling.commands import Command, ProvisionUnit, StartAttempt
from stellwerk.scheduling.events import AttemptEnded, Event, FleetChanged, Submitted, UnitAppeared
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, Pool, Queue
from stellwerk.simulation.report import svg

HERE = Path(__file__).resolve().parent
POOLS, UNITS, QUEUES, COHORTS, CHIPS = 100, 100, 1000, 20, 8
WAITING = (1_000, 3_000, 10_000, 30_000, 100_000)
SIZES = (1, 1, 2, 4, 8, 8, 16, 32)
MOST_MEDIAN_MS, MOST_P99_MS, MOST_MB = 1.0, 20.0, 1536.0


@dataclass(frozen=True, slots=True)
class Result:
    """What events cost while so many wait."""

    waiting: int
    quotas: bool
    events: int
    median_ms: float
    mean_ms: float
    p90_ms: float
    p99_ms: float
    most_ms: float
    started: int
    submitted_per_s: float
    memory_mb: float


class Site:
    """The fleet, its scheduler, and what runs on it."""

    def __init__(self, quotas: bool, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(explained=0, forget=True)
        self.now = 0.0
        self.number = self.started = 0
        self.durations: dict[str, float] = {}
        self.ends: list[tuple[float, str, int]] = []
        self.options = {
            (kind, size): (Option(f"a{kind}:{size}", (Part("main", f"a{kind}", None, size),)),)
            for kind in range(POOLS)
            for size in set(SIZES)
        }
        for command in self.scheduler.handle(FleetChanged(0.0, fleet(quotas))):
            if isinstance(command, ProvisionUnit):
                self.scheduler.handle(UnitAppeared(0.0, command.pool, command.unit, command.incarnation))

    def submission(self) -> Event:
        """The next workload."""
        rng, self.number = self.rng, self.number + 1
        key, duration = str(self.number), rng.expovariate(1 / 3600)
        self.durations[key] = duration
        options = self.options[rng.randrange(POOLS), rng.choice(SIZES)]
        queue = f"q{rng.randrange(QUEUES)}"
        return Submitted(self.now, Demand(key, key, "job", options, queue, runtime=duration * rng.uniform(1, 3)))

    def end(self) -> Event:
        """The next end of what runs."""
        self.now, key, attempt = heappop(self.ends)
        return AttemptEnded(self.now, key, attempt, "succeeded")

    def obey(self, commands: Sequence[Command]) -> None:
        """What was started ends after its time."""
        for command in commands:
            if isinstance(command, StartAttempt):
                self.started += 1
                until = self.now + self.durations.pop(command.workload)
                heappush(self.ends, (until, command.workload, command.attempt))

    def fill(self, waiting: int) -> None:
        """Submit until so many wait."""
        while len(self.scheduler.book.waiting) < waiting:
            self.now += 0.01
            self.obey(self.scheduler.handle(self.submission()))

    def measure(self, events: int) -> list[float]:
        """Milliseconds that each of so many events took."""
        took: list[float] = []
        for number in range(events):
            event = self.submission() if number % 2 else self.end()
            before = time.perf_counter_ns()
            commands = self.scheduler.handle(event)
            took.append((time.perf_counter_ns() - before) / 1e6)
            self.obey(commands)
        return took


def fleet(quotas: bool) -> Fleet:
    """The pools and the queues."""
    quota = tuple((f"a{kind}", max(8, UNITS * CHIPS * 4 // QUEUES)) for kind in range(POOLS)) if quotas else None
    each = QUEUES // COHORTS
    return Fleet(
        tuple(Pool(f"p{kind}", f"a{kind}", None, None, CHIPS, 1, UNITS, minimum=UNITS) for kind in range(POOLS)),
        tuple(Queue(f"q{number}", quota, 1.0 + number % 3, cohort=f"c{number // each}") for number in range(QUEUES)),
    )


def run(waiting: int, quotas: bool, events: int, seed: int = 1) -> Result:
    """One N."""
    site = Site(quotas, seed)
    before = time.process_time()
    site.fill(waiting)
    filled = time.process_time() - before
    gc.collect()
    gc.freeze()
    site.started = 0
    took = sorted(site.measure(events))
    return Result(
        waiting=waiting,
        quotas=quotas,
        events=events,
        median_ms=took[events // 2],
        mean_ms=sum(took) / events,
        p90_ms=took[events * 9 // 10],
        p99_ms=took[events * 99 // 100],
        most_ms=took[-1],
        started=site.started,
        submitted_per_s=site.number / filled,
        memory_mb=peak_mib(),
    )


def separate(waiting: int, quotas: bool, events: int) -> Result:
    """One N in a process of its own."""
    how = ["--quotas"] if quotas else []
    return Result(**alone("benchmarks.scale", "--one", str(waiting), "--events", str(events), *how))


def table(results: Sequence[Result]) -> str:
    """The results as Markdown."""
    lines = [
        "| waiting | median (ms) | mean | p90 | p99 | most | submissions/s while filling | memory (MB) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        times = " | ".join(
            f"{value:.3f}" for value in (each.median_ms, each.mean_ms, each.p90_ms, each.p99_ms, each.most_ms)
        )
        lines.append(f"| {each.waiting:,} | {times} | {each.submitted_per_s:,.0f} | {each.memory_mb:,.0f} |")
    return "\n".join(lines)


def growth(results: Sequence[Result]) -> tuple[float, float]:
    """By how much the median grows from the least N to the most, and by how much the logarithm does."""
    least, most = results[0], results[-1]
    return most.median_ms / least.median_ms, math.log(most.waiting) / math.log(least.waiting)


def plot(results: Sequence[Result]) -> str:
    """Median and p99 over N on a logarithmic axis, where growth with log n is a straight line (dashed)."""
    drawn = svg.Plot("One event's decision: 10,000 units, 1,000 queues", "workloads waiting (log scale)", "ms")
    top = max(each.p99_ms for each in results) * 1.1
    x, y = drawn.x(results[0].waiting, results[-1].waiting, log=True), drawn.y(0.0, top)
    drawn.x_ticks(x, [(each.waiting, f"{each.waiting:,}") for each in results])
    drawn.y_ticks(y, [(value, f"{value:g}") for value in svg.steps(top)])
    first = results[0].median_ms / math.log(results[0].waiting)
    logs = [(x(each.waiting), y(first * math.log(each.waiting))) for each in results]
    drawn.line([(x(each.waiting), y(each.p99_ms)) for each in results], svg.COLOURS[1], name="p99")
    drawn.line([(x(each.waiting), y(each.median_ms)) for each in results], svg.COLOURS[0], name="median")
    drawn.line(logs, svg.COLOURS[7], dash="4 3", name="log n")
    return drawn.render()


def missed(results: Sequence[Result]) -> list[str]:
    """What was not reached."""
    last, (grown, logarithm) = results[-1], growth(results)
    goals = [
        (last.median_ms, MOST_MEDIAN_MS, "median (ms)"),
        (last.p99_ms, MOST_P99_MS, "p99 (ms)"),
        (last.memory_mb, MOST_MB, "memory (MB)"),
        (grown, logarithm, "growth of the median against that of the logarithm"),
    ]
    return [f"{words}: {value:.3f} is above {most:.3f}" for value, most, words in goals if value > most]


def main() -> int:
    """Run every N; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, nargs="+", default=list(WAITING), metavar="N")
    parser.add_argument("--events", type=int, default=4000)
    parser.add_argument("--quotas", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "scale.json")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(asdict(run(chosen.one, chosen.quotas, chosen.events))))
        return 0
    results = [separate(waiting, chosen.quotas, chosen.events) for waiting in sorted(chosen.waiting)]
    print(table(results))
    grown, logarithm = growth(results)
    print(f"\nThe median grows by {grown:.2f}, log n by {logarithm:.2f}.")
    write(chosen.json, [asdict(each) for each in results])
    chosen.json.with_suffix(".svg").write_text(plot(results) + "\n")
    for line in missed(results):
        print(line, file=sys.stderr)
    return 1 if missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
