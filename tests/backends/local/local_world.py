"""A local backend under test: events awaited, workloads started, nothing left behind."""

import asyncio
import glob
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stellwerk.backends.local import LocalBackend, processes
from stellwerk.backends.local.capacity import default_fleet
from stellwerk.backends.local.folder import attempt_folder
from stellwerk.backends.local.planning import marker
from stellwerk.backends.local.watching import bury
from stellwerk.backends.protocol import Launch
from stellwerk.scheduling.commands import StartAttempt, StopAttempt
from stellwerk.scheduling.events import AttemptEnded, AttemptStarted, CheckpointReported, Event, HostChanged
from stellwerk.scheduling.model import Fleet, Grant, Option, Part

PATIENCE_S = 240.0
KEY = "k1"


class World:
    """One backend on a home, and what it has reported."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.backend = LocalBackend(home)
        self.events: list[Event] = []
        self._changed = asyncio.Condition()

    def report(self, event: Event) -> None:
        self.events.append(event)
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, kind: type[Any], where: Callable[[Any], bool] = lambda event: True) -> Any:
        """The first event of a kind, once it has come; an attempt that ended before is an error."""

        def found() -> Any:
            return next((event for event in self.events if isinstance(event, kind) and where(event)), None)

        def hopeless() -> bool:
            inside = kind in (AttemptStarted, CheckpointReported, HostChanged)
            return inside and any(isinstance(event, AttemptEnded) for event in self.events)

        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: found() or hopeless())
        assert found() is not None, f"{self.events}\n{self.log('driver')}\n{self.log('start')}"
        return found()

    def launch(self, part: Part, entrypoint: Sequence[str], kind: str = "job", **declaration: Any) -> tuple[Grant, ...]:
        fleet = Fleet(default_fleet([part]))
        pool = fleet.pools[0]
        units = (f"{pool.name}-{number}" for number in range(part.count))
        grants = tuple(Grant("main", n, pool.name, unit, 1, pool.chips, pool.hosts) for n, unit in enumerate(units))
        declared = {"entrypoint": list(entrypoint), "working_dir": str(self.home / "code"), **declaration}
        command = StartAttempt(KEY, 1, 0, grants)
        self.backend.launch(Launch(command, "test", kind, Option("short", (part,)), declared, fleet))
        return grants

    def stop(self, cause: Any = "stopped-by-user", grace: float = 0.0) -> None:
        self.backend.execute(StopAttempt(KEY, 1, cause, grace))

    def log(self, source: str) -> str:
        file = attempt_folder(self.home, KEY, 1).logs / f"{source}.log"
        return file.read_text() if file.exists() else ""

    def living(self) -> list[int]:
        return processes.marked(processes.MARKER, marker(self.home, KEY, 1))

    def bury(self) -> None:
        folder = attempt_folder(self.home, KEY, 1)
        if folder.planned():
            bury(folder, folder.plan())

    def assert_nothing_left(self) -> None:
        run_dir = attempt_folder(self.home, KEY, 1).plan()["run_dir"]
        keeper = [pid for pid in self.living() if "stellwerk.backends.local.keeper" in processes.command_line(pid)]
        assert [pid for pid in self.living() if pid not in keeper] == []
        assert glob.glob(run_dir) == []


@asynccontextmanager
async def world(home: Path):
    """A world whose attempt is killed if the test leaves it running."""
    one = World(home)
    assert await one.backend.open(one.report) == []
    try:
        yield one
    finally:
        await one.backend.close()
        one.bury()
