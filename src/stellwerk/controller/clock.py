"""The controller's one seam for time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make the call."""
        ...


class Clock(Protocol):
    """Tells the time, and calls back at one."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        """Call back at `at` (s since the epoch), or soon when that has passed."""
        ...


class WallClock:
    """The machine's clock, and the running event loop's timers."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        """Call back at `at`, on the running event loop."""
        return asyncio.get_running_loop().call_later(max(0.0, at - self.now()), callback)
