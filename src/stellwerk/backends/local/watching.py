"""The controller's side of one attempt: its keeper's records as they come, orders to the keeper, the end of both."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stellwerk.backends.local import processes
from stellwerk.backends.local.folder import AttemptFolder
from stellwerk.backends.local.journal import Journal, JournalReader, Record, ended, read
from stellwerk.backends.local.outcomes import Ending
from stellwerk.backends.local.resizing import resize_order
from stellwerk.scheduling.commands import ResizeAttempt

_APPEAR_S = 30.0
"""How long a new keeper may take until it listens."""
_STEP_S = 0.02

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Watch:
    """One attempt under watch. `tell` is called with every record that the controller does not yet have."""

    def __init__(self, folder: AttemptFolder, tell: Callable[[Watch, Record], None]) -> None:
        """The attempt has a plan; `spawn` gives it a keeper, `follow` watches until it has ended."""
        self.folder, self._tell = folder, tell
        self.plan = folder.plan()
        self._reader = JournalReader(folder.journal)
        self._keeper: int | None = None
        self.over = False
        self.results: dict[str, int | None] = {}
        self.present: list[dict[str, Any]] = list(self.plan["hosts"])
        """The hosts that the attempt has; while it is resized, also those that it had."""
        self.numbers = len(self.present)
        """The number of the next new host."""
        self._units: dict[str, int] = dict(self.plan["units"])

    @property
    def units(self) -> dict[str, int]:
        """Unit -> incarnation that the attempt holds; while it is resized, also what it held."""
        return self._units

    def hosts(self, unit: str, index: int | None = None) -> list[str]:
        """Names of the hosts that the attempt has of a unit, in order; with `index` of that one alone."""
        return [host["name"] for host in self.present if host["unit"] == unit and index in (None, host["index"])]

    def spawn(self) -> None:
        """Start the attempt's keeper, in a session of its own: it survives the controller."""
        log = str(self.folder.logs / "keeper.log")
        self._keeper = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "stellwerk.backends.local.keeper", str(self.folder.path)],
            self.plan["base"] | {processes.MARKER: self.plan["marker"]},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def order(self, op: str, **fields: Any) -> bool:
        """Give the keeper an order; False when there is none to take it."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(self.plan["socket"])
                connection.sendall((json.dumps({"op": op, **fields}) + "\n").encode())
                return True
        except OSError:
            return False

    async def stop(self, cause: str, grace: float) -> None:
        """Give the order to stop, as soon as the keeper listens; one that is gone needs none."""
        while not self.over and not self.order("stop", cause=cause, grace=grace):
            if self._keeper_is_gone() and not self.folder.kept():
                return
            await asyncio.sleep(_STEP_S)

    async def resize(self, command: ResizeAttempt) -> None:
        """Give the order to resize, as soon as the keeper listens; the end of an attempt is told in any case."""
        while not self.over:
            order = resize_order(self.plan, self.present, self.numbers, command)
            if self.order("resize", **order) or (self._keeper_is_gone() and not self.folder.kept()):
                return
            await asyncio.sleep(_STEP_S)

    async def follow(self) -> None:
        """Tell every record until the end; an attempt whose keeper is gone is cleaned up and told as lost."""
        self._take()
        while not self.over:
            connection = await self._connect()
            if connection is not None:
                await self._listen(connection)
            self._take()
            if not self.over and not self.folder.kept() and self._keeper_is_gone():
                self._take()
                if not self.over:
                    await asyncio.to_thread(self._bury)
                    self._take()
        await self._collect()

    async def _connect(self) -> _Connection | None:
        """A connection to the keeper, once it listens; None when it is gone."""
        for _ in range(int(_APPEAR_S / _STEP_S)):
            with suppress(OSError):
                return await asyncio.open_unix_connection(self.plan["socket"])
            if self._keeper_is_gone() and not self.folder.kept():
                return None
            await asyncio.sleep(_STEP_S)
        return None

    async def _listen(self, connection: _Connection) -> None:
        reader, writer = connection
        try:
            self._take()
            while not self.over and await reader.read(4096):
                self._take()
        except OSError:
            pass
        finally:
            writer.close()

    def _take(self) -> None:
        for record in self._reader.read():
            self.learn(record)
            if record["seq"] > self.folder.acked():
                self._tell(self, record)
                self.folder.ack(record["seq"])
            self.over = self.over or record["kind"] == "ended"

    def learn(self, record: Record) -> None:
        """Take a record into account."""
        match record["kind"]:
            case "command" | "command-ended":
                self.results[record["id"]] = record.get("exit_code")
            case "resizing":
                known = {host["number"] for host in self.present}
                self.present = [*self.present, *(host for host in record["hosts"] if host["number"] not in known)]
                self.numbers = max(self.numbers, 1 + max((host["number"] for host in self.present), default=-1))
                self._units = self._units | dict(record["units"])
            case "resized":
                self.present, self._units = list(record["hosts"]), dict(record["units"])
            case _:
                pass

    def _keeper_is_gone(self) -> bool:
        """Whether the keeper that was spawned here has ended; true too where none was."""
        if self._keeper is not None:
            with suppress(ChildProcessError):
                if os.waitpid(self._keeper, os.WNOHANG) == (0, 0):
                    return False
            self._keeper = None
        return True

    async def _collect(self) -> None:
        """Reap the keeper, which ends by itself."""
        while not self._keeper_is_gone():
            await asyncio.sleep(_STEP_S)

    def _bury(self) -> None:
        """Clean up after a keeper that was killed, and write the end that it could not write."""
        bury(self.folder, self.plan)


def bury(folder: AttemptFolder, plan: Mapping[str, Any]) -> None:
    """End every process of an attempt that has no keeper, remove its temporary folder, write its end."""

    def strays() -> list[int]:
        return processes.of_attempt(plan["marker"], folder.work)

    left = processes.sweep(strays)
    processes.remove_folder(Path(plan["run_dir"]), strays)
    if ended(read(folder.journal)) is not None:
        return
    ending = Ending("failed", "infrastructure", "the keeper of the attempt was killed")
    if left:
        ending = ending.with_note(f"{len(left)} processes could not be ended")
    journal = Journal(folder.journal)
    journal.append("ended", **ending.to_json())
    journal.close()


def write_token(plan: Mapping[str, Any]) -> None:
    """Put the attempt's token where Ray reads it, for this user alone."""
    file = os.open(plan["token_file"], os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(file, "w") as writer:
        writer.write(plan["token"])
