"""A deterministic model of what a backend drives, for tests of the controller alone.

`World` is what outlives a controller: attempts, units, and events that nobody has taken in yet. `WorldBackend` is the
protocol over it. A `Fuse` crashes the controller at a chosen point between append, fold and command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stellwerk.backends.protocol import Launch, LiveAttempt, Report
from stellwerk.controller.clock import Timer
from stellwerk.controller.loop import Controller
from stellwerk.scheduling.commands import Command, ProvisionUnit, RecycleUnit, ReleaseUnit, ResizeAttempt, StopAttempt
from stellwerk.scheduling.events import (
    AttemptEnded,
    AttemptResized,
    AttemptStarted,
    CheckpointReported,
    Event,
    HostChanged,
    UnitAppeared,
    UnitGone,
)
from stellwerk.scheduling.model import Grant, Part, Pool

Key = tuple[str, int]


class Crash(BaseException):
    """The controller is killed here."""


class Fuse:
    """Crashes after a number of points."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Crash


class FakeClock:
    """Time that only `advance` moves."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now
        self._calls: list[_Call] = []

    def now(self) -> float:
        return self._now

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        call = _Call(at, callback)
        self._calls.append(call)
        return call

    def forget(self) -> None:
        """The process is gone and its timers with it."""
        self._calls.clear()

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while due := min((c for c in self._calls if c.at <= end), key=lambda c: c.at, default=None):
            self._calls.remove(due)
            self._now = max(self._now, due.at)
            if not due.cancelled:
                due.callback()
        self._now = end


@dataclass
class _Call:
    at: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class World:
    """What is really there."""

    clock: FakeClock
    live: dict[Key, tuple[Grant, ...]] = field(default_factory=dict)
    started: set[Key] = field(default_factory=set)
    over: set[Key] = field(default_factory=set)
    launches: Counter[Key] = field(default_factory=Counter)
    resizes: Counter[Key] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    units: dict[str, int] = field(default_factory=dict)
    outbox: list[Event] = field(default_factory=list)

    def launch(self, key: Key, grants: tuple[Grant, ...]) -> None:
        if key in self.live or key in self.over:
            return
        self.launches[key] += 1
        assert not self.succeeded[key[0]], "a workload that has succeeded is run again"
        self._hold(key, grants)

    def resize(self, key: Key, number: int, grants: tuple[Grant, ...]) -> None:
        if key in self.live and number > self.resizes[key]:
            self.resizes[key] = number
            self._hold(key, grants)
            self.outbox.append(AttemptResized(self.clock.now(), *key, resize=number))

    def _hold(self, key: Key, grants: tuple[Grant, ...]) -> None:
        others = {grant.unit for other, held in self.live.items() if other != key for grant in held}
        for grant in grants:
            assert self.units.get(grant.unit) == grant.incarnation, "an attempt on a unit that is not there"
            assert grant.unit not in others, "a unit is held twice"
        self.live[key] = grants

    def start(self, key: Key) -> None:
        if key in self.live and key not in self.started:
            self.started.add(key)
            self.outbox.append(AttemptStarted(self.clock.now(), *key))

    def save(self, key: Key, step: int) -> None:
        if key in self.started and key in self.live:
            self.outbox.append(CheckpointReported(self.clock.now(), *key, uri=f"mem://{step}", step=step))

    def end(self, key: Key, outcome: str, cause: str | None) -> None:
        if self.live.pop(key, None) is not None:
            self.over.add(key)
            self.succeeded[key[0]] += outcome == "succeeded"
            self.outbox.append(AttemptEnded(self.clock.now(), *key, outcome=outcome, cause=cause))  # type: ignore[arg-type]

    def lose_host(self, unit: str) -> None:
        if unit in self.units:
            self.outbox.append(HostChanged(self.clock.now(), unit, self.units[unit], 0, up=False))


class WorldBackend:
    """The backend protocol over a world. `eager` reports from within commands."""

    def __init__(self, world: World, *, eager: bool = False) -> None:
        self.world, self.eager = world, eager
        self.report: Report | None = None
        self.broken: list[tuple[str, str, int, int | None]] = []

    async def open(self, report: Report) -> list[LiveAttempt]:
        self.report = report
        unreported = {(e.workload, e.attempt) for e in self.world.outbox if isinstance(e, AttemptEnded)}
        return [LiveAttempt(*key) for key in sorted({*self.world.live, *unreported})]

    def launch(self, launch: Launch) -> None:
        self.world.launch((launch.command.workload, launch.command.attempt), launch.command.grants)

    def execute(self, command: Command) -> None:
        world, now = self.world, self.world.clock.now()
        match command:
            case StopAttempt(workload=workload, attempt=attempt):
                if (workload, attempt) in world.live:
                    world.end((workload, attempt), "stopped", command.cause)
                else:
                    world.outbox.append(AttemptEnded(now, workload, attempt, "failed", "infrastructure"))
            case ResizeAttempt(workload=workload, attempt=attempt):
                world.resize((workload, attempt), command.resize, command.grants)
            case ProvisionUnit() | RecycleUnit():
                assert not any(g.unit == command.unit for held in world.live.values() for g in held)
                world.units[command.unit] = command.incarnation
                world.outbox.append(UnitAppeared(now, command.pool, command.unit, command.incarnation))
            case ReleaseUnit():
                world.units.pop(command.unit, None)
                world.outbox.append(UnitGone(now, command.unit, command.incarnation))
            case _:
                raise AssertionError(command)
        if self.eager:
            self.flush()

    def flush(self) -> None:
        """Hand in what has happened; an event is forgotten only once it was taken in."""
        assert self.report is not None
        while self.world.outbox:
            event = self.world.outbox[0]
            self.report(event)
            if self.world.outbox and self.world.outbox[0] is event:
                self.world.outbox.pop(0)

    async def close(self) -> None:
        self.report = None

    def chaos(self, kind: str, unit: str, incarnation: int, host: int | None) -> None:
        self.broken.append((kind, unit, incarnation, host))

    def command(self, workload: str, attempt: int, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
        return "1"

    def command_result(self, workload: str, attempt: int, command: str) -> int | None:
        return {"1": 0}[command]


class FragileController(Controller):
    """A controller that a fuse can crash at every point where a process can die between two effects."""

    def __init__(self, fuse: Fuse, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fuse = fuse

    def append(self, *arguments: Any, **options: Any) -> None:
        self.fuse.burn()
        super().append(*arguments, **options)
        self.fuse.burn()

    def fold(self, event: Event) -> list[Command]:
        commands = super().fold(event)
        self.fuse.burn()
        return commands

    def carry_out(self, command: Command) -> None:
        self.fuse.burn()
        super().carry_out(command)
        self.fuse.burn()


class SmallMachine:
    """A machine that plays two units of every TPU topology asked for."""

    def __init__(self, units: int = 2, memory: int | None = 64 * 2**30) -> None:
        self._units, self._memory = units, memory

    def pools(self, parts: Sequence[Part]) -> tuple[Pool, ...]:
        kinds = dict.fromkeys((part.accelerator, part.topology, part.chips) for part in parts)
        return tuple(
            Pool(
                f"{name}-{shape}" if shape else name,
                name,
                shape,
                None,
                chips,
                max(1, chips // 4),
                self._units,
                emulated=True,
            )
            for name, shape, chips in kinds
        )

    def footprint(self, accelerator: str, hosts: int, chips: int) -> int:
        return hosts * 2**30

    def memory(self) -> int | None:
        return self._memory

    def emulates(self, accelerator: str, chips: int) -> bool:
        return True

    def overhead(self) -> int:
        return 0


def job(name: str = "job", *options: str, **keys: Any) -> Any:
    """A job that ships no folder."""
    from stellwerk import spec

    data = {"kind": "job", "name": name, "entrypoint": "run.py", "options": list(options or ("tpu-v6e:4x4",))}
    return spec.Workload.model_validate(data | {"working_dir": "mem://nothing"} | keys)


def home_at(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
