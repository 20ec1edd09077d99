"""Python's cycle collector, out of the way of work that makes many records and few cycles."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Generator[None]:
    """Pause the cycle collector: reading a trace or replaying it makes few cycles, and scanning costs a third."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
