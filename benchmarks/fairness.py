"""Who gets what, and whether anybody is forgotten: `python -m benchmarks.fairness [--runs 10000] [--json FILE]`.

**Shares.** Three tenants with weights 1, 2 and 4 keep a fleet of 14 nodes of 8 GPUs full for ten days. Their work
differs in size and in running time, and each mix is given to each tenant in turn, without quotas, with quotas by
weight, and with quotas that all may use in full. Jain's index (1984) of share over weight, (sum x)^2 / (n * sum x^2),
is taken over days 2 to 10, of the GPU-seconds that each held. Where quotas bind nothing is larger than a quarter of its
tenant's: whose work comes in pieces as large as the quota gets what the pieces allow, whatever is fair (with 16, 32 and
64 GPUs a piece on quotas of 18, 37 and 73 the index was 0.80, since the first fills the holes that the others leave).

**No starvation.** Random small fleets, queues, priorities and policies; while some workloads wait, others keep coming
that are shorter, of higher priority, or of other queues, until they stop at some time. For every workload there is a
bound on its delay (end less submit less running time) that is worked out from the case alone, and every delay must be
within it. Let B be those who may come before it at any time, L the last submission among them, D the longest estimate
of all, s its own submission:

| policy | B: higher priority, and of equal priority | bound |
|---|---|---|
| `fifo` | the older | (L - s) + D + sum of the running times of B |
| `sjf` | the shorter | the same |
| `backfill`, `default` with one queue | the older | (L - s) + (count of B + 1) * D: each is first for at most D |
| `default` with queues by share | the older of its queue | see below |
| `sjf` with preemption | those submitted before it is old (`rules.STRETCH`) | (L - s) + running times + 60 s each |
| any, with quotas | all | the same, of all: who borrows waits for the owners |

Higher priority always comes before lower, so work of low priority waits as long as higher keeps coming and fills the
fleet: that, and shorter work under plain `sjf`, is what these policies are for, and the bound counts it through L. In
all other cases the bound does not depend on how long others keep coming. Between queues, whoever holds nothing has a
level that halves with every half-life of use, and whoever holds one chip of C has a level of 1 / (C * weight) at
least, so after F = half-life * (2 + log2(C * sum of weights / its weight)) nobody who holds anything comes before it;
each of the older of its queue, and it, wait no longer than F + (count of queues + 1) * D, and of higher priority D
each.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, PolicyName, Pool, Queue
from stellwerk.scheduling.policy import fairshare, preemption
from stellwerk.scheduling.policy.rules import old_after
from stellwerk.simulation.costs import RestartCosts
from stellwerk.simulation.driver import Job, Run
from stellwerk.simulation.world import World

HERE = Path(__file__).resolve().parent
DAY = 86_400.0
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}
FLOOR = 0.95
MIXES: dict[str, tuple[tuple[int, float], ...]] = {
    "small": ((1, 600.0), (2, 1200.0), (4, 900.0)),
    "middle": ((8, 3600.0), (4, 7200.0), (16, 1800.0)),
    "large": ((32, 10_800.0), (16, 21_600.0), (24, 7200.0)),
}
"""GPUs and median running time (s) of a tenant's kinds of work."""

ALL = dict.fromkeys(WEIGHTS, 112)
BINDING = "by weight"
QUOTAS: dict[str, dict[str, int]] = {"none": {}, BINDING: {"a": 16, "b": 32, "c": 64}, "everything": ALL}


def option(chips: int, accelerator: str = "h100") -> tuple[Option, ...]:
    """So many GPUs."""
    return (Option(f"{accelerator}:{chips}", (Part("main", accelerator, None, chips),)),)


def pool(units: int, chips: int = 8, name: str = "h100") -> Pool:
    """Nodes that are always there."""
    return Pool(name, name, None, None, chips, 1, units, minimum=units)


# Shares


