"""Notices of preemption outlive the controller that gave them."""

import asyncio
import time
from pathlib import Path

from stellwerk.backends.local.backend import LocalBackend
from stellwerk.backends.local.notices import Notices
from stellwerk.scheduling.events import DrainNoticed, Event, UnitGone


def test_notices_are_kept_until_they_are_dropped(tmp_path: Path) -> None:
    first = Notices(tmp_path)
    first.give(("p-1", 2), 20.0)
    first.give(("p-0", 1), 10.0)
    assert Notices(tmp_path).running() == [(("p-0", 1), 10.0), (("p-1", 2), 20.0)]
    first.drop(("p-0", 1))
    first.drop(("p-7", 1))
    assert Notices(tmp_path).running() == [(("p-1", 2), 20.0)]
    assert (tmp_path / "notices.json").stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_has_no_notices(tmp_path: Path) -> None:
    for text in ("", "{}}", "[[1]]", '[["p-0", "x", 3]]'):
        (tmp_path / "notices.json").write_text(text)
        assert Notices(tmp_path).running() == []


def test_a_unit_that_was_noticed_before_is_taken_away(tmp_path: Path) -> None:
    Notices(tmp_path).give(("p-0", 3), time.time() - 1.0)

    async def story() -> list[Event]:
        events: list[Event] = []
        gone = asyncio.Event()

        def report(event: Event) -> None:
            events.append(event)
            if isinstance(event, UnitGone):
                gone.set()

        backend = LocalBackend(tmp_path)
        await backend.open(report)
        await asyncio.wait_for(gone.wait(), 30)
        await backend.close()
        return events

    noticed, taken = asyncio.run(story())
    assert isinstance(noticed, DrainNoticed) and (noticed.unit, noticed.incarnation) == ("p-0", 3)
    assert isinstance(taken, UnitGone) and (taken.unit, taken.incarnation) == ("p-0", 3)
    assert Notices(tmp_path).running() == []
