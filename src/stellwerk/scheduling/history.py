"""What ended workloads took, and what is submitted: all that a forecast knows of the past.

A duration is drawn as the user's estimate times a ratio (duration over estimate) that such estimates turned out to
have, or, without an estimate, as a duration that such work had. Of several groups of ended workloads the most
particular one counts in which enough are left: same user and name; same user, kind, chips and estimate; same user,
kind and size of the estimate, by powers of two, as the largest estimates are the most exaggerated; same user and kind;
same user; same kind; all. Of work that runs already only what it has not outlived is drawn. What people
ask for changes within days, so a group remembers only the latest. While nothing is known an estimate is believed.

Both parts are folds over events: the same log gives the same history. `copy` is cheap, as what is kept is replaced
and never changed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from math import frexp
from typing import TYPE_CHECKING, Any

from stellwerk.scheduling.arrivals import Arrivals
from stellwerk.scheduling.policy.rules import estimate

if TYPE_CHECKING:
    from stellwerk.scheduling.model import Demand

ENOUGH = 8
"""Ended workloads that must be left in a group for it to be drawn from."""

MOST_KEPT = 128
"""Ended workloads that a group remembers, the latest."""

MOST_GROUPS = 8192
"""Groups that are remembered, those that ended workloads belonged to last."""

SHORTEST = 60.0
"""Seconds for which work that has outlived all that is known is expected to go on, at least."""

INF = float("inf")
Group = tuple[str | float, ...]


class _Latest:
    """The latest values of a group; replaced, never changed."""

    __slots__ = ("_ordered", "values")

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values = values
        self._ordered: tuple[float, ...] | None = None

    def ordered(self) -> tuple[float, ...]:
        """The values, ascending."""
        if self._ordered is None:
            self._ordered = tuple(sorted(self.values))
        return self._ordered


_Kept = dict[Group, _Latest]


class History:
    """Durations by groups from the particular to the general, and `arrivals`, the latest submissions."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self._ratios: _Kept = {}
        self._durations: _Kept = {}

    def copy(self) -> History:
        """A history of its own with the same content."""
        made = History()
        made.arrivals = self.arrivals.copy()
        made._ratios, made._durations = dict(self._ratios), dict(self._durations)
        return made

    def dump(self) -> str:
        """All that is known, as one line: equal for all that have learnt the same."""
        return json.dumps([_plain(self._ratios), _plain(self._durations), self.arrivals.plain()])

    def load(self, text: str) -> None:
        """Become what `dump` wrote. ValueError, KeyError or TypeError when it is not that; nothing changes then."""
        ratios, durations, arrivals = json.loads(text)
        made = _made(ratios), _made(durations), Arrivals.of_plain(arrivals)
        self._ratios, self._durations, self.arrivals = made

    def learn(self, demand: Demand, option: int, duration: float) -> None:
        """Note that a workload succeeded after running for `duration` seconds in all."""
        said = estimate(demand, option)
        for group in _groups(demand, said):
            _keep(self._durations, group, duration)
            if said < INF:
                _keep(self._ratios, group, duration / max(1.0, said))

    def knows(self, demand: Demand, option: int) -> bool:
        """Whether enough of such work has ended to draw from."""
        said = estimate(demand, option)
        known = self._ratios if said < INF else self._durations
        return bool(_longer(known, _groups(demand, said), 0.0)[0])

    def draw(self, demand: Demand, option: int, ran: float, place: float) -> float | None:
        """A whole duration (s) of at least `ran`; None when nothing is known.

        `place` in [0, 1) is where it lies among all that are possible, from the shortest on.
        """
        said = estimate(demand, option)
        known, unit = (self._ratios, max(1.0, said)) if said < INF else (self._durations, 1.0)
        values, first = _longer(known, _groups(demand, said), ran / unit)
        if first < len(values):
            return unit * values[first + int(place * (len(values) - first))]
        if values:
            return _outlived(ran, said, place)
        if said == INF:
            return None
        return said if ran < said else _outlived(ran, said, place)


def _longer(known: _Kept, groups: Iterable[Group], ran: float) -> tuple[tuple[float, ...], int]:
    """The values of the first group with enough beyond `ran`, in order, and the index of the first of these.

    Where no group has enough it is the most general one, if that has enough at all.
    """
    ordered, index = tuple[float, ...](), 0
    for group in groups:
        latest = known.get(group)
        if latest is not None and len(latest.values) >= ENOUGH:
            ordered = latest.ordered()
            index = bisect_right(ordered, ran) if ran else 0
            if len(ordered) - index >= ENOUGH:
                break
    return ordered, index


def _outlived(ran: float, said: float, place: float) -> float:
    """A duration for work that runs longer than all that is known: up to its estimate, or by half."""
    if ran < said < INF:
        return ran + (said - ran) * place
    return ran + max(SHORTEST, ran * 0.5 * place)


def _groups(demand: Demand, said: float) -> Iterator[Group]:
    user, kind = demand.user, demand.kind
    yield "name", user, demand.name
    yield "like", user, kind, demand.options[0].chips, said if said < INF else 0.0
    yield "size", user, kind, frexp(said)[1] if said < INF else 0
    yield "user-kind", user, kind
    yield "user", user
    yield "kind", kind
    yield ("all",)


def _keep(known: _Kept, group: Group, value: float) -> None:
    before = known.pop(group, None)
    values = before.values if before is not None else ()
    known[group] = _Latest((*values[-MOST_KEPT + 1 :], value))
    if len(known) > MOST_GROUPS:
        for oldest in list(islice(known, MOST_GROUPS // 16)):
            del known[oldest]


def _plain(known: _Kept) -> list[list[Any]]:
    return [[list(group), list(latest.values)] for group, latest in known.items()]


def _made(plain: list[list[Any]]) -> _Kept:
    return {tuple(group): _Latest(tuple(map(float, values))) for group, values in plain}
