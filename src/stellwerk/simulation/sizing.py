"""The cheapest fleet that meets a goal: how many units each pool needs.

Formulation. A candidate is a number of units (the maximum) for every pool, within bounds. Its price is that of all its
chips for an hour; where a price is unknown, chips are counted instead. Of all candidates whose replay of the trace
meets every clause of the goal the one of the least price is wanted; equal prices go by chips, then by the numbers
themselves.

Search. More units make waits and completions no longer, and the busy share no larger. So a candidate that misses a wait
says the same of every candidate that has no more units of any pool, and one that meets it of every candidate that has
no fewer: `Search` simulates only what does not follow from what it has simulated. First each pool is bisected with all
others at their most: nothing below what that leaves can meet the waits. Then the pool whose chips are cheapest is the
axis; every combination of the others is a line along it, cheapest first. On a line the sizes that could still be
cheapest are bisected for the least that meets the waits; a utilization is asked of that one, since larger ones are
busy for less. The pools of the answer are then made smaller one at a time; these are the fleets that just miss.

Limits. That more units never hurt is the rule, not a law: a list schedule can become a little worse with one more
machine (Graham 1969). Sizes next below the answer are simulated, others that bisection steps over are not. With p pools
the lines are the product of p - 1 ranges: bounds keep that small. A pool with `min` below `max` is priced at `max`.

Bounds, unless given: at most, what all work takes that runs when everything starts at once; at least, what the
largest workload needs that fits no other pool, else 0. A pod keeps its size, which is that of its topology.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from stellwerk.scheduling.declared import fleet_of
from stellwerk.scheduling.model import Fleet, Option, Pool
from stellwerk.scheduling.placement.units import serves
from stellwerk.simulation.driver import Job
from stellwerk.simulation.goals import Goal
from stellwerk.simulation.outcome import Outcome
from stellwerk.simulation.replay import Settings, replay
from stellwerk.simulation.submissions import submissions, with_default_queue
from stellwerk.simulation.traces.model import Trace
from stellwerk.spec.problems import Flaw

if TYPE_CHECKING:
    from stellwerk import spec

Units = tuple[int, ...]
Range = tuple[int, int]
Price = tuple[float, int, Units]
PODS = ("torus", "optical")
"""Layouts of pools whose units are the cubes of one pod, as many as its topology has."""

MOST_LINES = 100_000
"""Most combinations of all pools but one that a search goes through."""

_SPARE = 1.25
"""How many more units than an exact fit the default bound has where parts of units are handed out."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fleet that was simulated: what each clause of the goal came to, whether it is met, and all figures."""

    units: Units
    chips: int
    price_per_hour: float | None
    values: tuple[float, ...]
    met: tuple[bool, ...]
    figures: Mapping[str, Any]

    @property
    def meets(self) -> bool:
        """Whether the goal is met."""
        return all(self.met)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found. `best` is None when nothing within the bounds meets the goal.

    `smaller` are the fleets of one unit less in one pool; `tried` is everything simulated, in order of price.
    """

    goal: Goal
    pools: tuple[Pool, ...]
    bounds: tuple[Range, ...]
    best: Candidate | None
    largest: Candidate
    smaller: tuple[Candidate, ...]
    tried: tuple[Candidate, ...]

    @property
    def nearest(self) -> Candidate:
        """What comes nearest where nothing meets the goal: the cheapest that meets the waits, else the largest."""
        pairs = ((each, zip(self.goal.clauses, each.met, strict=True)) for each in self.tried)
        meeting = (each for each, clauses in pairs if all(met for clause, met in clauses if clause.upwards))
        return next(meeting, self.largest)


class Search:
    """Finds the cheapest of many candidates; `simulate` tells of one whether it meets the waits, and the rest.

    Every candidate is simulated at most once, and none of which the answer follows from others.
    """

    def __init__(
        self,
        ranges: Sequence[Range],
        axis: int,
        price: Callable[[Units], Price],
        simulate: Callable[[Units], tuple[bool, bool]],
    ) -> None:
        self.ranges, self.price = list(ranges), price
        self.known: dict[Units, tuple[bool, bool]] = {}
        self._least = tuple(low for low, _ in ranges)
        self._simulate, self._axis = simulate, axis

    def cheapest(self) -> Units | None:
        """The cheapest candidate that meets everything; None when there is none."""
        most = tuple(high for _, high in self.ranges)
        if not self._waits_met(most):
            return None
        for index, (low, high) in enumerate(self.ranges):
            self.ranges[index] = (self._least_met(most, index, low, high), high)
        best: Units | None = None
        for line in self._lines():
            best = self._along(line, best) or best
        return best and self._lowered(best)

    def tells(self, units: Units) -> tuple[bool, bool]:
        """Whether the waits and the rest are met by a candidate; it is simulated unless it was."""
        if units not in self.known:
            self.known[units] = self._simulate(units)
        return self.known[units]

    def below(self, units: Units) -> list[Units]:
        """The candidates of one unit less in one pool."""
        lowered = (tuple(n - (i == index) for i, n in enumerate(units)) for index in range(len(units)))
        return [each for each in lowered if all(n >= low for n, low in zip(each, self._least, strict=True))]

    def _lines(self) -> list[Units]:
        """All combinations of the other pools, with the least of the axis, cheapest first."""
        spans = [
            range(low, low + 1) if index == self._axis else range(low, high + 1)
            for index, (low, high) in enumerate(self.ranges)
        ]
        return sorted(product(*spans), key=self.price)

    def _along(self, line: Units, best: Units | None) -> Units | None:
        """The least size on a line that meets the waits, if it meets everything and is cheaper than `best`."""
        low, high = self.ranges[self._axis]
        if best is not None:
            limit = self.price(best)
            sizes = range(low, high + 1)
            high = low - 1 + bisect_left(sizes, limit, key=lambda size: self.price(self._at(line, size)))
        if high < low or not self._waits_met(self._at(line, high)):
            return None
        found = self._at(line, self._least_met(line, self._axis, low, high))
        return found if all(self.tells(found)) else None

    def _least_met(self, units: Units, index: int, low: int, high: int) -> int:
        """The least size of one pool beside these units that meets the waits, as `high` does."""
        while low < high:
            middle = (low + high) // 2
            if self._waits_met((*units[:index], middle, *units[index + 1 :])):
                high = middle
            else:
                low = middle + 1
        return low

    def _at(self, line: Units, size: int) -> Units:
        return (*line[: self._axis], size, *line[self._axis + 1 :])

    def _waits_met(self, units: Units) -> bool:
        """Whether the waits are met, as far as possible from what is known."""
        if units in self.known:
            return self.known[units][0]
        for other, (waits, _) in self.known.items():
            if waits and all(n >= m for n, m in zip(units, other, strict=True)):
                return True
            if not waits and all(n <= m for n, m in zip(units, other, strict=True)):
                return False
        return self.tells(units)[0]

    def _lowered(self, best: Units) -> Units:
        """Simulate what is next below the answer, and step down as long as that meets everything too."""
        while True:
            better = [units for units in self.below(best) if all(self.tells(units))]
            if not better:
                return best
            best = min(better, key=self.price)


def size(
    declared: spec.Fleet,
    trace: Trace,
    goal: Goal,
    settings: Settings | None = None,
    *,
    bounds: Mapping[str, Range] | None = None,
    watch: Callable[[Units], None] | None = None,
) -> Answer:
    """Find the cheapest fleet whose replay of `trace` meets `goal`, within `bounds` (by pool) where they are given.

    `watch` is told of the units of every replay before it. Raises `Flaw` when the goal is about work that the trace has
    not, or when the bounds leave too much to look at, and `ValueError` as `replay` does.
    """
    settings = settings or Settings()
    fleet = with_default_queue(fleet_of(declared), trace)
    jobs = submissions(trace, fleet, settings.estimates, settings.seed, frozenset(declared.accelerators))
    goal.check(jobs)
    ranges = [_bounds(pool, bounds or {}, found) for pool, found in default_bounds(fleet, jobs).items()]
    axis = axis_of(fleet.pools, ranges)
    tried: dict[Units, Candidate] = {}

    def simulate(units: Units) -> tuple[bool, bool]:
        if watch is not None:
            watch(units)
        outcome = replay(resized(declared, units), trace, settings, limited=False)
        made = tried[units] = _candidate(fleet.pools, units, goal, outcome)
        up = [met for clause, met in zip(goal.clauses, made.met, strict=True) if clause.upwards]
        down = [met for clause, met in zip(goal.clauses, made.met, strict=True) if not clause.upwards]
        return all(up), all(down)

    search = Search(ranges, axis, lambda units: price_of(fleet.pools, units), simulate)
    best = search.cheapest()
    most = tuple(high for _, high in ranges)
    ordered = sorted(tried.values(), key=lambda each: price_of(fleet.pools, each.units))
    return Answer(
        goal=goal,
        pools=fleet.pools,
        bounds=tuple(ranges),
        best=None if best is None else tried[best],
        largest=tried[most],
        smaller=tuple(tried[units] for units in search.below(best)) if best is not None else (),
        tried=tuple(ordered),
    )


def _bounds(pool: Pool, given: Mapping[str, Range], found: Range) -> Range:
    wanted = given.get(pool.name)
    if wanted is not None and pool.layout in PODS and wanted != found:
        message = f"{pool.name} is a pod: it has as many units as its topology has cubes, {pool.maximum}"
        raise Flaw("bounds", message, f"leave out --pool {pool.name}, or declare another topology")
    return wanted or found


def axis_of(pools: Sequence[Pool], ranges: Sequence[Range]) -> int:
    """The pool along which is searched: that of the cheapest chips, of equal ones the largest.

    Raises `Flaw` when the others have too many combinations.
    """
    sizes = [high - low + 1 for low, high in ranges]
    axis = min(range(len(pools)), key=lambda index: (pools[index].price or 0.0, -sizes[index]))
    if prod(sizes) // sizes[axis] > MOST_LINES:
        told = ", ".join(f"{pool.name} {low}..{high}" for pool, (low, high) in zip(pools, ranges, strict=True))
        message = f"{told} are too many fleets to look at"
        raise Flaw("bounds", message, f"give narrower bounds with --pool {pools[axis].name}=MIN..MAX")
    return axis


def resized(declared: spec.Fleet, units: Units) -> spec.Fleet:
    """The fleet with these units; a pool of fixed size stays one."""
    pools = [_resized(pool, count) for pool, count in zip(declared.pools, units, strict=True)]
    return declared.model_copy(update={"pools": tuple(pools)})


def _resized(pool: spec.Pool, count: int) -> spec.Pool:
    return pool.model_copy(update={"units": type(pool.units).model_validate(units_of(pool, count))})


def units_of(pool: spec.Pool, count: int) -> dict[str, int]:
    """The range of units of a pool that has at most `count`."""
    least = count if pool.units.min == pool.units.max else min(pool.units.min, count)
    return {"min": least, "max": count, "buffer": min(pool.units.buffer, count)}


def price_of(pools: Sequence[Pool], units: Units) -> Price:
    """What candidates are ordered by: US dollars per hour (chips where a price is unknown), chips, the numbers."""
    price, chips = price_per_hour(pools, units), chips_of(pools, units)
    return (float(chips) if price is None else price, chips, units)


def price_per_hour(pools: Sequence[Pool], units: Units) -> float | None:
    """US dollars per hour of all units; None when the price of any pool is unknown."""
    prices = [pool.price for pool in pools]
    if None in prices:
        return None
    each = zip(pools, prices, units, strict=True)
    return sum(pool.chips * (price or 0.0) * count for pool, price, count in each)


def chips_of(pools: Sequence[Pool], units: Units) -> int:
    """All chips of a candidate."""
    return sum(pool.chips * count for pool, count in zip(pools, units, strict=True))


def _candidate(pools: Sequence[Pool], units: Units, goal: Goal, outcome: Outcome) -> Candidate:
    values = goal.values(outcome)
    met = tuple(clause.met(value) for clause, value in zip(goal.clauses, values, strict=True))
    return Candidate(units, chips_of(pools, units), price_per_hour(pools, units), values, met, outcome.summary())


def default_bounds(fleet: Fleet, jobs: Sequence[Job]) -> dict[Pool, Range]:
    """For every pool the least and the most units that are looked at."""
    needs: dict[int, dict[Pool, float]] = {}
    for job in jobs:
        options = job.demand.options
        if id(options) not in needs:
            needs[id(options)] = _needs(fleet.pools, options[0])
    least = dict.fromkeys(fleet.pools, 0)
    changes: dict[Pool, list[tuple[float, float]]] = {pool: [] for pool in fleet.pools}
    for job in jobs:
        found = needs[id(job.demand.options)]
        if len(found) == 1:
            pool, units = next(iter(found.items()))
            least[pool] = max(least[pool], ceil(units))
        for pool, units in found.items():
            changes[pool] += [(job.at, units), (job.at + job.duration, -units)]
    bounds = {pool: (least[pool], max(least[pool], _peak(changes[pool]))) for pool in fleet.pools}
    return {pool: (pool.maximum, pool.maximum) if pool.layout in PODS else found for pool, found in bounds.items()}


def _needs(pools: Iterable[Pool], option: Option) -> dict[Pool, float]:
    """The units of each pool that could hold an option of one part; cells are parts of a unit that fit side by side."""
    needs = dict[Pool, float]()
    for pool in pools:
        if all(serves(pool, part) for part in option.parts):
            needs[pool] = sum(part.count * _units(pool, part.chips) for part in option.parts)
    return needs


def _units(pool: Pool, chips: int) -> float:
    return ceil(chips / pool.chips) if chips >= pool.chips else _SPARE / (pool.chips // chips)


def _peak(changes: list[tuple[float, float]]) -> int:
    """The most units in use at once; what ends makes room for what begins at the same time."""
    most = now = 0.0
    for _, units in sorted(changes):
        now += units
        most = max(most, now)
    return ceil(round(most, 6))


def failing(answer: Answer, candidate: Candidate) -> Iterator[tuple[str, str]]:
    """The clauses that a candidate misses, and by how much, in words."""
    for clause, value, met in zip(answer.goal.clauses, candidate.values, candidate.met, strict=True):
        if not met:
            short = clause.short(value)
            far = "" if short == float("inf") else f", {clause.show(short)} {'over' if clause.upwards else 'below'}"
            yield str(clause), f"{clause.show(value)}{far}"


def to_json(answer: Answer) -> dict[str, Any]:
    """The answer as `--json` prints it; what never happens is null."""
    best = answer.best
    return {
        "goal": str(answer.goal),
        "met": best is not None,
        "fleet": None if best is None else _fleet_json(answer, best),
        "gives": None if best is None else _clauses_json(answer, best),
        "figures": None if best is None else dict(best.figures),
        "next_smaller": [_candidate_json(answer, each) for each in answer.smaller],
        "nearest": _candidate_json(answer, best or answer.nearest),
        "bounds": {
            pool.name: {"min": low, "max": high} for pool, (low, high) in zip(answer.pools, answer.bounds, strict=True)
        },
        "candidates": [_candidate_json(answer, each) for each in answer.tried],
    }


def _candidate_json(answer: Answer, candidate: Candidate) -> dict[str, Any]:
    told = {"met": candidate.meets, "gives": _clauses_json(answer, candidate)}
    return _fleet_json(answer, candidate) | told


def _fleet_json(answer: Answer, candidate: Candidate) -> dict[str, Any]:
    pools = zip(answer.pools, candidate.units, strict=True)
    return {
        "pools": [{"name": pool.name, "units": count, "chips": pool.chips * count} for pool, count in pools],
        "chips": candidate.chips,
        "price_per_hour": candidate.price_per_hour,
    }


def _clauses_json(answer: Answer, candidate: Candidate) -> list[dict[str, Any]]:
    return [
        {
            "clause": str(clause),
            "value": _finite(value),
            "bound": clause.bound,
            "met": met,
            "short": _finite(clause.short(value)),
        }
        for clause, value, met in zip(answer.goal.clauses, candidate.values, candidate.met, strict=True)
    ]


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