@dataclass(frozen=True, slots=True)
class Shares:
    """One saturated run: `share` is of what was held by all, `index` Jain's."""

    mix: str
    quota: str
    preempt: bool
    seed: int
    share: dict[str, float]
    index: float


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def backlog(mixes: dict[str, str], limits: dict[str, int], days: float, rng: random.Random) -> list[Job]:
    """More work of every tenant than the whole fleet could do in `days`, there from the beginning."""
    jobs: list[Job] = []
    for tenant, mix in mixes.items():
        kinds, area, number = MIXES[mix], 0.0, 0
        kinds = tuple((min(chips, limits[tenant]), median) for chips, median in kinds)
        options = {chips: option(chips) for chips, _ in kinds}
        while area < 112 * days * DAY:
            chips, median = rng.choice(kinds)
            duration, number = median * rng.lognormvariate(0, 0.7), number + 1
            key = f"{tenant}{number}"
            demand = Demand(key, key, "job", options[chips], queue=tenant, runtime=duration * rng.uniform(1, 3))
            jobs.append(Job(0.0, demand, duration))
            area += chips * duration
    rng.shuffle(jobs)
    return jobs


def shares(mix: str, quota: str, preempt: bool, seed: int, days: float = 10.0) -> Shares:
    """What each tenant held from the second day on."""
    rng = random.Random(f"{mix}/{quota}/{seed}")
    names, limits = mix.split(), QUOTAS[quota]
    queues = tuple(
        Queue(name, (("h100", limits[name]),) if limits else None, weight) for name, weight in WEIGHTS.items()
    )
    fleet = Fleet((pool(14),), queues, preempt=preempt)
    most = {name: quota // 4 for name, quota in QUOTAS[BINDING].items()} if quota == BINDING else ALL
    work = backlog(dict(zip(WEIGHTS, names, strict=True)), most, days, rng)
    world = World(fleet, work, RestartCosts().of)
    world.run(until=days * DAY)
    held = dict.fromkeys(WEIGHTS, 0.0)
    for span in world.spans():
        inside = min(span.ended, days * DAY) - max(span.began, DAY)
        held[span.job.demand.queue] += span.chips * max(0.0, inside)
    total = sum(held.values())
    share = {name: value / total for name, value in held.items()}
    return Shares(mix, quota, preempt, seed, share, jain([held[name] / WEIGHTS[name] for name in WEIGHTS]))


def all_shares(seeds: Iterable[int], days: float = 10.0) -> list[Shares]:
    """Every mix for every tenant, with every kind of quota."""
    turns = ("small middle large", "middle large small", "large small middle", "large large large")
    return [
        shares(mix, quota, preempt, seed, days)
        for mix in turns
        for quota in QUOTAS
        for preempt in (False, True)
        for seed in seeds
    ]


# No starvation


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet and what is submitted to it."""

    seed: int
    fleet: Fleet
    jobs: tuple[Job, ...]

    @property
    def label(self) -> str:
        """The policy, in words."""
        words = f"{self.fleet.policy}{' --preempt' if self.fleet.preempt else ''}"
        if not self.fleet.queues:
            return words
        return f"{words}, {'quotas' if any(queue.quota for queue in self.fleet.queues) else 'queues'}"


@dataclass(frozen=True, slots=True)
class Delay:
    """A workload's delay and its bound (s)."""

    seed: int
    label: str
    workload: str
    delay: float
    bound: float

    @property
    def ratio(self) -> float:
        """How much of the bound the delay is."""
        return self.delay / self.bound


POLICIES: tuple[tuple[PolicyName, bool], ...] = (
    ("fifo", False),
    ("sjf", False),
    ("sjf", True),
    ("sjf", True),
    ("backfill", False),
    ("default", False),
    ("default", False),
    ("default", True),
)


def random_case(seed: int) -> Case:
    """A small fleet, some workloads, and a stream of others that come before them as often as they can."""
    rng = random.Random(seed)
    policy, preempt = rng.choice(POLICIES)
    pools = [pool(rng.randint(1, 5), rng.choice([2, 4, 8]))]
    if rng.random() < 0.3:
        pools.append(pool(rng.randint(1, 3), 4, "a100"))
    queues = random_queues(rng, pools) if policy == "default" else ()
    fleet = Fleet(tuple(pools), queues, policy=policy, preempt=preempt)
    scale = rng.choice([10.0, 1000.0, 20_000.0])
    jobs = [random_job(rng, f"w{number}", fleet, scale, stream=False) for number in range(rng.randint(2, 8))]
    every = scale * rng.choice([0.05, 0.2, 0.5])
    priority = rng.choice([0, 0, 100])
    for number in range(rng.randint(10, 50)):
        jobs.append(random_job(rng, f"s{number}", fleet, scale, stream=True, at=number * every, priority=priority))
    jobs.sort(key=lambda job: job.at)
    return Case(seed, fleet, tuple(jobs))


def random_queues(rng: random.Random, pools: Sequence[Pool]) -> tuple[Queue, ...]:
    """No queues, queues by share, or queues with quotas that lend each other."""
    kind = rng.choice(["none", "share", "quota"])
    if kind == "none":
        return ()
    total = {each.accelerator: each.chips * each.maximum for each in pools}
    quota = tuple((name, -(-chips // 2)) for name, chips in total.items()) if kind == "quota" else None
    return tuple(Queue(name, quota, rng.choice([1.0, 2.0, 4.0])) for name in "abc"[: rng.randint(2, 3)])


def random_job(
    rng: random.Random,
    key: str,
    fleet: Fleet,
    scale: float,
    *,
    stream: bool,
    at: float | None = None,
    priority: int = 0,
) -> Job:
    """A workload; one of the stream is small, short and perhaps of higher priority."""
    chosen = rng.choice(fleet.pools)
    most = chosen.chips * chosen.maximum
    chips = rng.randint(1, most)
    if chips > chosen.chips and rng.random() < 0.7:
        chips -= chips % chosen.chips
    if stream:
        chips = rng.randint(1, max(1, chosen.chips if rng.random() < 0.7 else most // 2))
    options = option(chips, chosen.accelerator)
    if len(fleet.pools) == 2 and not stream and rng.random() < 0.3:
        others = (Part("learner", "h100", None, fleet.pools[0].chips), Part("actor", "a100", None, rng.randint(1, 4)))
        options = (Option("roles", others),)
    duration = scale * (rng.uniform(0.05, 0.5) if stream else rng.uniform(0.2, 3.0))
    queue = rng.choice(fleet.queues).name if fleet.queues else "default"
    own = priority if stream else rng.choice([0, 0, 0, -100])
    demand = Demand(key, key, "job", options, queue, own, runtime=duration * rng.choice([1.0, 1.0, rng.uniform(1, 5)]))
    return Job(rng.uniform(0, scale) if at is None else at, demand, duration)


def estimate(job: Job) -> float:
    """The estimate (s); without one the running time."""
    return job.demand.runtime or job.duration


def before(case: Case, one: Job, other: Job) -> bool:
    """Whether `other` may ever come before `one`; see the module."""
    fleet, mine, theirs = case.fleet, one.demand, other.demand
    if other is one:
        return False
    if any(queue.quota for queue in fleet.queues) or theirs.priority > mine.priority:
        return True
    if theirs.priority < mine.priority:
        return False
    if fleet.policy == "sjf":
        if not fleet.preempt:
            return (estimate(other), other.at) <= (estimate(one), one.at)
        return other.at <= one.at + old_after(mine)
    return other.at <= one.at and (not fleet.queues or theirs.queue == mine.queue)


def bound(case: Case, one: Job) -> float:
    """The most that `one` may be delayed (s); see the module."""
    fleet, ahead = case.fleet, [other for other in case.jobs if before(case, one, other)]
    longest = max(estimate(job) for job in case.jobs)
    late = max(0.0, max((other.at for other in ahead), default=0.0) - one.at)
    if fleet.policy == "sjf" and fleet.preempt:
        return late + sum(other.duration for other in ahead) + preemption.PAUSE * (len(ahead) + 1)
    if fleet.policy in ("fifo", "sjf"):
        return late + longest + sum(other.duration for other in ahead)
    if not fleet.queues or any(queue.quota for queue in fleet.queues):
        return late + (len(ahead) + 1) * longest
    higher = sum(1 for other in ahead if other.demand.priority > one.demand.priority)
    chips = sum(each.chips * each.maximum for each in fleet.pools)
    weight = next(queue.weight for queue in fleet.queues if queue.name == one.demand.queue)
    weights = sum(queue.weight for queue in fleet.queues)
    forgotten = fairshare.HALF_LIFE * (2 + math.log2(chips * weights / weight))
    own = len(ahead) - higher
    return late + higher * longest + (own + 1) * (forgotten + (len(fleet.queues) + 1) * longest)


def delays(case: Case, validate: bool = False) -> list[Delay]:
    """Every workload's delay in one case; one that never ends has an infinite delay."""
    run = Run(case.fleet, case.jobs, scheduler=Scheduler(explained=0, forget=True, validate=validate))
    run.run(until=case.jobs[-1].at + 2 * len(case.jobs) * max(map(estimate, case.jobs)) + 400 * DAY)
    return [
        Delay(
            case.seed,
            case.label,
            job.demand.key,
            math.inf if job.end is None else job.end - job.at - job.duration,
            bound(case, job),
        )
        for job in case.jobs
    ]


# Report


def tables(found: Sequence[Shares], worst: Sequence[Delay], counts: dict[str, int]) -> str:
    """Both tables as Markdown."""
    lines = [
        "| tenants' work (1, 2, 4) | quota | preempt | share over weight | Jain's index (least) |",
        "|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((each.mix, each.quota, each.preempt) for each in found):
        mine = min((each for each in found if (each.mix, each.quota, each.preempt) == key), key=lambda each: each.index)
        ratio = " ".join(f"{7 * mine.share[name] / WEIGHTS[name]:.3f}" for name in WEIGHTS)
        lines.append(f"| {mine.mix} | {mine.quota} | {'yes' if mine.preempt else 'no'} | {ratio} | {mine.index:.4f} |")
    lines += [
        "",
        "| policy | workloads | nearest to its bound | seed | workload | delay (s) | bound (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in worst:
        lines.append(
            f"| {each.label} | {counts[each.label]:,} | {each.ratio:.3f} | {each.seed} | {each.workload} "
            f"| {each.delay:,.0f} | {each.bound:,.0f} |"
        )
    return "\n".join(lines)


def starvation(seeds: Iterable[int]) -> tuple[list[Delay], dict[str, int], list[Delay]]:
    """The workloads nearest to their bounds by policy, how many there were of each, and those beyond."""
    nearest, counts, beyond = dict[str, Delay](), dict[str, int](), list[Delay]()
    for seed in seeds:
        for each in delays(random_case(seed)):
            counts[each.label] = counts.get(each.label, 0) + 1
            if each.label not in nearest or each.ratio > nearest[each.label].ratio:
                nearest[each.label] = each
            if each.delay > each.bound:
                beyond.append(each)
    return [nearest[label] for label in sorted(nearest)], counts, beyond


def main() -> int:
    """Run both parts; 1 when an index is too low or a delay is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="random runs of the second part")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each case of the first part")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "fairness.json")
    chosen = parser.parse_args()
    found = all_shares(range(chosen.seeds))
    worst, counts, beyond = starvation(range(chosen.runs))
    print(tables(found, worst, counts))
    low = [each for each in found if each.index < FLOOR]
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "shares": [asdict(each) for each in found],
        "runs": chosen.runs,
        "nearest": [asdict(each) for each in worst],
    }
    chosen.json.write_text(json.dumps({**result, "beyond": [asdict(each) for each in beyond]}, indent=1) + "\n")
    for each in low:
        print(f"Jain's index {each.index:.4f} is below {FLOOR}: {each}", file=sys.stderr)
    for each in beyond[:20]:
        print(f"beyond its bound: {each}", file=sys.stderr)
    return 1 if low or beyond else 0


if __name__ == "__main__":
    sys.exit(main())
