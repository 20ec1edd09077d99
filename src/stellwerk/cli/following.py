"""Following a workload until it has ended: its states, its reports, and the log of its driver.

Two long polls run side by side, one for what happens and one (in a thread) for the log, attempt after attempt. A
controller that goes away is waited for: the workload does not need it to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from stellwerk.api.errors import ApiError, NoController

if TYPE_CHECKING:
    from stellwerk.api.client import Client

_WATCH = 20.0  # s, one long poll
_LOG = 2.0  # s; short, since the end of an attempt is only seen between two polls
_PATIENCE = 60.0  # s without a controller before giving up
_RETRY = 0.5  # s

Item = Mapping[str, Any]


class Screen(Protocol):
    """Where it is shown."""

    def item(self, item: Item) -> None:
        """Something happened: `{kind, message, data}`."""
        ...

    def log(self, line: str) -> None:
        """One line of the driver's log."""
        ...

    def note(self, text: str) -> None:
        """A remark of Stellwerk's own."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class Follower:
    """Follows one workload; after an interruption it can be told to go on where it was."""

    def __init__(self, client: Client, name: str, screen: Screen, also: Callable[[Item], None] | None = None) -> None:
        self.client = client
        self.name = name
        self.screen = screen
        self.also = also
        self._after = 0
        self._log = _Log(client, name, screen.log)

    def follow(self, until: str = "ended") -> dict[str, Any]:
        """Show everything until the workload is in state `until` or has ended; return it as it then is."""
        self._log.start()
        try:
            while True:
                news = self._news()
                self._after = news["seq"]
                self._log.go_on(news["workload"]["attempt"] or 0)
                for item in news["items"]:
                    self.screen.item(item)
                    if self.also:
                        self.also(item)
                if news["ended"] or news["workload"]["state"] == until:
                    self._log.finish()
                    return news["workload"]
        finally:
            self._log.stop()
            self.screen.close()

    def _news(self) -> dict[str, Any]:
        given_up = time.monotonic() + _PATIENCE
        gone = False
        while True:
            try:
                return self.client.watch(self.name, self._after, _WATCH)
            except NoController:
                if time.monotonic() > given_up:
                    raise
            if not gone:
                gone = True
                self.screen.note("the controller is gone; the workload goes on without it (start one: stellwerk up)")
            time.sleep(_RETRY)


class _Log:
    """Reads the driver's log of every attempt in turn, line by line."""

    def __init__(self, client: Client, name: str, show: Callable[[str], None]) -> None:
        self._client = client
        self._name = name
        self._show = show
        self._attempts = 0
        self._attempt = 1
        self._offset = 0
        self._partial = ""
        self._news = threading.Event()
        self._done = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read, or go on reading."""
        self._done = self._stopped = False
        self._thread = threading.Thread(target=self._read, name="log", daemon=True)
        self._thread.start()

    def go_on(self, attempts: int) -> None:
        """There are so many attempts now."""
        if attempts != self._attempts:
            self._attempts = attempts
            self._news.set()

    def finish(self) -> None:
        """Read what is left, then return."""
        self._done = True
        self._news.set()
        if self._thread:
            self._thread.join()

    def stop(self) -> None:
        """Show nothing more; what is being waited for is left to itself."""
        self._stopped = True
        self._news.set()

    def _read(self) -> None:
        while not self._stopped:
            self._news.clear()
            done, behind = self._done, self._attempt < self._attempts
            more, ended = self._part(0 if done or behind else _LOG) if self._attempts else (False, True)
            if more:
                continue
            if behind:
                self._end_line()
                self._attempt, self._offset = self._attempt + 1, 0
            elif done:
                self._end_line()
                return
            elif ended:
                self._news.wait()

    def _part(self, timeout: float) -> tuple[bool, bool]:
        """Show the next part of the log: whether there was one, and whether the attempt has ended."""
        after = {"driver": self._offset}
        try:
            part = self._client.logs(self._name, attempt=self._attempt, source="driver", after=after, timeout=timeout)
        except (NoController, ApiError):
            self._news.wait(_RETRY)
            return False, False
        for chunk in part["chunks"] if not self._stopped else ():
            self._offset = chunk["offset"]
            *lines, self._partial = (self._partial + chunk["text"]).split("\n")
            for line in lines:
                self._show(line)
        return bool(part["chunks"]), part["ended"]

    def _end_line(self) -> None:
        if self._partial:
            self._show(self._partial)
            self._partial = ""
