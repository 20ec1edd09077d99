"""The controller as a process, over the real local backend; no workload is started."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from pytest import MonkeyPatch, fixture

from stellwerk.api.client import Client, NoController
from stellwerk.api.starting import start_controller


@fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    about = _about(tmp_path / "home")
    if about is not None:
        _end(about["pid"], signal.SIGKILL)


def _about(home: Path) -> Any:
    try:
        return json.loads((home / "controller.json").read_text())
    except FileNotFoundError:
        return None


def _end(pid: int, number: signal.Signals) -> None:
    """Signal a controller and wait until it is gone; it is a child of this process."""
    process = psutil.Process(pid)
    process.send_signal(number)
    process.wait(60)


def _modes(home: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in home.iterdir() if file.is_file()}


def test_a_controller_from_its_start_to_its_end(home: Path) -> None:
    start_controller(home)
    about = _about(home)
    token = (home / "token").read_text()
    modes = _modes(home)
    assert {"token", "controller.json", "controller.lock", "controller.log", "log.db"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    client = Client.connect(home)
    status = client.status()
    assert {key: status[key] for key in about} == about
    assert (status["on"], status["workloads"], status["home"]) == ("local", 0, str(home))
    assert client.workloads() == []

    second = subprocess.run(
        [sys.executable, "-m", "stellwerk.api", "--home", str(home)], capture_output=True, check=False
    )
    assert (second.returncode, b"another controller" in second.stderr) == (3, True)
    assert _about(home) == about

    _end(about["pid"], signal.SIGTERM)
    assert _about(home) is None

    start_controller(home)
    assert (home / "token").read_text() == token
    process = psutil.Process(_about(home)["pid"])
    Client.connect(home).shutdown(stop_workloads=True)
    process.wait(60)
    assert _about(home) is None


def test_after_a_kill_another_one_takes_over(home: Path) -> None:
    start_controller(home)
    fleet = {"pools": [{"name": "trillium", "accelerator": "v6e", "topology": "4x4", "units": 2}]}
    Client.connect(home).put_fleet(fleet)
    first = _about(home)
    _end(first["pid"], signal.SIGKILL)
    assert _about(home) == first
    start_controller(home)
    assert _about(home)["pid"] != first["pid"]
    (pool,) = Client.connect(home).fleet()["pools"]
    assert [unit["name"] for unit in pool["units"]] == ["trillium-0", "trillium-1"]


def test_without_work_it_ends_by_itself(home: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("STELLWERK_IDLE_TIMEOUT", "0.5")
    home.mkdir()
    done = subprocess.run([sys.executable, "-m", "stellwerk.api", "--home", str(home)], check=False, timeout=120)
    assert done.returncode == 0
    assert "no work for" in (home / "controller.log").read_text()
    try:
        Client.connect(home)
    except NoController:
        return
    raise AssertionError("it still answers")


def test_a_log_that_cannot_be_read_is_told_and_nothing_is_touched(home: Path) -> None:
    home.mkdir()
    (home / "log.db").write_bytes(b"no database" * 1000)
    before = (home / "log.db").read_bytes()
    done = subprocess.run([sys.executable, "-m", "stellwerk.api", "--home", str(home)], check=False, timeout=120)
    assert done.returncode == 1
    assert "the event log cannot be opened" in (home / "controller.log").read_text()
    assert (home / "log.db").read_bytes() == before


def _until(found: Callable[[], bool]) -> None:
    """Return when something is to be found in a file of another process, which tells nobody that it has written."""
    deadline = time.monotonic() + 60.0
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_old_events_are_archived_and_the_next_controller_knows_everything(home: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("STELLWERK_ARCHIVE_AFTER", "0s")
    start_controller(home)
    fleet = {"pools": [{"name": "trillium", "accelerator": "v6e", "topology": "4x4", "units": 2}]}
    before = Client.connect(home).put_fleet(fleet)
    _end(_about(home)["pid"], signal.SIGTERM)
    assert len(list((home / "snapshots").iterdir())) == 1
    start_controller(home)
    _until(lambda: "were archived in" in (home / "controller.log").read_text())
    _end(_about(home)["pid"], signal.SIGTERM)
    (segment, *_) = sorted((home / "archive").iterdir())
    assert segment.name.startswith("events-000000000001-")
    assert f"were archived in {segment}" in (home / "controller.log").read_text()
    for file in (home / "snapshots").iterdir():
        file.unlink()
    start_controller(home)
    fleet_now = Client.connect(home).fleet()
    assert [unit["name"] for unit in fleet_now["pools"][0]["units"]] == ["trillium-0", "trillium-1"]
    assert fleet_now["queues"] == before["queues"]
    assert "folded the events from number 1 to" in (home / "controller.log").read_text()


def test_an_age_that_is_none_is_told(home: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("STELLWERK_ARCHIVE_AFTER", "soon")
    done = subprocess.run([sys.executable, "-m", "stellwerk.api", "--home", str(home)], check=False, timeout=120)
    assert done.returncode == 2
    said = (home / "controller.log").read_text()
    assert 'STELLWERK_ARCHIVE_AFTER: "soon" is not a duration' in said
    assert "Traceback" not in said


def test_the_process_stays_small(home: Path) -> None:
    start_controller(home)
    client = Client.connect(home)
    client.fleet()
    used = psutil.Process(_about(home)["pid"]).memory_full_info()
    assert used.uss < 90 * 2**20, f"{used.uss / 2**20:.0f} MiB"
    assert os.getpid() != _about(home)["pid"]
