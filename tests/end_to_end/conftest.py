"""Homes that are taken down in the end, whatever happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from end_to_end_home import Home


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Callable[[str], Home]]:
    """Make a home of that name."""
    with ExitStack() as stack:

        def make(name: str) -> Home:
            (tmp_path / name).mkdir()
            home = Home(tmp_path / name)
            stack.callback(home.take_down)
            return home

        yield make


@pytest.fixture
def home(homes: Callable[[str], Home]) -> Home:
    """One home."""
    return homes("site")
