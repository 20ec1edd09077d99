"""The local backend: one machine plays the fleet, an attempt gets its own Ray cluster.

Nothing of an attempt hangs on the controller's process: a keeper per attempt does the work and writes a journal, and
this class turns its records into events. After a restart it reads the journals again, goes on with the keepers that
live, and cleans up after those that do not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from stellwerk.backends.local.folder import AttemptFolder, attempt_folder, attempt_folders
from stellwerk.backends.local.journal import Record, ended, read
from stellwerk.backends.local.planning import make_plan
from stellwerk.backends.local.watching import Watch, write_token
from stellwerk.backends.protocol import Launch, LiveAttempt, Report
from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.model import Cause, Outcome

PREEMPTION_NOTICE_S = 30.0
"""What a spot machine is given from the notice to its end."""

_log = logging.getLogger("stellwerk.backends.local")


class LocalBackend:
    """Implements `stellwerk.backends.protocol.Backend` on this machine; use it on one asyncio loop."""

    def __init__(self, home: Path) -> None:
        """`home` is the state folder; attempts keep their files in `home/workloads`."""
        self._home = home.absolute()
        self._watches: dict[tuple[str, int], Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: list[cmd.RecycleUnit | cmd.ReleaseUnit] = []
        self._report: Report = _nobody

    async def open(self, report: Report) -> list[LiveAttempt]:
        """Begin reporting; the attempts whose end the controller does not have yet."""
        self._report = report
        for folder in attempt_folders(self._home):
            if _is_open(folder):
                self._watch(folder)
        return [LiveAttempt(workload, attempt) for workload, attempt in self._watches]

    async def close(self) -> None:
        """Stop reporting; what runs keeps running."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._report = _nobody

    def launch(self, launch: Launch) -> None:
        """Start an attempt; one that exists already is gone on with, or, when it has ended, told again."""
        key = (launch.command.workload, launch.command.attempt)
        if key in self._watches:
            return
        folder = attempt_folder(self._home, *key)
        if folder.planned():
            _tell_end_again(folder)
        else:
            try:
                folder.create(make_plan(self._home, folder, launch, self._taken_gpus()))
            except (KeyError, ValueError, OSError) as error:
                self._refuse(launch.command, error)
                return
        self._watch(folder)

    def execute(self, command: cmd.Command) -> None:
        """Carry out any other command."""
        match command:
            case cmd.StopAttempt():
                self._stop(command)
            case cmd.ResizeAttempt():
                self._resize(command)
            case cmd.ProvisionUnit(pool, unit, incarnation):
                self._soon(ev.UnitAppeared(time.time(), pool, unit, incarnation))
            case cmd.ReleaseUnit() | cmd.RecycleUnit():
                self._waiting.append(command)
                asyncio.get_running_loop().call_soon(self._settle_units)
            case cmd.StartAttempt() | cmd.WakeAt():
                raise TypeError(f"{type(command).__name__} is not for a backend's execute")

    def chaos(self, kind: str, unit: str, incarnation: int, host: int | None = None) -> None:
        """Break a unit on purpose: `kill-host` a host, `kill-unit` all hosts, `preempt` after a notice."""
        if kind == "preempt":
            self._preempt(unit, incarnation)
            return
        struck = False
        for watch in self._holders(unit, incarnation):
            names = watch.hosts(unit, None if kind == "kill-unit" else host)
            struck = (bool(names) and watch.order("kill", hosts=names)) or struck
        if not struck:
            detail = f"chaos {kind}"
            self._soon(ev.HostChanged(time.time(), unit, incarnation, host or 0, up=False, detail=detail))

    def command(self, workload: str, attempt: int, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
        """Run a command as a driver in a running attempt's cluster; its id, which names its log `command-ID.log`."""
        watch = self._watches[workload, attempt]
        identity = str(len(watch.results) + 1)
        watch.results[identity] = None
        if not watch.order("command", id=identity, argv=list(argv), env=dict(env), cwd=cwd):
            watch.results[identity] = 1
        return identity

    def command_result(self, workload: str, attempt: int, command: str) -> int | None:
        """A command's exit code, None while it runs; KeyError when there is no such command."""
        watch = self._watches.get((workload, attempt))
        if watch is not None and not watch.over:
            return watch.results[command]
        codes = {record["id"]: record.get("exit_code", 1) for record in _records(self._home, workload, attempt)
                 if record["kind"] in ("command", "command-ended")}  # fmt: skip
        return codes[command]

    def _watch(self, folder: AttemptFolder) -> None:
        watch = Watch(folder, self._tell)
        if not folder.began() and not folder.kept():
            write_token(watch.plan)
            watch.spawn()
        self._watches[folder.workload, folder.attempt] = watch
        self._run(self._follow(watch))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, watch: Watch) -> None:
        try:
            await watch.follow()
        except Exception:
            _log.exception("watching %s failed", watch.folder.path)
            raise
        del self._watches[watch.folder.workload, watch.folder.attempt]
        self._settle_units()

    def _tell(self, watch: Watch, record: Record) -> None:
        """The event that a record means to the scheduler, if any."""
        at, workload, attempt = record["at"], watch.folder.workload, watch.folder.attempt
        match record["kind"]:
            case "started":
                self._report(ev.AttemptStarted(at, workload, attempt))
            case "checkpoint":
                self._report(ev.CheckpointReported(at, workload, attempt, record["uri"], record["step"]))
            case "host-lost":
                unit, incarnation, host = record["unit"], record["incarnation"], record["index"]
                self._report(ev.HostChanged(at, unit, incarnation, host, up=False, detail=record["detail"]))
            case "resized":
                self._report(ev.AttemptResized(at, workload, attempt, record["resize"]))
                self._settle_units()
            case "ended":
                outcome, cause = cast("Outcome", record["outcome"]), cast("Cause | None", record["cause"])
                message, code = record["message"], record["exit_code"]
                self._report(ev.AttemptEnded(at, workload, attempt, outcome, cause, message, code))
            case _:
                pass

    def _stop(self, command: cmd.StopAttempt) -> None:
        watch = self._watches.get((command.workload, command.attempt))
        if watch is None:
            folder = attempt_folder(self._home, command.workload, command.attempt)
            if folder.planned():
                _tell_end_again(folder)
                self._watch(folder)
            else:
                self._soon(ev.AttemptEnded(time.time(), command.workload, command.attempt, "stopped", command.cause))
            return
        self._run(watch.stop(command.cause, command.grace))

    def _resize(self, command: cmd.ResizeAttempt) -> None:
        """Hand the order to the keeper; an attempt that is not watched is over, and its end answers."""
        watch = self._watches.get((command.workload, command.attempt))
        if watch is not None:
            self._run(watch.resize(command))

    def _settle_units(self) -> None:
        """Answer for the units of which nothing is left."""
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            if any(command.unit in watch.units for watch in self._watches.values()):
                self._waiting.append(command)
            elif isinstance(command, cmd.RecycleUnit):
                self._report(ev.UnitAppeared(time.time(), command.pool, command.unit, command.incarnation))
            else:
                self._report(ev.UnitGone(time.time(), command.unit, command.incarnation, "released"))

    def _preempt(self, unit: str, incarnation: int) -> None:
        deadline = time.time() + PREEMPTION_NOTICE_S
        self._soon(ev.DrainNoticed(time.time(), unit, incarnation, deadline))
        asyncio.get_running_loop().call_later(PREEMPTION_NOTICE_S, self._take_away, unit, incarnation)

    def _take_away(self, unit: str, incarnation: int) -> None:
        for watch in self._holders(unit, incarnation):
            watch.order("kill", hosts=watch.hosts(unit))
        self._report(ev.UnitGone(time.time(), unit, incarnation, "preempted"))

    def _holders(self, unit: str, incarnation: int) -> list[Watch]:
        return [watch for watch in self._watches.values() if watch.units.get(unit) == incarnation and not watch.over]

    def _taken_gpus(self) -> dict[str, set[int]]:
        taken: dict[str, set[int]] = {}
        for watch in self._watches.values():
            for unit, indices in watch.plan["gpus"].items():
                taken.setdefault(unit, set()).update(indices)
        return taken

    def _refuse(self, command: cmd.StartAttempt, error: Exception) -> None:
        message = f"the attempt cannot be planned: {type(error).__name__}: {error}"
        ended_now = ev.AttemptEnded(time.time(), command.workload, command.attempt, "failed", "infrastructure", message)
        self._soon(ended_now)

    def _soon(self, event: ev.Event) -> None:
        """Report after the caller has returned: it may be in the middle of handling an event."""
        asyncio.get_running_loop().call_soon(lambda: self._report(event))


def _is_open(folder: AttemptFolder) -> bool:
    end = ended(read(folder.journal))
    return end is None or end["seq"] > folder.acked()


def _tell_end_again(folder: AttemptFolder) -> None:
    end = ended(read(folder.journal))
    if end is not None:
        folder.ack(end["seq"] - 1)


def _records(home: Path, workload: str, attempt: int) -> list[Record]:
    return read(attempt_folder(home, workload, attempt).journal)


def _nobody(event: ev.Event) -> None:
    pass
