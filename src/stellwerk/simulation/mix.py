"""Demand, declared: the few figures that `stellwerk.simulation.generate` draws a trace from.

```yaml
generate:
  jobs: 2000                                 # how many workloads are submitted ...
  span: 7d                                   # ... and within which time
  sizes: {1: 60, 2: 10, 8: 25, 16: 5}        # chips of a workload: weight
  wave: 0.5                                  # 0: evenly all day; 1: nothing at all at the lowest hour
  median: 30m                                # half of them run for less
  sigma: 1.5                                 # how far durations spread, as the sigma of a lognormal distribution
  longest: 14d                               # none runs for longer
  queues: {research: 3, prod: 1}             # queue: weight
  users: 8                                   # of each queue
  estimates: 1-5                             # what users say is so many times the duration; exact, or none
  accelerator: h100                          # what they run on; that of the replay unless said
```

`jobs` and `span` are needed; the others are what is written above unless said, but for the accelerator and the
sizes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from stellwerk.simulation.submissions import Estimates
from stellwerk.spec.declaring import declaration
from stellwerk.spec.document import Document
from stellwerk.spec.problems import Flaw, did_you_mean, shown
from stellwerk.spec.readable import duration
from stellwerk.spec.request import named
from stellwerk.spec.values import Duration, Name, Text, Whole
from stellwerk.spec.wording import Declared

MOST_JOBS = 5_000_000

_DAY = 86_400.0
_NO_CONTEXT: dict[str, Any] = {}
_CHIPS = re.compile(r"[1-9][0-9]{0,6}")
_SIZES = {1: 0.6, 2: 0.1, 4: 0.12, 8: 0.15, 16: 0.02, 32: 0.01}
_QUEUES = {"research": 3.0, "prod": 1.0}


def _chips(given: object) -> int:
    """A number of chips, which a file has as the text of a key."""
    if not _CHIPS.fullmatch(str(given)):
        raise Flaw("sizes", f"`sizes`: {shown(given)} is not a number of chips; allowed are 1 to 9999999")
    return int(str(given))


Chips = Annotated[int, BeforeValidator(_chips)]
Weight = Annotated[float, Field(strict=True, gt=0, le=1e9)]


class Mix(Declared):
    """What a generated trace is drawn from; durations and spans in seconds."""

    jobs: Whole = Field(ge=1, le=MOST_JOBS, description="Workloads that are submitted.", examples=[2000])
    span: Duration = Field(description="The time in which they are submitted.", examples=["7d"])
    sizes: dict[Chips, Weight] = Field(_SIZES, min_length=1, description="Chips of a workload, by weight.")
    wave: float = Field(0.5, strict=True, ge=0, le=1, description="How much the rate of arrivals swings over a day.")
    median: Duration = Field(1800.0, gt=0, description="The median of durations.", examples=["30m"])
    sigma: float = Field(1.5, strict=True, ge=0, le=10, description="The sigma of lognormal durations.")
    longest: Duration = Field(14 * _DAY, gt=0, description="No duration is longer.", examples=["14d"])
    queues: dict[Name, Weight] = Field(_QUEUES, min_length=1, description="Whose work it is, by weight.")
    users: Whole = Field(8, ge=1, le=10_000, description="Users of each queue.")
    estimates: tuple[float, float] | None = Field(
        (1.0, 5.0), description="The range of the factor by which users overestimate; None for no estimates."
    )
    accelerator: Text | None = Field(None, description="What the work runs on; that of the replay unless said.")

    @field_validator("estimates", mode="before")
    @classmethod
    def _factors(cls, given: Any) -> Any:
        """From text, as the command line spells it."""
        if type(given) in (tuple, type(None)):
            return given
        return None if given == "none" else _range(given)

    @field_validator("accelerator")
    @classmethod
    def _known(cls, given: str | None, info: ValidationInfo) -> str | None:
        """The one spelling of its name; what only a fleet declares is known where a context says so."""
        own: frozenset[str] = (info.context or _NO_CONTEXT).get("extra_accelerators", frozenset())
        return given if given is None else named(given, own)[0]

    @model_validator(mode="after")
    def _fits(self) -> Mix:
        if self.median > self.longest:
            message = f"`longest` is {duration(self.longest)}, less than the median, {duration(self.median)}"
            raise Flaw("wrong-value", message, path=("longest",))
        return self


class _Generated(Declared):
    """The whole document."""

    generate: Mix


def mix_of(document: Document, extra_accelerators: frozenset[str] = frozenset()) -> Mix:
    """The mix that a document declares. Raises `SpecError` with all problems found, with their places.

    `extra_accelerators` are names that only the fleet declares.
    """
    context = {"extra_accelerators": extra_accelerators}
    return declaration(document, _Generated, "figures to draw demand from", context).generate


def _range(given: object) -> tuple[float, float]:
    """The factors of `exact` or `A-B`."""
    text = given if isinstance(given, str) else ""
    try:
        found = Estimates.parse(text)
    except ValueError:
        found = None
    if found is None or found.kind == "user":
        message = f"{shown(given)} are no estimates; allowed are exact, none, or a range of factors as in 1-5"
        raise Flaw("estimates", message, did_you_mean(text, ("exact", "none")))
    return found.low, found.high
