"""The controller's process: `python -m stellwerk.api --home FOLDER`.

Exit codes: 0 ended as asked or for want of work, 1 failed, 2 a setting is wrong (controller.log has the cause of both),
3 another controller runs. SIGTERM and SIGINT end the controller alone; workloads keep running, and the next controller
adopts them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from stellwerk import __version__
from stellwerk.api.server import Site, create_app
from stellwerk.backends.protocol import Backend
from stellwerk.controller.archive import ARCHIVE_AGE, archive
from stellwerk.controller.home import Home
from stellwerk.controller.intake import Machine
from stellwerk.controller.log import Log, LogError
from stellwerk.controller.loop import Controller
from stellwerk.controller.machine import LocalMachine
from stellwerk.controller.recovery import recover
from stellwerk.controller.submission import Submissions
from stellwerk.controller.times import rfc3339
from stellwerk.spec.problems import Flaw
from stellwerk.spec.values import parse_duration

IDLE_TIMEOUT = "STELLWERK_IDLE_TIMEOUT"
"""Environment variable: seconds without work after which the controller ends by itself."""
ONE_HOUR = 3600.0
STOPPING = 60.0
"""Seconds that workloads have to end when the controller was asked to end them."""
ARCHIVE_AFTER = "STELLWERK_ARCHIVE_AFTER"
"""Environment variable: the age, for example `90d`, after which events leave the database for the archive."""
_TIDY = 30.0  # s between two looks for bundles that nobody needs
_ARCHIVING = 86_400.0  # s between two looks for events to be archived
_LOOKING, _LOOKING_SHARE = 60.0, 20.0  # s between two looks ahead, and at least so many times what one takes

_log = logging.getLogger("stellwerk.controller")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a controller until it is told to end; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m stellwerk.api", description="Stellwerk's controller.")
    parser.add_argument("--home", type=Path, required=True, help="the state folder")
    home = Home(parser.parse_args(arguments).home.absolute())
    if not home.lock():
        print(f"another controller runs for {home.folder}", file=sys.stderr)
        return 3
    _set_up_logging(home.folder / "controller.log")
    try:
        age = _archive_after()
        log = Log.at(home.folder / "log.db")
        return asyncio.run(_Process(home, log, _backend(home.folder), LocalMachine(), age).run())
    except Flaw as flaw:
        _log.error("%s", flaw)
        return 2
    except LogError as error:
        _log.error("%s", error)
    except Exception:
        _log.exception("the controller failed")
    finally:
        home.retire()
    return 1


class _Process:
    """One run of a controller with its API."""

    def __init__(self, home: Home, log: Log, backend: Backend, machine: Machine, archive_after: float) -> None:
        self._home, self._log, self._backend, self._machine = home, log, backend, machine
        self._archive_after = archive_after
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_timeout = float(os.environ.get(IDLE_TIMEOUT) or ONE_HOUR)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        controller = Controller(self._home.folder, self._backend, self._log)
        try:
            await recover(controller)
            await asyncio.to_thread(self._machine.pools, ())  # looks for the machine's own accelerators, once
            await self._serve(controller)
        finally:
            await controller.close()
        return int(controller.failed.is_set())

    async def _serve(self, controller: Controller) -> None:
        """Answer requests until it is time to end."""
        submissions = Submissions(controller, self._machine)
        submissions.prune()
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        about = _about(port, controller.clock.now())
        site = Site(self._home.token(), lambda: about | {"home": str(self._home.folder)}, self._shut_down(controller))
        site.hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        site.ready(controller, submissions)
        server = _Server(_configured(site))
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0)
        self._home.announce(about)
        _log.info("listening on %s", about["url"])
        beside = [asyncio.create_task(each(controller)) for each in (self._archive, self._look_ahead)]
        await self._until_the_end(controller, submissions)
        for task in beside:
            task.cancel()
        self._home.retire()
        server.should_exit = True
        controller.end_waits()
        await serving

    async def _until_the_end(self, controller: Controller, submissions: Submissions) -> None:
        """Return when told to end, when the controller has failed, or after too long without work."""
        while not (self._ending.is_set() or controller.failed.is_set()):
            left = controller.busy_at + self._idle_timeout - controller.clock.now()
            if controller.living == 0 and left <= 0:
                _log.info("ending: no work for %.0f s", self._idle_timeout)
                return
            submissions.prune()
            await self._wait(controller, _TIDY if controller.living else min(left, _TIDY))

    async def _archive(self, controller: Controller) -> None:
        """Archive what is old enough now, and once a day after a snapshot; what fails is tried again then."""
        while not controller.failed.is_set():
            older_than = controller.clock.now() - self._archive_after
            try:
                await archive(self._log, before=controller.snapshots.before(), older_than=older_than)
            except Exception:
                _log.exception("events could not be archived")
            await asyncio.sleep(_ARCHIVING)
            controller.snapshot()

    async def _look_ahead(self, controller: Controller) -> None:
        """Foretell the starts of those who wait, also when nobody asks, so that it is known how good that is."""
        while not controller.failed.is_set():
            began = time.perf_counter()
            if controller.scheduler.book.waiting:
                try:
                    await controller.outlooks.of_all(controller.state, controller.clock.now())
                except Exception:
                    _log.exception("no forecast could be made")
            await asyncio.sleep(max(_LOOKING, _LOOKING_SHARE * (time.perf_counter() - began)))

    async def _wait(self, controller: Controller, seconds: float) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._ending, controller.failed)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _shut_down(self, controller: Controller) -> Any:
        def shut_down(stop_workloads: bool) -> None:
            task = asyncio.create_task(self._end(controller, stop_workloads))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return shut_down

    async def _end(self, controller: Controller, stop_workloads: bool) -> None:
        if stop_workloads:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOPPING):
                    await _stop_all(controller)
        self._ending.set()


async def _stop_all(controller: Controller) -> None:
    for workload in list(controller.state.workloads.values()):
        if workload.phase != "ended":
            controller.request_stop(workload.key, 10.0)
    while controller.living:
        await controller.news(STOPPING)


class _Server(uvicorn.Server):
    """Leaves signals to the controller."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def _configured(site: Site) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(site),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )


def _about(port: int, now: float) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}"
    return {"pid": os.getpid(), "url": url, "version": __version__, "started": rfc3339(now), "on": "local"}


def _archive_after() -> float:
    """The age (s) after which events are archived; raises Flaw."""
    text = os.environ.get(ARCHIVE_AFTER)
    if not text:
        return ARCHIVE_AGE
    try:
        return parse_duration(text)
    except Flaw as flaw:
        raise Flaw(flaw.code, f"{ARCHIVE_AFTER}: {flaw.message}", flaw.mend) from None


def _backend(home: Path) -> Backend:
    from stellwerk.backends.local import LocalBackend

    return LocalBackend(home)


def _set_up_logging(file: Path) -> None:
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    handlers: list[logging.Handler] = [logging.FileHandler(file)]
    if sys.stderr.isatty():
        handlers.append(logging.StreamHandler())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=handlers)


if __name__ == "__main__":
    sys.exit(main())
