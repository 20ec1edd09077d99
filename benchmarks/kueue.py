"""Kueue's baseline generator on this scheduler: `python -m benchmarks.kueue [--repeats N] [--json FILE]`.

Kueue's performance test of its scheduler (kubernetes-sigs/kueue, `test/performance/scheduler`, baseline): 5 cohorts
of 6 queues, each with a quota of 20 and a borrowing limit of 100; each queue is given 350 small workloads (1 unit,
200 ms, priority 50) one every 100 ms, 100 middle ones (5 units, 500 ms, priority 100) every 500 ms and 50 large ones
(20 units, 1 s, priority 200) every 1.2 s; owners reclaim within the cohort. 15,000 workloads on 600 units; nothing
but quota limits them. The work is 66 s of all units, so no schedule is shorter.

Two figures, which say different things:

* **makespan**, in virtual time: how well the scheduler fills the quotas. Each workload runs for exactly its time from
  the moment that it is granted, and events are handled at no cost of time.
* **decisions per second**, in real time: how fast it decides. A decision is one call of `Scheduler.handle` whose answer
  holds at least one command other than `WakeAt`: workloads were admitted (`StartAttempt`) or stopped for others
  (`StopAttempt`). Several commands in one answer count once, and calls that decide to do nothing do not count. The time
  is the CPU time of the whole run: all calls, those too, and the driver that plays the units. Starts a second are given
  beside it. Kueue's own figure, 42.7 admitted workloads a second (351 s), is of a whole controller with an API server
  under it, so the ratio shows how far the core is from being what limits admission, not that one program is so much
  better than the other.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measuring import write

from stellwerk.scheduling.commands import Command, StartAttempt, StopAttempt, WakeAt
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, PolicyName, Pool, Queue
from stellwerk.simulation.driver import Job, Run

HERE = Path(__file__).resolve().parent
COHORTS, QUEUES, QUOTA, BORROW = 5, 6, 20, 100
BOUND = 66.0
MOST_MAKESPAN = 1.15 * BOUND
LEAST_DECISIONS = 100 * 42.7


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload of the generator: units, seconds, priority, how many a queue is given, and how often."""

    name: str
    units: int
    seconds: float
    priority: int
    count: int
    every: float


KINDS = (
    Kind("small", 1, 0.2, 50, 350, 0.1),
    Kind("medium", 5, 0.5, 100, 100, 0.5),
    Kind("large", 20, 1.0, 200, 50, 1.2),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One run of the generator."""

    policy: str
    preempt: bool
    estimates: bool
    makespan_s: float
    workloads: int
    unfinished: int
    preemptions: int
    calls: int
    decisions: int
    cpu_s: float
    decisions_per_s: float
    admissions_per_s: float


class Count:
    """How often a scheduler was called, and how much it decided."""

    calls = decisions = admissions = stops = 0

    def __call__(self, event: Event, orders: Sequence[Command]) -> None:
        """One call, and the orders that followed."""
        self.calls += 1
        kinds = [kind for command in orders if (kind := type(command)) is not WakeAt]
        if kinds:
            self.decisions += 1
            self.admissions += kinds.count(StartAttempt)
            self.stops += kinds.count(StopAttempt)


def fleet(policy: PolicyName, preempt: bool) -> Fleet:
    """The quotas of the generator, over as many units as they own in all."""
    total = COHORTS * QUEUES * QUOTA
    queues = tuple(
        Queue(f"c{cohort}q{queue}", (("cpu", QUOTA),), borrow=BORROW, cohort=f"c{cohort}")
        for cohort in range(COHORTS)
        for queue in range(QUEUES)
    )
    return Fleet((Pool("cpu", "cpu", None, None, total, 1, 1, minimum=1),), queues, policy=policy, preempt=preempt)


def jobs(estimates: bool, share: float = 1.0) -> list[Job]:
    """All workloads, or the first `share` of each kind, in the order of their creation."""
    found: list[Job] = []
    options = {kind.name: (Option(kind.name, (Part("main", "cpu", None, kind.units),)),) for kind in KINDS}
    for queue in fleet("default", False).queues:
        for kind in KINDS:
            for number in range(round(kind.count * share)):
                key = f"{queue.name}-{kind.name}-{number}"
                runtime = kind.seconds if estimates else None
                demand = Demand(key, key, "job", options[kind.name], queue.name, kind.priority, runtime)
                found.append(Job(number * kind.every, demand, kind.seconds))
    return sorted(found, key=lambda job: job.at)


def run(policy: PolicyName, preempt: bool, estimates: bool, share: float = 1.0) -> Result:
    """One run of the generator."""
    work = jobs(estimates, share)
    count = Count()
    gc.collect()
    gc.freeze()
    before = time.process_time()
    Run(fleet(policy, preempt), work, observer=count).run()
    spent = time.process_time() - before
    return Result(
        policy,
        preempt,
        estimates,
        max((job.end for job in work if job.end is not None), default=0.0),
        len(work),
        sum(job.end is None for job in work),
        count.stops,
        count.calls,
        count.decisions,
        spent,
        count.decisions / spent,
        count.admissions / spent,
    )


def middle(results: list[Result]) -> Result:
    """The run with the median speed; all else is the same in each."""
    return sorted(results, key=lambda each: each.decisions_per_s)[len(results) // 2]


def table(results: list[Result]) -> str:
    """The results as Markdown."""
    lines = [
        "| policy | preempt | estimates | makespan (s) | over 66 s | decisions | decisions/s | starts/s | stopped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        words = ("yes" if each.preempt else "no", "yes" if each.estimates else "no")
        lines.append(
            f"| {each.policy} | {words[0]} | {words[1]} | {each.makespan_s:.1f} | {each.makespan_s / BOUND:.3f} "
            f"| {each.decisions:,} | {each.decisions_per_s:,.0f} | {each.admissions_per_s:,.0f} | {each.preemptions} |"
        )
    return "\n".join(lines)


def missed(results: list[Result]) -> list[str]:
    """What was not reached."""
    found: list[str] = []
    for each in results:
        if each.unfinished or each.makespan_s > MOST_MAKESPAN:
            found.append(f"{each.policy}: makespan {each.makespan_s:.1f} s, {each.unfinished} unfinished")
        if each.decisions_per_s < LEAST_DECISIONS:
            found.append(
                f"{each.policy}: {each.decisions_per_s:,.0f} decisions/s are fewer than {LEAST_DECISIONS:,.0f}"
            )
    return found


CASES: tuple[tuple[PolicyName, bool, bool], ...] = (
    ("default", False, True),
    ("default", False, False),
    ("default", True, True),
    ("default", True, False),
)


def main() -> int:
    """Run all cases; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "kueue.json")
    chosen = parser.parse_args()
    results = [middle([run(*case) for _ in range(chosen.repeats)]) for case in CASES]
    print(table(results))
    write(chosen.json, [asdict(each) for each in results])
    for line in missed(results):
        print(line, file=sys.stderr)
    return 1 if missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
