"""A controller whose log holds a million events: `python -m benchmarks.recovery [--events N] [--json FILE]`.

The log is made by the real scheduler over a world that answers its commands: 48 TPU slices and 24 GPU nodes, three
queues, workloads that run, save, fail now and then, and end. A snapshot was taken every so many events, as a controller
does, and the controller was killed just before the next was due: the worst case.

Then, each in a process of its own:

* `replay` folds all events from the first on;
* `back` is a controller's start: from the beginning of the process, with all that the controller imports, to the moment
  at which it has folded what the snapshot lacks, agreed with its backend, and would answer. Best, median and worst of
  five.

Both must come to the same state byte for byte, and to the same tables of what is over.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measuring import MEBIBYTE, interpreter, peak_mib

GOAL = 5.0
REPEATS = 5
BEGIN = 1_700_000_000.0


class World:
    """A scheduler and a world that does what it says; `events` are in order, with a snapshot every so often."""

    def __init__(self, seed: int, every: int) -> None:
        from stellwerk.scheduling.scheduler import Scheduler

        self._rng, self._every = random.Random(seed), every
        self._scheduler = Scheduler()
        self._due: list[tuple[float, int, Any]] = []
        self._number, self._told = count(), 0

    def events(self, total: int) -> Iterator[Any]:
        """So many events."""
        from stellwerk.scheduling import events as ev

        self._later(0.0, ev.FleetChanged(BEGIN, _fleet()))
        self._later(1.0, None)
        while self._told < total:
            at, _, event = heappop(self._due)
            if event is None:
                event = ev.Submitted(at, self._demand())
                self._later(self._rng.expovariate(1 / 20.0), None)
            yield from self._tell(event)
            if self._told % self._every == 1:
                yield from self._tell(ev.SnapshotTaken(at))

    def _tell(self, event: Any) -> Iterator[Any]:
        self._told += 1
        yield event
        for command in self._scheduler.handle(event):
            self._obey(command)

    def _later(self, seconds: float, event: Any) -> None:
        at = max(BEGIN, self._scheduler.state.now) + seconds
        heappush(self._due, (at if event is None else event.at, next(self._number), event))

    def _obey(self, command: Any) -> None:
        from stellwerk.scheduling import commands as cmd
        from stellwerk.scheduling import events as ev

        now, rng = self._scheduler.state.now, self._rng
        match command:
            case cmd.StartAttempt(key, number):
                runs = rng.expovariate(1 / 600.0)
                self._later(0.0, ev.AttemptStarted(now + 5.0, key, number))
                if runs > 300.0:
                    self._later(0.0, ev.CheckpointReported(now + 5.0 + runs / 2, key, number, f"file:///{key}", 1))
                failed = rng.random() < 0.05
                outcome, cause = ("failed", "user-error") if failed else ("succeeded", None)
                self._later(0.0, ev.AttemptEnded(now + 5.0 + runs, key, number, outcome, cause))
            case cmd.StopAttempt(key, number, cause):
                self._later(0.0, ev.AttemptEnded(now + 1.0, key, number, "stopped", cause))
            case cmd.ProvisionUnit(pool, unit, incarnation) | cmd.RecycleUnit(pool, unit, incarnation):
                self._later(0.0, ev.UnitAppeared(now + 60.0, pool, unit, incarnation))
                broken = now + 60.0 + rng.expovariate(1 / 2e6)
                self._later(0.0, ev.HostChanged(broken, unit, incarnation, 0, up=False))
            case cmd.ReleaseUnit(unit, incarnation):
                self._later(0.0, ev.UnitGone(now, unit, incarnation))
            case cmd.WakeAt(at):
                self._later(0.0, ev.Woke(at))

    def _demand(self) -> Any:
        from stellwerk.scheduling.model import Demand, Option, Part

        rng, number = self._rng, next(self._number)
        if rng.random() < 0.5:
            slices = rng.choice([1, 1, 1, 2, 4])
            option = Option(f"tpu-v6e:4x4*{slices}", (Part("main", "tpu-v6e", "4x4", 16, slices),))
        else:
            chips = rng.choice([1, 1, 2, 4, 8])
            option = Option(f"h100:{chips}", (Part("main", "h100", None, chips),))
        key = f"work-{number:07}"
        return Demand(
            key, f"work-{number % 500}", "train", (option,), rng.choice("abc"), runtime=900.0, retries=1, user="ann"
        )


def _fleet() -> Any:
    from stellwerk.scheduling.model import Fleet, Pool, Queue

    slices = Pool("trillium", "tpu-v6e", "4x4", "ct6e-standard-4t", 16, 4, 48, 48, price=2.7)
    nodes = Pool("h100", "h100", None, "a3-highgpu-8g", 8, 1, 24, 24, price=9.8)
    return Fleet((slices, nodes), (Queue("a", weight=2.0), Queue("b"), Queue("c")))


def make(home: Path, events: int, every: int) -> int:
    """Write the log; how many events it has."""
    from stellwerk.controller import tables
    from stellwerk.controller.log import Log
    from stellwerk.scheduling.codec import encode

    log, rows, made = Log.at(home / "log.db"), list[dict[str, Any]](), 0
    for event in World(0, every).events(events):
        rows.append({"at": event.at, "type": type(event).__name__, "payload": encode(event)})
        made += 1
        if len(rows) == 10_000 or made >= events:
            with log._connection.begin():
                log._connection.execute(tables.events.insert(), rows)
            rows.clear()
    log.close()
    return made


class Idle:
    """A backend on which everything runs that should, and that does nothing."""

    def __init__(self) -> None:
        self.controller: Any = None

    async def open(self, report: Any) -> list[Any]:
        from stellwerk.backends.protocol import LiveAttempt

        live = [workload for workload in self.controller.state.workloads.values() if workload.live]
        return [LiveAttempt(workload.key, workload.attempts[-1].number) for workload in live]

    def launch(self, launch: Any) -> None:
        """Nothing."""

    def execute(self, command: Any) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""


def _controller(home: Path) -> Any:
    import stellwerk.api.__main__  # noqa: F401  (all that the controller's process imports)
    from stellwerk.controller.log import Log
    from stellwerk.controller.loop import Controller

    backend = Idle()
    backend.controller = Controller(home, backend, Log.at(home / "log.db"))
    return backend.controller


def replay(home: Path) -> dict[str, Any]:
    """Fold all events; the last two snapshots of the log are written on the way, as they were when they were taken."""
    began = time.perf_counter()
    controller = _controller(home)
    taken, stall = _taken(controller)[-2:], 0.0
    for seq, event in controller.log.events():
        before = time.perf_counter()
        controller._live = seq in taken
        controller.fold(event)
        controller.folded = seq
        controller.write_gone()
        if seq in taken:
            stall = max(stall, time.perf_counter() - before)
    seconds = time.perf_counter() - began
    controller.snapshots.wait()
    return {"seconds": seconds, "stall_s": stall} | _known(controller) | _sizes(home)


def start(home: Path) -> dict[str, Any]:
    """Start from the snapshot and the events after it, without a word to a backend."""
    from stellwerk.controller.recovery import restore

    controller = _controller(home)
    restore(controller)
    return _known(controller)


def back(home: Path) -> dict[str, Any]:
    """Start as a controller does; the line that says so is timed from outside."""
    from stellwerk.controller.recovery import recover

    began = time.perf_counter()
    controller = _controller(home)
    imported = time.perf_counter()
    asyncio.run(recover(controller))
    found = {"imports_s": imported - began, "recovery_s": time.perf_counter() - imported, "cpu_s": time.process_time()}
    print("back", flush=True)
    return found | {"living": controller.living} | _sizes(home)


def _taken(controller: Any) -> list[int]:
    from stellwerk.controller import tables

    chosen = tables.events.select().where(tables.events.c.type == "SnapshotTaken").order_by(tables.events.c.seq)
    return [row.seq for row in controller.log._read(chosen)]


def _known(controller: Any) -> dict[str, Any]:
    """Digests of all that is folded, and of the tables of what is over."""
    from stellwerk.controller import tables

    controller.write_gone(0)
    found = {name: hashlib.sha256(line.encode()).hexdigest() for name, line in controller.dump().items()}
    for table in (tables.ended, tables.spans):
        columns = [column for column in table.c if column.name not in ("id", "upto")]
        rows = controller.log._read(table.select().with_only_columns(*columns).order_by(*columns))
        found[table.name] = hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()
    return {"digests": found, "ended": len(controller.log.past.names())}


def _sizes(home: Path) -> dict[str, float]:
    snapshot = max((file.stat().st_size for file in (home / "snapshots").glob("*.jsonl")), default=0)
    log = sum(file.stat().st_size for file in home.glob("log.db*"))
    return {"memory_mb": peak_mib(), "log_mb": log / MEBIBYTE, "snapshot_mb": snapshot / MEBIBYTE}


STEPS = {"replay": replay, "start": start, "back": back}


def separate(step: str, home: Path) -> dict[str, Any]:
    """Run a step in a process of its own; `wall_s` is from its start to its first line."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.recovery", "--step", step, "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        wall = time.perf_counter() - began
        rest = process.stdout.read()
    if process.returncode:
        sys.exit(f"the step {step} failed")
    return json.loads(rest or first) | {"wall_s": wall}


