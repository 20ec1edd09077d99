"""Goals for a fleet: `p90 wait < 10m`, `utilization > 60%`, several with `and`, each for all work or for a part of it.

```
goal     = clause { "and" clause }
clause   = figure ("wait" | "completion") ("<" | "<=") DURATION [ "for" part ]
         | "utilization" (">" | ">=") SHARE
figure   = "mean" | "p50" | "p90" | "p99" | "max"
part     = QUEUE | "chips" ("<" | "<=" | ">" | ">=" | "=") NUMBER
```

A wait is from submit to first start, a completion from submit to end. Work that never starts waits without end, work
that never ends is never complete: a goal is not met by leaving it out. Utilization is the busy share of all chips until
the last submit, of the whole fleet.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stellwerk.simulation.driver import Job
from stellwerk.simulation.outcome import Outcome, quantile
from stellwerk.spec.problems import Flaw, allowed, did_you_mean, shown
from stellwerk.spec.readable import duration
from stellwerk.spec.values import parse_duration

INF = float("inf")
FIGURES = ("mean", "p50", "p90", "p99", "max")
MEASURES = ("wait", "completion")
UTILIZATION = "utilization"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
_TOKEN = re.compile(r"\s*(<=|>=|[<>=]|[^\s<>=]+)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)(%?)")
_EXAMPLE = "write for example p90 wait < 10m"


@dataclass(frozen=True, slots=True)
class Part:
    """The work that a clause is about: a queue's, or that of a number of chips; all without either."""

    queue: str | None = None
    sign: str = "="
    chips: int | None = None

    def has(self, job: Job) -> bool:
        """Whether a workload belongs to it."""
        if self.queue is not None:
            return job.demand.queue == self.queue
        return self.chips is None or _COMPARE[self.sign](job.demand.options[0].chips, self.chips)

    def __str__(self) -> str:
        """As it is written."""
        if self.queue is not None:
            return f" for {self.queue}"
        return "" if self.chips is None else f" for chips {self.sign} {self.chips}"


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition: `figure` (None for utilization) of `measure` is to be on that side of `bound` (s, or a share).

    `said` is the bound as it was written.
    """

    figure: str | None
    measure: str
    sign: str
    bound: float
    said: str
    part: Part = Part()

    @property
    def upwards(self) -> bool:
        """Whether more units help it."""
        return self.measure != UTILIZATION

    def value(self, outcome: Outcome) -> float:
        """What a replay gives: seconds (`inf` where work never gets there), or a share."""
        if self.figure is None:
            return outcome.utilization
        jobs = (job for job in outcome.jobs if self.part.has(job))
        return _figure(self.figure, [_seconds(self.measure, job) for job in jobs])

    def met(self, value: float) -> bool:
        """Whether a value is on the right side."""
        return _COMPARE[self.sign](value, self.bound)

    def short(self, value: float) -> float:
        """By how much a value misses (s, or a share); 0 when it does not."""
        return 0.0 if self.met(value) else abs(value - self.bound)

    def show(self, value: float) -> str:
        """A value of this clause in words."""
        if self.figure is None:
            return f"{value * 100:.1f} %"
        return "never" if value == INF else duration(value)

    @property
    def title(self) -> str:
        """What it is about, without the bound."""
        return UTILIZATION if self.figure is None else f"{self.figure} {self.measure}{self.part}"

    def __str__(self) -> str:
        """As it is written."""
        what = UTILIZATION if self.figure is None else f"{self.figure} {self.measure}"
        return f"{what} {self.sign} {self.said}{self.part}"


@dataclass(frozen=True, slots=True)
class Goal:
    """All of its clauses are to hold."""

    clauses: tuple[Clause, ...]

    def values(self, outcome: Outcome) -> tuple[float, ...]:
        """What a replay gives, clause by clause."""
        return tuple(clause.value(outcome) for clause in self.clauses)

    def check(self, jobs: Iterable[Job]) -> None:
        """Raise `Flaw` when a clause is about work that there is none of."""
        known = list(jobs)
        for clause in self.clauses:
            if not any(map(clause.part.has, known)):
                queues = list(dict.fromkeys(job.demand.queue for job in known))
                near = did_you_mean(clause.part.queue, queues) if clause.part.queue is not None else None
                raise Flaw("no-work", f"the trace has no work{clause.part}; {allowed(queues)}", near)

    def __str__(self) -> str:
        """As it is written."""
        return " and ".join(map(str, self.clauses))


def parse_goal(text: str) -> Goal:
    """Read a goal. Raises `Flaw` with the place (`offset`) of what cannot be read."""
    reader = _Reader(text)
    clauses = [reader.clause()]
    while reader.word() is not None:
        reader.one_of(("and",), "what joins two conditions")
        clauses.append(reader.clause())
    return Goal(tuple(clauses))


class _Reader:
    """Reads a goal word by word."""

    def __init__(self, text: str) -> None:
        self._words = [(match[1], match.start(1)) for match in _TOKEN.finditer(text)]
        self._at, self._end = 0, len(text.rstrip())

    def word(self) -> str | None:
        """The next word; None at the end."""
        return self._words[self._at][0] if self._at < len(self._words) else None

    def clause(self) -> Clause:
        figure = self.one_of((*FIGURES, UTILIZATION), "a figure")
        if figure == UTILIZATION:
            sign = self.one_of((">", ">="), "the sign of a utilization")
            found = Clause(None, UTILIZATION, sign, *self._share())
            if self.word() == "for":
                raise self._wrong("utilization is of the whole fleet", "leave out what follows")
            return found
        measure = self.one_of(MEASURES, "a measure")
        sign = self.one_of(("<", "<="), f"the sign of a {measure}")
        return Clause(figure, measure, sign, *self._duration(), self._part())

    def one_of(self, words: Sequence[str], what: str) -> str:
        """The next word, which must be one of these."""
        word = self.word()
        if word is None or word.lower() not in words:
            found = "the goal ends here" if word is None else f"{shown(word)} is not {what}"
            raise self._wrong(f"{found}; {allowed(words)}", did_you_mean(word, words) if word else _EXAMPLE)
        self._at += 1
        return word.lower()

    def _duration(self) -> tuple[float, str]:
        words = list[str]()
        start = self._at
        while (word := self.word()) is not None and word[0].isdigit():
            words.append(word)
            self._at += 1
        if not words:
            raise self._wrong(f"{shown(self.word() or '')} is not a duration", _EXAMPLE)
        try:
            return parse_duration("".join(words)), "".join(words)
        except Flaw as flaw:
            self._at = start
            raise self._wrong(flaw.message, flaw.mend) from None

    def _share(self) -> tuple[float, str]:
        said = self.word() or ""
        match = _SHARE.fullmatch(said)
        share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
        if not 0 <= share <= 1:
            raise self._wrong(f"{shown(said)} is not a share; allowed are 0 to 1, or 0% to 100%", None)
        self._at += 1
        return share, said

    def _part(self) -> Part:
        if self.word() != "for":
            return Part()
        self._at += 1
        word = self.word()
        if word is None or word == "and" or word in _COMPARE:
            raise self._wrong("`for` names no work", "write for QUEUE, or for chips > 8")
        self._at += 1
        if word != "chips" or self.word() not in _COMPARE:
            return Part(queue=word)
        sign, number = self.one_of(tuple(_COMPARE), "a sign"), self.word() or ""
        if not number.isdecimal() or len(number) > 9:
            raise self._wrong(f"{shown(number)} is not a number of chips", "write for example for chips > 8")
        self._at += 1
        return Part(sign=sign, chips=int(number))

    def _wrong(self, message: str, mend: str | None) -> Flaw:
        offset = self._words[self._at][1] if self._at < len(self._words) else self._end
        return Flaw("goal", message, mend, offset=offset)


def _seconds(measure: str, job: Job) -> float:
    at = job.start if measure == "wait" else job.end
    return INF if at is None else at - job.at


def _figure(figure: str, values: list[float]) -> float:
    """Mean, percentile or maximum; 0 without values, as nobody waits then."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    if figure == "mean":
        return math.fsum(ordered) / len(ordered) if ordered[-1] < INF else INF
    if figure == "max":
        return ordered[-1]
    return quantile(ordered, int(figure.removeprefix("p")) / 100)
