"""A world for the core: it answers commands as any backend may, in any order, late, twice, or with bad news."""

from __future__ import annotations

import random
from collections.abc import Iterator

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.model import Demand, Fleet, Limits, Option, Part, Pool, Queue

V6E = Part("main", "tpu-v6e", "4x4", 16)


def tpu(count: int = 1, topology: str = "4x4", accelerator: str = "tpu-v6e", patience: float | None = None) -> Option:
    """An option of `count` slices."""
    chips = 1
    for axis in topology.split("x"):
        chips *= int(axis)
    part = Part("main", accelerator, topology, chips, count)
    return Option(f"{accelerator}:{topology}*{count}", (part,), patience=patience)


def gpus(count: int, accelerator: str = "h100") -> Option:
    """An option of `count` GPUs."""
    return Option(f"{accelerator}:{count}", (Part("main", accelerator, None, count),))


def demand(key: str, *options: Option, **more: object) -> Demand:
    """A workload with these options."""
    return Demand(key, key, "train", options, **more)  # type: ignore[arg-type]


def slices(units: int, name: str = "v6e", **more: object) -> Pool:
    """A pool of v6e 4x4 slices that always exist."""
    settings: dict[str, object] = {"minimum": units, "maximum": units} | more
    return Pool(name, "tpu-v6e", "4x4", "ct6e-standard-4t", 16, 4, **settings)  # type: ignore[arg-type]


def nodes(units: int, name: str = "h100", chips: int = 8, **more: object) -> Pool:
    """A pool of GPU nodes that always exist."""
    settings: dict[str, object] = {"minimum": units, "maximum": units} | more
    return Pool(name, "h100", None, "a3-highgpu-8g", chips, 1, **settings)  # type: ignore[arg-type]


class Site:
    """A scheduler beside the units and attempts that really exist; `log` is every event so far."""

    def __init__(self, *pools: Pool, queues: tuple[Queue, ...] = (), memory: int | None = None) -> None:
        self.scheduler = Scheduler(validate=True)
        self.now = 0.0
        self.log: list[ev.Event] = []
        self.orders: list[cmd.Command] = []
        self.running: dict[str, int] = {}
        self.tell(ev.FleetChanged(self.now, Fleet(pools, queues, memory)))

    @property
    def state(self):
        return self.scheduler.state

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        """Hand in an event; orders are kept until `obey`."""
        self.log.append(event)
        commands = self.scheduler.handle(event)
        self.orders.extend(commands)
        return commands

    def submit(self, *demands: Demand) -> None:
        for one in demands:
            self.tell(ev.Submitted(self.now, one))

    def answer(self, order: cmd.Command) -> Iterator[ev.Event]:
        """What a faithful backend says to `order`."""
        match order:
            case cmd.ProvisionUnit(pool, unit, incarnation) | cmd.RecycleUnit(pool, unit, incarnation):
                yield ev.UnitAppeared(self.now, pool, unit, incarnation)
            case cmd.ReleaseUnit(unit, incarnation):
                yield ev.UnitGone(self.now, unit, incarnation)
            case cmd.StartAttempt(workload, attempt):
                self.running[workload] = attempt
                yield ev.AttemptStarted(self.now, workload, attempt)
            case cmd.StopAttempt(workload, attempt, cause):
                self.orders = [order for order in self.orders if not _starts(order, workload, attempt)]
                if self.running.get(workload) == attempt:
                    del self.running[workload]
                yield ev.AttemptEnded(self.now, workload, attempt, "stopped", cause)
            case cmd.ResizeAttempt(workload, attempt, resize):
                yield ev.AttemptResized(self.now, workload, attempt, resize)
            case cmd.WakeAt():
                pass

    def obey(self, rng: random.Random | None = None) -> None:
        """Answer all orders, in order or in a random one, until none is left."""
        while self.orders:
            index = rng.randrange(len(self.orders)) if rng else 0
            for event in self.answer(self.orders.pop(index)):
                self.tell(event)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, waking the scheduler whenever it asked for it."""
        until = self.now + seconds
        while (wake := self.state.wake_at) is not None and wake <= until:
            self.now = max(self.now, wake)
            self.tell(ev.Woke(self.now))
            self.obey()
        self.now = until

    def finish(self, key: str, outcome: str = "succeeded", cause: str | None = None) -> None:
        """End the live attempt of a workload."""
        attempt = self.running.pop(key)
        self.tell(ev.AttemptEnded(self.now, key, attempt, outcome, cause))  # type: ignore[arg-type]
        self.obey()

    def phase(self, key: str) -> str:
        return self.state.workloads[key].phase

    def codes(self, key: str) -> list[list[str]]:
        """Reason codes of a waiting workload, per option."""
        return [[reason.code for reason in why] for why in self.state.workloads[key].reasons]


def _starts(order: cmd.Command, workload: str, attempt: int) -> bool:
    return isinstance(order, cmd.StartAttempt) and (order.workload, order.attempt) == (workload, attempt)


__all__ = ["V6E", "Limits", "Queue", "Site", "demand", "gpus", "nodes", "slices", "tpu"]
