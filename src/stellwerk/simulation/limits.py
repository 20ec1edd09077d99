"""What no scheduler can beat: bounds that are printed beside every result.

Jobs j = 1..n have a submit r_j, a duration d_j and chips c_j; the fleet has N chips; the area of a job is a_j
= c_j d_j. Every bound is the optimum of a *relaxation*: a problem in which everything a real schedule does is
allowed, and more. Shapes, nodes, quotas, restart costs and failures only take away from real schedules, so
the bounds hold with them too.

**Mean completion** (`completion_s`, completion counted from submit). The larger of two:

* squashed area: one machine of speed N that works on one job at a time, of a_j / N seconds each, and may be
  interrupted. Any schedule can be imitated on it: do in every instant what the real one does, in turns that
  are short enough. No job completes later. On one machine with release dates, shortest remaining processing
  time first (SRPT) minimises the sum of completions (Schrage 1968), so its mean is a lower bound.
* unlimited chips: every job completes d_j after its submit; the mean of d_j.

`joint_completion_s` is sharper. SRPT has completed, at *every* time, as many jobs as any rule can; hence its
k-th completion is no later than the k-th of any schedule, and the same is true of unlimited chips. So the
k-th completion is at least the larger of the two k-th ones, and the sum over k is a bound that is never below
either.

**Utilization** of the arrival window [0, T], T the last submit (`utilization`, upper bound). Let chips be
divisible and jobs interruptible and moulded downwards: job j may be worked on at any rate from 0 to c_j, all
rates together at most N. Most work by T is done by the fluid rule "longest remaining first": chips go to the
jobs with the longest remaining durations, each at its full rate; jobs whose remaining durations have become
equal share what is left and stay equal. Why: let F(t, s) = sum of c_j max(0, x_j(t) - s) over released jobs
with remaining durations x_j, the work above level s. Any rule obeys F(t+u, s) >= F(t, s+u) (levels fall at
rate 1 at most) and F(t+u, s) >= F(t, s) - N u (there are N chips), and a release adds the same to both. The
fluid rule attains, for every s at once, the slower of the two: while at least N chips' worth of jobs lie
above s they all work above s, and else all that lies above s falls at rate 1. So its F is the least there is
for all t and s; F(T, 0) is the work left over at T, and what is not left over was done.

**Makespan** from the first submit (`makespan_s`): max(sum of a_j / N, max of r_j + d_j).
`staggered_makespan_s` is sharper: what is submitted at r or later is worked on after r, so max over r of r +
sum over {r_j >= r} of a_j / N is a bound too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from math import fsum, inf

from stellwerk.simulation.traces.model import Job


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one trace on a number of chips: at most this utilization, at least these seconds."""

    utilization: float
    completion_s: float
    makespan_s: float
    joint_completion_s: float
    staggered_makespan_s: float


def limits(jobs: Iterable[Job], chips: int) -> Limits:
    """All bounds for these jobs on `chips` chips. Raises `ValueError` without chips or jobs."""
    ordered = _ordered(jobs, chips)
    squashed, unlimited, joint = _completions(ordered, chips)
    return Limits(
        utilization=utilization_limit(ordered, chips),
        completion_s=max(squashed, unlimited),
        makespan_s=_makespan(ordered, chips),
        joint_completion_s=joint,
        staggered_makespan_s=_staggered_makespan(ordered, chips),
    )


def utilization_limit(jobs: Iterable[Job], chips: int, until: float | None = None) -> float:
    """The greatest possible busy share of `chips` from 0 to `until`, the last submit unless said.

    When everything is submitted at once there is no window; then it is the share that could be busy at once.
    """
    ordered = _ordered(jobs, chips)
    end = ordered[-1].submit if until is None else until
    if end <= 0:
        return min(1.0, sum(job.chips for job in ordered if job.submit <= end) / chips)
    fluid = _Fluid(chips)
    for job in ordered:
        if job.submit >= end:
            break
        fluid.advance(job.submit)
        fluid.add(job.duration, job.chips)
    fluid.advance(end)
    return min(1.0, fluid.work / (chips * end))


def _ordered(jobs: Iterable[Job], chips: int) -> Sequence[Job]:
    ordered = sorted(jobs, key=lambda job: job.submit)
    if not ordered or chips < 1:
        raise ValueError("limits are about at least one job and one chip")
    return ordered


def _completions(jobs: Sequence[Job], chips: int) -> tuple[float, float, float]:
    """Mean completion by the squashed area, with unlimited chips, and by both jointly."""
    submits = fsum(job.submit for job in jobs)
    squashed = _srpt(jobs, chips)
    unlimited = sorted(job.submit + job.duration for job in jobs)
    sums = fsum(squashed), fsum(unlimited), fsum(map(max, squashed, unlimited))
    a, b, c = ((total - submits) / len(jobs) for total in sums)
    return a, b, c


