"""What breaks, declared: how often hosts fail, spot units are taken away, pools run out of stock.

```yaml
hosts: {availability: 0.999, mttr: 1h}     # or {mtbf: 30d, mttr: 1h}: two of the three, for one host
spot: {every: 8h, notice: 30s}             # one unit of a spot pool is taken away every 8 h on average
stock_outs: {every: 2d, last: 3h}          # pools that grow on demand cannot be had for 3 h, every 2 d, on average
pools:
  h100-spot: {spot: {every: 2h}}           # instead of the above, in this pool
restart: {1: 7s, 8: 30s, more: 60s}        # seconds lost by a resumed attempt of up to that many chips
checkpoints: {every: 30m, cost: 20s}
```

All spans are exponential, all hosts, units and pools independent. `stellwerk.simulation.failing` draws the
events.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from stellwerk.simulation.costs import Checkpoints, Costs, RestartCosts
from stellwerk.spec.declaring import declaration
from stellwerk.spec.document import read
from stellwerk.spec.problems import Flaw, shown
from stellwerk.spec.values import Duration, Name
from stellwerk.spec.wording import Declared

_MORE = "more"


class HostFailures(Declared):
    """One host: up for `mtbf` on average, then down for `mttr`; availability is mtbf / (mtbf + mttr)."""

    availability: float | None = Field(
        None, gt=0, lt=1, strict=True, description="The share of time that a host is up.", examples=[0.999]
    )
    mtbf: Duration | None = Field(None, description="Mean time from repair to failure.", examples=["30d"])
    mttr: Duration | None = Field(None, description="Mean time from failure to repair.", examples=["1h"])

    @model_validator(mode="after")
    def _two_of_three(self) -> HostFailures:
        given = [key for key in ("availability", "mtbf", "mttr") if getattr(self, key) is not None]
        if len(given) != 2:
            message = f"{len(given) or 'none'} of `availability`, `mtbf` and `mttr` given; two of them say the third"
            raise Flaw("hosts", message, "write for example {availability: 0.999, mttr: 1h}")
        for key in given:
            _positive(key, getattr(self, key))
        return self

    @property
    def up(self) -> float:
        """Mean seconds from repair to failure."""
        if self.mtbf is not None:
            return self.mtbf
        assert self.availability is not None and self.mttr is not None
        return self.mttr * self.availability / (1 - self.availability)

    @property
    def down(self) -> float:
        """Mean seconds from failure to repair."""
        if self.mttr is not None:
            return self.mttr
        assert self.availability is not None and self.mtbf is not None
        return self.mtbf * (1 - self.availability) / self.availability


class Preemptions(Declared):
    """How units of spot pools are taken away."""

    every: Duration = Field(description="Mean time between preemptions of one unit.", examples=["8h"])
    notice: Duration = Field(30.0, description="How long before the end it is told.", examples=["30s"])

    @field_validator("every")
    @classmethod
    def _takes_time(cls, value: float) -> float:
        return _positive("every", value)


class StockOuts(Declared):
    """When a provider has no more units."""

    every: Duration = Field(description="Mean time from the end of one stock-out to the next.", examples=["2d"])
    last: Duration = Field(description="Mean time that one lasts.", examples=["3h"])

    @field_validator("every", "last")
    @classmethod
    def _takes_time(cls, value: float) -> float:
        return _positive("every or last", value)


class PoolFailures(Declared):
    """What breaks in one pool, where it is not as everywhere."""

    hosts: HostFailures | None = Field(None, description="Its hosts.")
    spot: Preemptions | None = Field(None, description="Its preemptions, when its market is spot.")
    stock_outs: StockOuts | None = Field(None, description="Its stock-outs.")


class Saving(Declared):
    """How workloads save their state."""

    every: Duration | None = Field(
        None, description="Work between two checkpoints; none unless said.", examples=["30m"]
    )
    cost: Duration = Field(0.0, description="Time that one takes.", examples=["20s"])

    @field_validator("every")
    @classmethod
    def _takes_time(cls, value: float | None) -> float | None:
        return value if value is None else _positive("every", value)


class Failures(PoolFailures):
    """A declaration of what breaks, and what an interruption costs."""

    pools: dict[Name, PoolFailures] = Field({}, description="What is different in single pools.")
    restart: dict[str, Duration] = Field(
        {"1": 7.0, "8": 30.0, _MORE: 60.0}, description="Time that a resumed attempt loses, by its most chips."
    )
    checkpoints: Saving = Field(Saving.model_construct(every=None, cost=0.0), description="How state is saved.")

    @field_validator("restart")
    @classmethod
    def _by_chips(cls, given: dict[str, float]) -> dict[str, float]:
        for key in given:
            if key != _MORE and not (key.isascii() and key.isdigit() and int(key)):
                raise Flaw("restart", f"{shown(key)} is neither a number of chips nor `more`", path=(key,), of_key=True)
        if _MORE not in given:
            raise Flaw(
                "restart", "`more`, the time for more chips than that, is missing", "write for example more: 60s"
            )
        return given

    @property
    def costs(self) -> Costs:
        """Restart and checkpoint costs as declared."""
        steps = sorted((int(chips), seconds) for chips, seconds in self.restart.items() if chips != _MORE)
        return Costs(
            RestartCosts(tuple(steps), self.restart[_MORE]), Checkpoints(self.checkpoints.every, self.checkpoints.cost)
        )

    def of(self, pool: str) -> PoolFailures:
        """What breaks in the pool of this name."""
        own = self.pools.get(pool, self)
        return PoolFailures(
            hosts=own.hosts or self.hosts, spot=own.spot or self.spot, stock_outs=own.stock_outs or self.stock_outs
        )


def load_failures(source: str | Path | Mapping[str, Any], pools: frozenset[str] | None = None) -> Failures:
    """Read a declaration of failures from a file's path or a mapping.

    `pools` are the fleet's; others are refused. Raises `SpecError` with all problems found, with their
    places.
    """

    def unknown(failures: Failures) -> list[Flaw]:
        return [] if pools is None else [_unknown_pool(name) for name in sorted(set(failures.pools) - pools)]

    return declaration(read(source, "failures"), Failures, "failures", doubts=unknown)


def _unknown_pool(name: str) -> Flaw:
    return Flaw("unknown-pool", f"the fleet has no pool {shown(name)}", path=("pools", name), of_key=True)


def _positive(key: str, value: float) -> float:
    if not value > 0:
        raise Flaw("wrong-value", f"`{key}` must be more than 0")
    return value
