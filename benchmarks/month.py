"""A month of a large fleet in virtual time: `python -m benchmarks.month [--workloads N] [--policy P ...]`.

100,000 chips in three pools of nodes of 8, 20 queues with weights 1 to 3, and a million workloads in 30 days: 1 to 64
chips of one of the accelerators, exponential running times that load the fleet to nine tenths, estimates 1 to 3 times
as long. The time is the CPU time of the replay alone: all that the scheduler and the virtual world do. Every policy
runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measuring import alone, peak_mib, write

from stellwerk.scheduling.model import Demand, Fleet, Option, Part, PolicyName, Pool, Queue
from stellwerk.simulation.driver import Job, Run

HERE = Path(__file__).resolve().parent
MONTH, LOAD, CHIPS, QUEUES = 30 * 86_400.0, 0.9, 8, 20
NODES = {"h100": 5000, "a100": 4000, "l40s": 3500}
SIZES = (1, 1, 1, 2, 4, 8, 8, 16, 32, 64)
POLICIES: tuple[PolicyName, ...] = ("default", "fifo")
MOST_S = 180.0


@dataclass(frozen=True, slots=True)
class Result:
    """One replay; `mean_wait_s` and `busy` (share of all chip-seconds of the month) say that it was no idle fleet."""

    policy: str
    chips: int
    workloads: int
    unfinished: int
    mean_wait_s: float
    busy: float
    cpu_s: float
    workloads_per_s: float
    memory_mb: float


def fleet(policy: PolicyName) -> Fleet:
    """The pools and the queues."""
    pools = tuple(Pool(name, name, None, None, CHIPS, 1, count, minimum=count) for name, count in NODES.items())
    return Fleet(pools, tuple(Queue(f"q{n}", weight=1 + n % 3) for n in range(QUEUES)), policy=policy)


def jobs(count: int, seed: int = 1) -> list[Job]:
    """A month's demand in the order of submission."""
    rng = random.Random(seed)
    options = {
        (name, size): (Option(f"{name}:{size}", (Part("main", name, None, size),)),) for name in NODES for size in SIZES
    }
    chips = sum(NODES.values()) * CHIPS
    mean = chips * MONTH * LOAD / (count * sum(SIZES) / len(SIZES))
    names, weights = list(NODES), list(NODES.values())
    made, at = list[Job](), 0.0
    for number in range(count):
        at += rng.expovariate(count / MONTH)
        asked = options[rng.choices(names, weights)[0], rng.choice(SIZES)]
        took, queue, key = rng.expovariate(1 / mean), f"q{rng.randrange(QUEUES)}", str(number)
        made.append(Job(at, Demand(key, key, "job", asked, queue, runtime=took * rng.uniform(1, 3)), took))
    return made


def run(policy: PolicyName, count: int) -> Result:
    """Replay the month under one policy."""
    demand = jobs(count)
    world = Run(fleet(policy), demand)
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.process_time()
    world.run()
    took = time.process_time() - began
    chips = sum(NODES.values()) * CHIPS
    used = sum(job.duration * job.demand.options[0].chips for job in demand if job.end is not None)
    return Result(
        policy,
        chips,
        count,
        sum(job.end is None for job in demand),
        sum((job.start if job.start is not None else MONTH) - job.at for job in demand) / count,
        used / (chips * max(job.end or 0.0 for job in demand)),
        took,
        count / took,
        peak_mib(),
    )


def separate(policy: str, count: int) -> Result:
    """`run` in a process of its own."""
    return Result(**alone("benchmarks.month", "--one", policy, "--workloads", str(count)))


def table(results: Sequence[Result]) -> str:
    """The results as Markdown."""
    lines = [
        "| policy | workloads | CPU (s) | workloads/s | mean wait (s) | busy | MB |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.policy} | {each.workloads:,} | {each.cpu_s:.0f} | {each.workloads_per_s:,.0f} "
        f"| {each.mean_wait_s:,.0f} | {each.busy:.3f} | {each.memory_mb:,.0f} |"
        for each in results
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the policies; 1 when one takes longer than three minutes, or leaves work unfinished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=1_000_000)
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "month.json")
    chosen = parser.parse_args()
    if chosen.one is not None:
        print(json.dumps(asdict(run(chosen.one, chosen.workloads))))
        return 0
    results = [separate(policy, chosen.workloads) for policy in chosen.policy]
    print(table(results))
    write(chosen.json, [asdict(each) for each in results])
    return int(any(each.cpu_s > MOST_S or each.unfinished for each in results))


if __name__ == "__main__":
    sys.exit(main())