def _srpt(jobs: Sequence[Job], chips: int) -> list[float]:
    """Completion times, ascending, of shortest remaining first on one machine of the whole fleet's speed."""
    remaining: list[float] = []
    done: list[float] = []
    now = 0.0
    for job in jobs:
        now = _work_until(job.submit, now, remaining, done)
        heappush(remaining, job.chips * job.duration / chips)
    _work_until(inf, now, remaining, done)
    return done


def _work_until(end: float, now: float, remaining: list[float], done: list[float]) -> float:
    while remaining:
        finish = now + remaining[0]
        if finish > end:
            heapreplace(remaining, finish - end)
            return end
        heappop(remaining)
        done.append(finish)
        now = finish
    return end


def _makespan(jobs: Sequence[Job], chips: int) -> float:
    area = fsum(job.chips * job.duration for job in jobs) / chips
    return max(area, *(job.submit + job.duration for job in jobs))


def _staggered_makespan(jobs: Sequence[Job], chips: int) -> float:
    areas = accumulate(job.chips * job.duration / chips for job in reversed(jobs))
    last = max(job.submit + area for job, area in zip(reversed(jobs), areas, strict=True))
    return max(last, _makespan(jobs, chips))


class _Fluid:
    """Longest remaining first, as a fluid.

    Jobs lie at levels, their remaining durations. The highest fall at rate 1 (`falling`, by the time at which
    they would reach 0); the one group at `level` shares the chips left over; lower ones stand still
    (`standing`). A step ends when the lowest falling job meets the group, or the group meets the highest
    standing one, or 0. Jobs that met stay one.
    """

    def __init__(self, chips: int) -> None:
        """An empty fleet of `chips` chips at time 0."""
        self.chips = chips
        self.now = 0.0
        self.work = 0.0
        self.falling: list[tuple[float, int]] = []
        self.falling_chips = 0
        self.level: float = 0.0
        self.group_chips = 0
        self.standing: list[tuple[float, int]] = []

    def add(self, duration: float, chips: int) -> None:
        """Submit a job now."""
        if duration <= 0 or chips <= 0:
            return
        if self.group_chips and duration <= self.level:
            heappush(self.standing, (-duration, chips))
            return
        heappush(self.falling, (self.now + duration, chips))
        self.falling_chips += chips
        while self.falling_chips > self.chips:
            self._stand()
            end, lowest = heappop(self.falling)
            self.falling_chips -= lowest
            self.level, self.group_chips = end - self.now, lowest
        self._let_fall()

    def advance(self, to: float) -> None:
        """Work until `to`."""
        while self.now < to and (self.falling or self.group_chips):
            self._step(to)
        self.now = max(self.now, to)

    def _step(self, to: float) -> None:
        spare = self.chips - self.falling_chips
        rate = min(1.0, spare / self.group_chips) if self.group_chips else 0.0
        met = (self.falling[0][0] - self.now - self.level) / (1 - rate) if self.falling and rate < 1 else inf
        floor = -self.standing[0][0] if self.standing else 0.0
        meets = (self.level - floor) / rate if rate else inf
        span = max(0.0, min(to - self.now, met, meets))
        self.work += span * (self.falling_chips + rate * self.group_chips)
        self.now = to if span == to - self.now else self.now + span
        self.level -= rate * span
        if span == met:
            self._meet_falling()
        elif span == meets:
            self._meet_standing()

    def _meet_falling(self) -> None:
        end, chips = heappop(self.falling)
        self.falling_chips -= chips
        if self.group_chips:
            self.group_chips += chips
        self.level = max(0.0, end - self.now) if self.group_chips else 0.0
        self._let_fall()

    def _meet_standing(self) -> None:
        if self.standing:
            level, chips = heappop(self.standing)
            self.level = -level
            self.group_chips += chips
        else:
            self.level, self.group_chips = 0.0, 0
        self._let_fall()

    def _stand(self) -> None:
        if self.group_chips:
            heappush(self.standing, (-self.level, self.group_chips))
            self.group_chips = 0

    def _let_fall(self) -> None:
        """Give the group full rate when there are chips for all of it, then the next; else one group shares."""
        while True:
            if not self.group_chips:
                if not self.standing:
                    return
                level, self.group_chips = heappop(self.standing)
                self.level = -level
            if self.falling_chips + self.group_chips > self.chips:
                return
            heappush(self.falling, (self.now + self.level, self.group_chips))
            self.falling_chips += self.group_chips
            self.group_chips = 0
