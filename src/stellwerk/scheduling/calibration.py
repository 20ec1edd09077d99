"""Bounds of forecasts, by how earlier ones turned out.

Drawn futures do not know all that may happen, so their ninth tenth is often too early. What is known is how far off
earlier forecasts were. The score of one is the logarithm of (wait + c) over (p50 + c), with c of a minute, so that
errors count in proportion but not below a minute. The bound of a new forecast is its p50 times what `GOAL` of the
scores of similar ones stay under (split conformal prediction: Vovk et al., 2005), similar being the `NEAR` whose p50 is
the nearest. What people submit changes, so a margin on the scores follows: a start after its bound raises it, one
before it lowers it, until `GOAL` of them come in time (quantile tracking: Angelopoulos et al., 2023).

That presumes errors that do not depend on each other, and those of work submitted together do: a thousand jobs of one
user are all shorter than expected, or none. So what was said within one `SPELL` of waits of one size (by powers of two)
counts as one forecast, the worst of them, and the n-th start of a spell moves the margin by a n-th.

Limits: a forecast is judged when its workload starts, so what waits for long is learnt from late. While fewer than
`LEAST` are judged the bound is `UNSURE` times the p50. A bound is never earlier than that of the drawn futures.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import exp, frexp, log

GOAL = 0.9
MOST = 512
NEAR = 64
LEAST = 12
UNSURE = 2.0
SPELL = 3600.0

RATE = 0.02
MARGIN = (-0.5, 1.0)
"""How far the first start of a spell moves the margin, and its limits."""

ROUND = 60.0
"""Seconds below which errors do not count in proportion."""

_Key = tuple[int, int]
_Entry = tuple[float, float, _Key]


class Calibration:
    """A running record of what was said and what came."""

    def __init__(self) -> None:
        self._known: dict[_Key, _Entry] = {}
        self._starts: dict[_Key, int] = {}
        self._by_size: list[_Entry] = []
        self._margin = 0.0

    @property
    def ready(self) -> bool:
        """Whether enough forecasts were judged to say more than the drawn futures do."""
        return len(self._known) >= LEAST

    def copy(self) -> Calibration:
        """A record of its own with the same content."""
        made = Calibration()
        made._known, made._by_size, made._margin = dict(self._known), list(self._by_size), self._margin
        made._starts = dict(self._starts)
        return made

    def note(self, at: float, said: float, bound: float, came: float) -> None:
        """At `at` a wait was said to be `said`, and at most `bound`; it was `came` (s)."""
        size = _size(said)
        key = int(at // SPELL), frexp(max(0.0, said) + ROUND)[1]
        before, entry = self._known.get(key), (size, _size(came) - size, key)
        self._starts[key] = count = self._starts.get(key, 0) + 1
        step = RATE / count * (GOAL if came > bound else GOAL - 1.0)
        self._margin = min(MARGIN[1], max(MARGIN[0], self._margin + step))
        if before is not None:
            if before[1] >= entry[1]:
                return
            self._forget(key)
        self._known[key] = entry
        insort(self._by_size, entry)
        if len(self._known) > MOST:
            oldest = next(iter(self._known))
            self._forget(oldest)
            del self._starts[oldest]

    def bound(self, p50: float, p90: float) -> float:
        """A wait (s) in which nine tenths of such workloads start, for one that was drawn to wait p50 and p90."""
        if not self.ready:
            return max(p90, UNSURE * p50)
        scores = sorted(score for _, score, _ in self._near(_size(p50)))
        place = min(len(scores) - 1, int(GOAL * (len(scores) + 1)))
        return max(p50, p90, exp(_size(p50) + scores[place] + self._margin) - ROUND)

    def _near(self, size: float) -> list[_Entry]:
        """The forecasts whose size is the nearest."""
        known = self._by_size
        high = low = bisect_left(known, (size,))
        while high - low < NEAR and (low > 0 or high < len(known)):
            below = size - known[low - 1][0] if low > 0 else float("inf")
            above = known[high][0] - size if high < len(known) else float("inf")
            low, high = (low - 1, high) if below <= above else (low, high + 1)
        return known[low:high]

    def _forget(self, key: _Key) -> None:
        del self._by_size[bisect_left(self._by_size, self._known.pop(key))]


def _size(seconds: float) -> float:
    return log(max(0.0, seconds) + ROUND)
