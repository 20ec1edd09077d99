"""From a trace to submissions on a fleet: which hardware, queue and estimate every workload gets.

* A job that names no hardware runs on the trace's accelerator: the fleet's only one, unless said. On TPUs its chips
  become whole slices of the first pool of that accelerator.
* A queue of the trace, or else its user, is a queue where the fleet declares one of that name; all others are
  in `default`.
* The estimate is the duration (`exact`), what the user asked for (`user`; unknown where the trace does not say),
or the
  duration times a factor that is drawn evenly from a range.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from stellwerk.scheduling.declared import part_of
from stellwerk.scheduling.model import Demand, Fleet, Option, Part, Pool, Queue
from stellwerk.simulation.driver import Job
from stellwerk.simulation.traces.model import Job as Row
from stellwerk.simulation.traces.model import Trace

DEFAULT = "default"
_RANGE = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Estimates:
    """What users say of their durations: `exact`, `user`, or a range of factors by which they overestimate."""

    kind: str = "exact"
    low: float = 1.0
    high: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Estimates:
        """Read `exact`, `user` or `A-B`; raises `ValueError` with what is allowed."""
        if text in ("exact", "user"):
            return cls(text)
        match = _RANGE.fullmatch(text.strip())
        if match is None or not 0 < float(match[1]) <= float(match[2]) <= 1e6:
            raise ValueError(f"{text!r} are no estimates; allowed: exact, user, or a range of factors as in 1-5")
        return cls("range", float(match[1]), float(match[2]))

    def __str__(self) -> str:
        """As it is written."""
        return self.kind if self.kind != "range" else f"{self.low:g}-{self.high:g}"

    def of(self, seed: int) -> Callable[[Row], float | None]:
        """The estimate (s) of each job, drawn in their order."""
        if self.kind == "user":
            return lambda job: job.estimate
        if self.kind == "exact":
            return lambda job: job.duration
        draw, low, span = random.Random(seed).random, self.low, self.high - self.low
        return lambda job: job.duration * (low + span * draw())


def accelerators(pools: Iterable[Pool]) -> list[str]:
    """The accelerators of a fleet, each once, in order."""
    return list(dict.fromkeys(pool.accelerator for pool in pools))


def with_default_queue(fleet: Fleet, trace: Trace) -> Fleet:
    """The fleet with a queue `default` when it declares queues, not that one, and the trace has work of none of
    them."""
    names = {queue.name for queue in fleet.queues}
    if not names or DEFAULT in names:
        return fleet
    lost = any(job.queue not in names and job.user not in names for job in trace.jobs)
    return replace(fleet, queues=(*fleet.queues, Queue(DEFAULT))) if lost else fleet


def submissions(
    trace: Trace, fleet: Fleet, estimates: Estimates, seed: int = 0, own: frozenset[str] = frozenset()
) -> list[Job]:
    """The trace's jobs as the simulation submits them, in order. `own` are accelerators that only the fleet declares.

    Raises `ValueError` when a job names no hardware and the fleet has several accelerators.
    """
    queues = {queue.name for queue in fleet.queues}
    estimate, options = estimates.of(seed), _Options(fleet.pools, own)
    made = list[Job]()
    for job in trace.jobs:
        queue = job.queue if job.queue in queues else job.user if job.user in queues else DEFAULT
        demand = Demand(
            key=job.name,
            name=job.name,
            kind="job",
            options=options.of(job),
            queue=queue,
            priority=job.priority,
            runtime=estimate(job),
            user=job.user,
        )
        made.append(Job(job.submit, demand, job.duration))
    return made


class _Options:
    """Options by what a job asks for; equal ones are one object, which is what makes waiting classes cheap."""

    def __init__(self, pools: Iterable[Pool], own: frozenset[str]) -> None:
        self.pools, self.own = tuple(pools), own
        self._known: dict[tuple[str | None, str | None, int], tuple[Option, ...]] = {}

    def of(self, job: Row) -> tuple[Option, ...]:
        """The options of a job."""
        key = (job.option, job.accelerator, job.chips)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (self._made(*key),)
        return found

    def _made(self, text: str | None, accelerator: str | None, chips: int) -> Option:
        if text is not None:
            from stellwerk.spec.request import parse_option

            parsed = parse_option(text, extra_accelerators=self.own)
            return Option(parsed.short, (part_of(parsed),))
        accelerator = accelerator or self._only()
        pool = next((pool for pool in self.pools if pool.accelerator == accelerator and pool.topology), None)
        if pool is None:
            return Option(f"{accelerator}:{chips}", (Part("main", accelerator, None, chips),))
        slices = math.ceil(chips / pool.chips)
        short = f"{accelerator}:{pool.unit_topology}" + (f"*{slices}" if slices > 1 else "")
        return Option(short, (Part("main", accelerator, pool.unit_topology, pool.chips, slices),))

    def _only(self) -> str:
        names = accelerators(self.pools)
        if len(names) != 1:
            raise ValueError(f"the trace names no hardware, and the fleet has {', '.join(names)}")
        return names[0]