def measure(home: Path, events: int) -> dict[str, Any]:
    """All figures."""
    from stellwerk.controller.snapshot import EVERY

    began = time.perf_counter()
    print(f"making a log of {events} events ...", file=sys.stderr, flush=True)
    made = make(home, events, EVERY)
    print(f"made in {time.perf_counter() - began:.0f} s; folding all of it ...", file=sys.stderr, flush=True)
    replayed = separate("replay", home)
    started = separate("start", home)
    starts = [separate("back", home) for _ in range(REPEATS)]
    times = sorted(each["wall_s"] for each in starts)
    return {
        "on": interpreter(),
        "events": made,
        "ended": replayed["ended"],
        "living": starts[0]["living"],
        "back_s": {"best": times[0], "median": statistics.median(times), "worst": times[-1]},
        "cpu_s": statistics.median(each["cpu_s"] for each in starts),
        "imports_s": statistics.median(each["imports_s"] for each in starts),
        "recovery_s": statistics.median(each["recovery_s"] for each in starts),
        "memory_mb": max(each["memory_mb"] for each in starts),
        "replay_s": replayed["seconds"],
        "replay_memory_mb": replayed["memory_mb"],
        "snapshot_stall_s": replayed["stall_s"],
        "snapshot_mb": replayed["snapshot_mb"],
        "log_mb": replayed["log_mb"],
        "equal": replayed["digests"] == started["digests"],
        "digests": replayed["digests"],
        "goal_s": GOAL,
    }


