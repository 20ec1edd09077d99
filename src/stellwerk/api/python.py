"""The Python interface: what `stellwerk run` and `stellwerk plan` do, as functions and objects."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from stellwerk.api import submission
from stellwerk.api.client import Client

if TYPE_CHECKING:
    from pathlib import Path

    from stellwerk.spec import Workload

    Source = str | PathLike[str] | Mapping[str, Any] | Workload

_LONGEST_POLL = 20.0  # s


@dataclass(frozen=True, slots=True)
class Handle:
    """A submitted workload. It asks the controller anew every time, and can be dropped: the workload goes on."""

    name: str
    key: str
    client: Client

    @property
    def state(self) -> str:
        """`waiting`, `starting`, `running`, `stopping` or `ended`."""
        return str(self.show()["state"])

    def show(self) -> dict[str, Any]:
        """What `stellwerk show --json` prints."""
        return self.client.workload(self.key)

    def why(self) -> dict[str, Any]:
        """What `stellwerk why --json` prints: reasons, the expected start, and what would start it now."""
        return self.client.why(self.key)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it has ended: `succeeded`, `failed` or `stopped`. Raises `TimeoutError` after `timeout` s."""
        deadline = None if timeout is None else time.monotonic() + timeout
        after = 0
        while True:
            left = _LONGEST_POLL if deadline is None else max(0.0, deadline - time.monotonic())
            news = self.client.watch(self.key, after, min(left, _LONGEST_POLL))
            if news["ended"]:
                return str(news["workload"]["outcome"])
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.name} is {news['workload']['state']} after {timeout} s")
            after = news["seq"]

    def logs(self, source: str | None = "driver", attempt: int | None = None) -> str:
        """The log so far of one source (`None`: all of them) of one attempt (default: the last)."""
        text: list[str] = []
        after: dict[str, int] = {}
        while chunks := (part := self.client.logs(self.key, attempt=attempt, source=source, after=after))["chunks"]:
            attempt = part["attempt"]
            text += [chunk["text"] for chunk in chunks]
            after |= {chunk["source"]: chunk["offset"] for chunk in chunks}
        return "".join(text)

    def stop(self, grace: float = 10) -> None:
        """Ask that it end; its code has `grace` seconds to save what it has."""
        self.client.stop(self.key, grace)


@dataclass(frozen=True, slots=True)
class Span:
    """A forecast: half of the cases lie below `p50`, nine of ten below `p90`. None is unknown."""

    p50: Any
    p90: Any


@dataclass(frozen=True, slots=True)
class PlannedOption:
    """What one option would give now: times are RFC 3339 in UTC, money is US dollars.

    `verdict` is `now`, `later` or `never`.
    """

    option: str
    units: int | None
    hosts: int | None
    chips: int | None
    price_per_hour: float | None
    start: Span
    finish: Span
    cost: Span
    verdict: str
    reasons: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Every option of a workload, in its order; `chosen` is the index of the one that would run, or None."""

    name: str
    chosen: int | None
    options: tuple[PlannedOption, ...]

    @property
    def best(self) -> PlannedOption | None:
        """The option that would run, or None."""
        return None if self.chosen is None else self.options[self.chosen]


def run(source: Source, *, name: str | None = None, queue: str | None = None, on: str = "local") -> Handle:
    """Submit a workload (a path, a mapping or a `Workload`); starts the controller when none runs.

    Raises `stellwerk.spec.SpecError` for a wrong declaration, `stellwerk.controller.intake.Unsupported` for a kind and
    `stellwerk.api.errors.NotSupported` for a backend of a later version.
    """
    from stellwerk.controller.intake import check_supported

    submission.check_backend(on)
    workload = submission.load(source, name=name, queue=queue)
    check_supported(workload)
    client = Client.ensure()
    answer = client.submit(submission.dump(workload), name=name, submission=submission.new_submission())
    return Handle(answer["name"], answer["key"], client)


def plan(source: Source, *, fleet: str | Path | Mapping[str, Any] | None = None) -> Plan:
    """What every option of a workload would give now, on the fleet that is or on the one given; changes nothing."""
    from stellwerk.spec import load_fleet

    declared = None if fleet is None else load_fleet(fleet)
    return _as_plan(submission.plan_json(submission.load(source, fleet=declared), declared))


def _as_plan(told: Mapping[str, Any]) -> Plan:
    return Plan(told["name"], told["chosen"], tuple(_as_option(option) for option in told["options"]))


def _as_option(told: Mapping[str, Any]) -> PlannedOption:
    spans = {key: Span(**(told.get(key) or {"p50": None, "p90": None})) for key in ("start", "finish", "cost")}
    plain = {key: told.get(key) for key in ("option", "units", "hosts", "chips", "price_per_hour", "verdict")}
    return PlannedOption(**plain, **spans, reasons=tuple(told.get("reasons") or ()))  # pyright: ignore[reportArgumentType]
