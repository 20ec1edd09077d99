"""Replacing a version of a serving workload by another: how that can go, and its next step.

Why: two versions side by side need the hardware twice. Where that is not free, a second cluster waits for what the
first one holds, for ever, and a third one when somebody turns back.

Formulation: a version stands on whole groups; `size` groups serve in the end, `spare` more may be used meanwhile. With
`old` and `new` groups of each version, a step is one of

* start  min(step, size - new, size + spare - old - new) groups of the new version, if that is more than none;
* stop   min(step, old) groups of the old one, otherwise.

So old + new <= size + spare after every step, and without spare groups the old version shrinks first. There are never
more than two versions: to turn back is to exchange the two, and a third is not begun before one is gone. Every step
has a deadline; one that misses it is a reason to turn back, nothing stays pending.

Limits: the steps are those of groups, not of traffic: whoever carries one out moves the traffic first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from stellwerk.scheduling.book import Book
from stellwerk.scheduling.model import Reason
from stellwerk.scheduling.policy import elastic, queues
from stellwerk.scheduling.state import WorkloadState

DEADLINE = 600.0
"""Seconds that a step may take."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next thing to do: `groups` of the version are started or stopped, within `deadline` seconds."""

    act: Literal["start", "stop"]
    version: str
    groups: int
    deadline: float = DEADLINE


@dataclass(frozen=True, slots=True)
class Rollout:
    """From version `source` with `old` groups to `target` with `new`; see the module."""

    source: str
    target: str
    size: int
    old: int
    new: int = 0
    spare: int = 0
    step: int = 1

    def next(self) -> Step | None:
        """What to do now; None when the target alone stands."""
        room = min(self.step, self.size - self.new, self.size + self.spare - self.old - self.new)
        if room > 0:
            return Step("start", self.target, room)
        return Step("stop", self.source, min(self.step, self.old)) if self.old else None

    def done(self, step: Step) -> Rollout:
        """After a step was carried out."""
        if step.act == "start":
            return replace(self, new=self.new + step.groups)
        return replace(self, old=self.old - step.groups)

    def towards(self, version: str) -> Rollout:
        """The rollout to another version from here. ValueError for a third one while two of them stand."""
        if version == self.target:
            return self
        if version == self.source:
            return replace(self, source=self.target, target=self.source, old=self.new, new=self.old)
        if self.old and self.new:
            raise ValueError(f"{self.source} is being replaced by {self.target}; finish that, or turn back, first")
        source, old = (self.target, self.new) if self.new else (self.source, self.old)
        return replace(self, source=source, target=version, old=old, new=0)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to replace a version: whether it can begin now, and why not; how many groups serve at the least."""

    kind: Literal["side-by-side", "stepwise"]
    rollout: Rollout
    serving: int
    reason: Reason | None = None


def ways(book: Book, workload: WorkloadState, target: str, *, source: str = "", step: int = 1) -> tuple[Way, ...]:
    """How the version that a running workload serves can be replaced: side by side, and step by step.

    Side by side nothing stops serving, and as many groups again must be free. Step by step at most `step` groups do
    not serve at a time. ValueError for a workload that does not run.
    """
    if workload.live is None:
        raise ValueError(f"{workload.demand.name} does not run")
    size, spare = elastic.groups(workload.live), free_groups(book, workload)
    step = max(1, min(step, size))
    lacking = None if spare >= size else _lacking(workload, size, spare)
    whole = Rollout(source, target, size, size, 0, size, size)
    slow = Rollout(source, target, size, size, 0, min(spare, step), step)
    return Way("side-by-side", whole, size, lacking), Way("stepwise", slow, size if spare >= step else size - step)


def free_groups(book: Book, workload: WorkloadState) -> int:
    """Groups of a running workload that are free in its pool, within its queue's quota."""
    attempt = workload.attempts[-1]
    option, lane = workload.demand.options[attempt.option], book.lanes[attempt.grants[0].pool]
    part = option.parts[0]
    allowed = queues.available(book.account_of(workload.demand.queue), part.accelerator)
    most = lane.places.free // part.chips
    count = most if allowed is None else min(most, allowed // part.chips)
    while count > 0:
        need = lane.places.need(replace(part, count=count))
        if need is not None and lane.places.fits(need):
            return count
        count -= 1
    return 0


def _lacking(workload: WorkloadState, size: int, spare: int) -> Reason:
    attempt = workload.attempts[-1]
    part = workload.demand.options[attempt.option].parts[0]
    needed, free = size * part.chips, spare * part.chips
    message = f"needs {needed} more chips of {part.accelerator}, {free} free"
    numbers = (("pool", attempt.grants[0].pool), ("needed_chips", needed), ("free_chips", free))
    return Reason("capacity", message, numbers)
