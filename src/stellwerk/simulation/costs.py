"""What an interruption costs: the restart, the time that saving takes, and the work since the last checkpoint.

An attempt is a span of seconds. A first attempt works from its first second; one that resumes spends the
restart cost before that. Work goes in stretches of `every` seconds, each followed by `cost` seconds of saving
(not after the last). An attempt that is cut off keeps the stretches whose saving was complete; one that is
asked to stop first, with a notice of at least `cost`, keeps all the work it had done when it was told.
Without checkpoints (`every` None) only such a notice keeps anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, sqrt


@dataclass(frozen=True, slots=True)
class RestartCosts:
    """Seconds that a resumed attempt takes before it works again, by its chips.

    `steps` are (up to this many chips, seconds), ascending; above the last it is `more`. The defaults are
    figures that simulation studies of GPU clusters charge: 7 s for one chip, 30 s up to one 8-GPU node, 60 s
    beyond.
    """

    steps: tuple[tuple[int, float], ...] = ((1, 7.0), (8, 30.0))
    more: float = 60.0

    def of(self, chips: int) -> float:
        """The cost (s) for this many chips."""
        return next((seconds for most, seconds in self.steps if chips <= most), self.more)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A checkpoint after every `every` seconds of work, taking `cost` seconds; `every` None: none but on notice."""

    every: float | None = None
    cost: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would never get on."""
        if (self.every is not None and self.every <= 0) or self.cost < 0:
            raise ValueError("checkpoints are a positive time apart and cost no negative time")

    def span(self, work: float) -> float:
        """Seconds that `work` seconds of work take with the checkpoints in between."""
        stretches = ceil(work / self.every) - 1 if self.every is not None else 0
        return work + max(0, stretches) * self.cost

    def done(self, span: float) -> float:
        """Seconds of work done in the first `span` seconds of working and saving."""
        if self.every is None:
            return max(0.0, span)
        whole, rest = divmod(max(0.0, span), self.every + self.cost)
        return whole * self.every + min(rest, self.every)

    def saved(self, span: float) -> float:
        """Seconds of work that survive an end without notice after `span` seconds."""
        return 0.0 if self.every is None else max(0.0, span) // (self.every + self.cost) * self.every


@dataclass(frozen=True, slots=True)
class Costs:
    """All costs of interruption together."""

    restart: RestartCosts = field(default_factory=RestartCosts)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def overhead(self, chips: int, resumed: bool) -> float:
        """Seconds before an attempt works."""
        return self.restart.of(chips) if resumed else 0.0

    def span(self, work: float, chips: int, resumed: bool) -> float:
        """Seconds from the start of an attempt until `work` seconds of work are done."""
        return self.overhead(chips, resumed) + self.checkpoints.span(work)

    def kept(self, elapsed: float, chips: int, resumed: bool, notice: float = 0.0) -> float:
        """Seconds of work that an attempt ended after `elapsed` seconds leaves to the next one.

        `notice` is how long before its end it was told.
        """
        working = elapsed - self.overhead(chips, resumed)
        saved = self.checkpoints.saved(working)
        if notice <= 0 or notice < self.checkpoints.cost:
            return saved
        return max(saved, self.checkpoints.done(working - notice))


def best_interval(mtbf: float, cost: float) -> float:
    """Young's first-order optimum (1974) of the time between checkpoints: sqrt(2 * cost * mtbf), in seconds.

    `mtbf` is the mean time between failures of the whole allocation: that of one host divided by the hosts.
    """
    return sqrt(2 * cost * mtbf)
