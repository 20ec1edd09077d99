"""A trace: jobs in the order of their submission, in one form whatever file they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Tags = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Job:
    """One workload of a trace.

    Times are seconds; `submit` counts from the trace's first submit. `duration` is how long it really ran,
    `estimate` what its user asked for, `wait` what it waited where the trace was recorded; None is unknown.
    `chips` are GPUs, processors or TPU chips. `option` is hardware in its short form; without it the job
    wants `chips` of `accelerator`, or of whatever the fleet has when that is None too.
    """

    name: str
    user: str
    queue: str
    submit: float
    duration: float
    chips: int
    estimate: float | None = None
    priority: int = 0
    option: str | None = None
    accelerator: str | None = None
    wait: float | None = None
    tags: Tags = ()


@dataclass(frozen=True)
class Trace:
    """Jobs by submit time; `left_out` says how many rows were no job that can be replayed, and why."""

    name: str
    jobs: tuple[Job, ...]
    format: str = "generated"
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def window(self) -> float:
        """Seconds from the first submit to the last: the arrival window."""
        return self.jobs[-1].submit if self.jobs else 0.0

    @property
    def chip_seconds(self) -> float:
        """The work of all jobs: the sum of chips times duration."""
        return sum(job.chips * job.duration for job in self.jobs)


def make_trace(
    name: str,
    jobs: Iterable[Job],
    format: str = "generated",
    left_out: Mapping[str, int] | None = None,
    accelerator: str | None = None,
) -> Trace:
    """A trace of jobs in any order: sorted by submit (ties as given), from 0 on, with distinct names.

    `accelerator` is what jobs run on that name no hardware themselves.
    """
    ordered = sorted(jobs, key=lambda job: job.submit)
    first = ordered[0].submit if ordered else 0.0
    for job in ordered if first else ():
        job.submit -= first
    for job in ordered if accelerator else ():
        if job.option is None and job.accelerator is None:
            job.accelerator = accelerator
    _tell_apart(ordered)
    return Trace(name, tuple(ordered), format, MappingProxyType({k: n for k, n in (left_out or {}).items() if n}))


def _tell_apart(jobs: list[Job]) -> None:
    """Number the later jobs of one name: `a`, `a#2`, `a#3`."""
    taken = {job.name for job in jobs}
    if len(taken) == len(jobs):
        return
    seen = Counter[str]()
    for job in jobs:
        name = job.name
        seen[name] += 1
        while seen[name] > 1 and job.name in taken:
            job.name = f"{name}#{seen[name]}"
            seen[name] += job.name in taken
        taken.add(job.name)