def show(found: dict[str, Any]) -> None:
    """The figures as a Markdown table."""
    times = found["back_s"]
    rows = [
        ("events in the log", f"{found['events']:,}", ""),
        ("workloads that ended, that live", f"{found['ended']:,}, {found['living']:,}", ""),
        ("back, whole process: best (s)", f"{times['best']:.2f}", ""),
        ("back, whole process: median (s)", f"{times['median']:.2f}", f"<= {found['goal_s']:g}"),
        ("back, whole process: worst (s)", f"{times['worst']:.2f}", ""),
        ("of it CPU time (s)", f"{found['cpu_s']:.2f}", ""),
        ("of it imports, recovery (s)", f"{found['imports_s']:.2f}, {found['recovery_s']:.2f}", ""),
        ("its memory (MB)", f"{found['memory_mb']:.0f}", ""),
        ("replay from the first event (s)", f"{found['replay_s']:.0f}", ""),
        ("taking a snapshot stalls the loop (s)", f"{found['snapshot_stall_s']:.3f}", ""),
        ("snapshot, log (MB)", f"{found['snapshot_mb']:.2f}, {found['log_mb']:.0f}", ""),
        ("equal, byte for byte", "yes" if found["equal"] else "NO", "yes"),
    ]
    print("| figure | value | goal |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> None:
    """Measure; exit code 1 when the goal is missed or the states differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(STEPS[arguments.step](arguments.home)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), arguments.events)
    show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(not (found["equal"] and found["back_s"]["median"] <= GOAL))


if __name__ == "__main__":
    main()
