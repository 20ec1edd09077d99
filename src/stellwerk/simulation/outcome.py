"""What came of a replay, in figures.

Every figure is worked out from the history that the world keeps: when each workload was submitted, started and ended,
which chips each attempt held, and what every unit was. Percentiles are interpolated between order statistics.

`utilization` is the busy share of the arrival window [0, T], T the last submit: chip-seconds that attempts held, but
for the time that restarts took, over all chips at the fleet's maximum. When everything is submitted at once it is the
share that is busy at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from stellwerk.scheduling.model import Pool
from stellwerk.simulation.driver import Job
from stellwerk.simulation.forecast_figures import figures, judged
from stellwerk.simulation.forecasting import Told
from stellwerk.simulation.limits import Limits
from stellwerk.simulation.saving import best_every
from stellwerk.simulation.world import Span, UnitSpan

if TYPE_CHECKING:
    from stellwerk.simulation.failures import Failures

USES: tuple[str, ...] = ("busy", "starting", "idle", "broken", "provisioning")
_CHARGED: tuple[str, ...] = ("busy", "starting", "idle", "broken")
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Labels:
    """What was replayed, as it is shown beside the figures."""

    policy: str
    fleet: str
    trace: str
    estimates: str
    preempt: bool
    failures: str | None
    seed: int

    @property
    def title(self) -> str:
        """The run in a few words."""
        return self.policy + (" --preempt" if self.preempt else "")


@dataclass
class Outcome:
    """One replay: its jobs with their times, all attempts, all units, and what the simulation itself took."""

    labels: Labels
    pools: tuple[Pool, ...]
    jobs: Sequence[Job]
    spans: Sequence[Span]
    units: Sequence[UnitSpan]
    limits: Limits | None
    preemptions: int
    wall_s: float
    ended: float
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    forecasts: Sequence[Told] | None = None
    failures: Failures | None = None

    @property
    def window(self) -> float:
        """The last submit (s)."""
        return self.jobs[-1].at if self.jobs else 0.0

    @cached_property
    def chips(self) -> int:
        """All chips when every pool is at its maximum."""
        return sum(pool.chips * pool.maximum for pool in self.pools)

    @cached_property
    def done(self) -> list[Job]:
        """Jobs that ended, in the order of their submits."""
        return [job for job in self.jobs if job.end is not None and job.start is not None]

    @property
    def waits(self) -> list[float]:
        """Seconds from submit to first start, of all that started."""
        return [job.start - job.at for job in self.jobs if job.start is not None]

    @property
    def completions(self) -> list[float]:
        """Seconds from submit to end, of all that ended."""
        return [job.end - job.at for job in self.done if job.end is not None]

    @cached_property
    def utilization(self) -> float:
        """The busy share of the arrival window."""
        window, busy = self.window, 0.0
        if not self.chips:
            return 0.0
        if window <= 0:
            return sum(span.chips for span in self.spans if span.began <= 0 < span.ended) / self.chips
        for span in self.spans:
            begins = span.began + span.overhead
            if begins < window:
                busy += span.chips * (min(span.ended, window) - begins)
        return busy / (window * self.chips)

    @cached_property
    def uses(self) -> dict[str, dict[str, float]]:
        """Unit-seconds of every pool by use."""
        sums = {pool.name: dict.fromkeys(USES, 0.0) for pool in self.pools}
        size = {pool.name: pool.chips for pool in self.pools}
        for unit in self.units:
            began, ended = min(unit.began, self.ended), min(unit.ended, self.ended)
            sums[unit.pool]["idle" if unit.phase == "up" else unit.phase] += ended - began
        for span in self.spans:
            for grant in span.grants:
                share, into = grant.chips / size[grant.pool], sums[grant.pool]
                into["busy"] += share * (span.ended - span.began - span.overhead)
                into["starting"] += share * span.overhead
                into["idle"] -= share * (span.ended - span.began)
        for into in sums.values():
            into["idle"] = max(0.0, into["idle"])
        return sums

    def cost_of(self, pool: Pool) -> dict[str, float] | None:
        """US dollars of a pool by use; None when its price is unknown and it was used."""
        uses = self.uses[pool.name]
        if pool.price is None:
            return None if any(uses[use] for use in _CHARGED) else dict.fromkeys(_CHARGED, 0.0)
        return {use: uses[use] / HOUR * pool.chips * pool.price for use in _CHARGED}

    @property
    def cost(self) -> float | None:
        """US dollars for all units from the first submit to the last end; None when a price is unknown."""
        costs = [self.cost_of(pool) for pool in self.pools]
        return None if None in costs else math.fsum(sum(cost.values()) for cost in costs if cost is not None)

    def summary(self) -> dict[str, Any]:
        """All figures, as `--json` prints them."""
        last = max((job.end for job in self.done if job.end is not None), default=None)
        limits = self.limits
        return {
            **{name: getattr(self.labels, name) for name in ("policy", "fleet", "trace", "estimates", "preempt")},
            "failures": self.labels.failures,
            "seed": self.labels.seed,
            "workloads": len(self.jobs),
            "finished": len(self.done),
            "utilization": self.utilization,
            "makespan_s": last,
            "wait_s": distribution(self.waits),
            "completion_s": distribution(self.completions),
            "delay_s": distribution(map(delay, self.done)),
            "large": self._large(),
            "preemptions": self.preemptions,
            "attempts": len(self.spans),
            "failed": dict(self.failed),
            "cost": self.cost,
            "pools": [self._pool(pool) for pool in self.pools],
            "wall_s": self.wall_s,
            "workloads_per_s": len(self.jobs) / self.wall_s if self.wall_s else None,
            "limits": {
                "utilization": limits.utilization if limits else None,
                "completion_s": limits.completion_s if limits else None,
                "makespan_s": limits.makespan_s if limits else None,
                "joint_completion_s": limits.joint_completion_s if limits else None,
                "staggered_makespan_s": limits.staggered_makespan_s if limits else None,
            },
            **({} if self.checkpoints is None else {"checkpoints": self.checkpoints}),
            **({} if self.foretold is None else {"forecast": self.foretold}),
        }

    @cached_property
    def checkpoints(self) -> dict[str, float | None] | None:
        """Seconds between checkpoints as declared, and as they would lose least; None where nothing breaks."""
        if self.failures is None:
            return None
        return {
            "every_s": self.failures.checkpoints.every,
            "best_s": best_every(self.spans, self.pools, self.failures),
        }

    @cached_property
    def foretold(self) -> dict[str, Any] | None:
        """How good the forecasts were (`stellwerk.simulation.forecast_figures`); None without any."""
        if self.forecasts is None:
            return None
        starts = {job.demand.key: job.start for job in self.jobs if job.start is not None}
        return figures(judged(self.forecasts, starts))

    def _large(self) -> dict[str, Any]:
        """Waits and delays of what takes more than one unit."""
        most = max((pool.chips for pool in self.pools), default=0)
        jobs = [job for job in self.jobs if job.demand.options[0].chips > most]
        started = [job.start - job.at for job in jobs if job.start is not None]
        return {
            "chips_over": most,
            "workloads": len(jobs),
            "wait_s": distribution(started),
            "delay_s": distribution(delay(job) for job in jobs if job.end is not None),
        }

    def _pool(self, pool: Pool) -> dict[str, Any]:
        cost = self.cost_of(pool)
        return {
            "name": pool.name,
            "accelerator": pool.accelerator,
            "units": pool.maximum,
            "chips": pool.chips * pool.maximum,
            **{f"{use}_s": seconds for use, seconds in self.uses[pool.name].items()},
            "cost": None if cost is None else sum(cost.values()),
        }


def delay(job: Job) -> float:
    """Seconds from submit to end that were not its work: waiting, restarting, and work done twice."""
    return max(0.0, (job.end or 0.0) - job.at - job.duration)


def distribution(values: Iterable[float]) -> dict[str, float | None]:
    """Mean, percentiles and maximum; all None without values."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    return {
        "mean": math.fsum(ordered) / len(ordered),
        **{f"p{share}": quantile(ordered, share / 100) for share in (50, 90, 99)},
        "max": ordered[-1],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of ascending values, linear between neighbours."""
    place = share * (len(ordered) - 1)
    low = int(place)
    if place == low or ordered[low] == ordered[low + 1]:  # also where values, or all above them, are infinite
        return ordered[low]
    return ordered[low] + (ordered[low + 1] - ordered[low]) * (place - low)


def busy_share(outcome: Outcome, bins: int = 400) -> list[tuple[float, float]]:
    """(time, share of all chips that is busy), averaged over `bins` equal spans from 0 to the last end."""
    end = outcome.ended
    if end <= 0 or not outcome.chips:
        return []
    width, held = end / bins, [0.0] * (bins + 1)
    changes = sorted(change for span in outcome.spans for change in _changes(span))
    busy, area = 0, held
    for (at, chips), (until, _) in pairwise([*changes, (end, 0)]):
        busy += chips
        _spread(area, at, min(until, end), busy, width)
    return [(index * width, held[index] / (width * outcome.chips)) for index in range(bins)]


def _changes(span: Span) -> tuple[tuple[float, int], tuple[float, int]]:
    chips = span.chips
    return (span.began + span.overhead, chips), (span.ended, -chips)


def _spread(bins: list[float], at: float, until: float, height: float, width: float) -> None:
    """Add a rectangle to the bins that it covers."""
    if not height:
        return
    while at < until:
        index = min(int(at / width), len(bins) - 1)
        edge = (index + 1) * width
        if edge <= at:  # rounding at the edge of a bin
            index, edge = index + 1, edge + width
        to = min(until, edge) if index < len(bins) - 1 else until
        bins[min(index, len(bins) - 1)] += height * (to - at)
        at = to
