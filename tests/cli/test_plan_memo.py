"""A plan that was made before is told again from its entry: the same words, without the libraries that made it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from stellwerk.api import memo
from stellwerk.backends.local import resources

WORKLOAD = """\
name: tiny
kind: job
entrypoint: main.py
options: [tpu-v6e:2x4*2, "cpu:2"]   # 2x4 has two readings, so that there is a warning
runtime: 100500s   # shown as 1d 3h, however long the plan itself takes
working_dir: code
"""
FLEET = "pools:\n  - {name: one, accelerator: tpu-v6e, topology: 2x4, machine: ct6e-standard-8t, units: 2}\n"
SLOW = {"ray", "jax", "pydantic", "pydantic_core", "ruamel", "rich", "http"}


@pytest.fixture(autouse=True)
def workload(tmp_path: Path, environment: None) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "fleet.yaml").write_text(FLEET)
    file = tmp_path / "tiny.yaml"
    file.write_text(WORKLOAD)
    return file


@pytest.fixture
def plans(home: Path) -> Path:
    return home / "cache" / "plans"


def entries(plans: Path) -> set[str]:
    return {file.name for file in plans.glob("*")}


def timeless(out: str) -> Any:
    """The plan with times as seconds after the first start."""
    told = json.loads(out)
    first = next(option["start"]["p50"] for option in told["options"] if option["start"]["p50"])
    for option in told["options"]:
        for name in ("start", "finish"):
            option[name] = {key: time and seconds(first, time) for key, time in option[name].items()}
    return told


def seconds(first: str, time: str) -> float:
    return round((datetime.fromisoformat(time) - datetime.fromisoformat(first)).total_seconds(), 3)


@pytest.mark.parametrize("args", [(), ("--fleet", "fleet.yaml"), ("--name", "other", "--accelerator", "cpu:1")])
def test_the_second_plan_says_the_same(cli: Any, plans: Path, args: tuple[str, ...]) -> None:
    first, second = cli("plan", "tiny.yaml", *args, "--json"), cli("plan", "tiny.yaml", *args, "--json")
    assert timeless(first.out) == timeless(second.out)
    assert (first.err, first.code) == (second.err, second.code)
    assert ("ambiguous-topology" in first.err) == ("--accelerator" not in args)
    assert first.out != second.out
    assert len(entries(plans)) == 1
    assert cli("plan", "tiny.yaml", *args) == cli("plan", "tiny.yaml", *args)


def test_the_second_plan_imports_nothing_slow(cli: Any) -> None:
    first = cli("plan", "tiny.yaml")
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr))\n"
        "from stellwerk.cli.app import run_app\nrun_app(['plan', 'tiny.yaml'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    *warnings, modules = done.stderr.splitlines()
    assert (done.stdout, warnings) == (first.out, first.err.splitlines())
    assert not set(modules.split()) & SLOW


def test_whatever_changes_makes_another_plan(cli: Any, plans: Path, workload: Path, tmp_path: Path) -> None:
    def planned(*args: str) -> int:
        assert cli("plan", "tiny.yaml", *args).code == 0
        return len(entries(plans))

    assert planned() == planned() == 1
    assert planned("--queue", "research") == 2
    assert planned("--fleet", "fleet.yaml") == 3
    (tmp_path / "fleet.yaml").write_text(FLEET.replace("units: 2", "units: 3"))
    assert planned("--fleet", "fleet.yaml") == 4
    workload.write_text(WORKLOAD.replace("100500s", "2h"))
    assert planned() == 5
    workload.write_text(WORKLOAD)
    assert planned() == 5


def test_another_machine_makes_another_plan(
    cli: Any, plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roomy = json.loads(cli("plan", "tiny.yaml", "--json").out)
    (tmp_path / "memory.max").write_text(str(resources.RESERVE_BYTES + 2**20))
    monkeypatch.setattr(resources, "_CGROUP_LIMITS", (tmp_path / "memory.max",))
    tight = cli("plan", "tiny.yaml", "--json")
    assert (roomy["chosen"], json.loads(tight.out)["chosen"], tight.code) == (0, None, 1)
    assert cli("plan", "tiny.yaml", "--json").code == 1
    assert len(entries(plans)) == 2


def test_devices_make_every_boot_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "device_files", lambda: ())
    bare = resources.fingerprint()
    monkeypatch.setattr(resources, "device_files", lambda: ("/dev/nvidia0",))
    (tmp_path / "boot").write_text("one\n")
    monkeypatch.setattr(resources, "_BOOT_ID", tmp_path / "boot")
    first = resources.fingerprint()
    (tmp_path / "boot").write_text("two\n")
    second = resources.fingerprint()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len({bare, first, second, resources.fingerprint()}) == 4


DAMAGES = {"empty": "", "object": "{}", "list": "[]", "null": "null", "deep": "[" * 100_000, "binary": "\0"}


@pytest.mark.parametrize("damage", [*DAMAGES, "half", "other value", "other key"])
def test_a_damaged_entry_is_made_anew(cli: Any, plans: Path, damage: str) -> None:
    first = cli("plan", "tiny.yaml")
    (entry,) = plans.iterdir()
    whole = entry.read_text()
    cli("plan", "tiny.yaml", "--name", "other")
    other = next(file for file in plans.iterdir() if file != entry).read_text()
    changed = whole.replace("100500.0", "1800.0")
    texts = DAMAGES | {"half": whole[: len(whole) // 2], "other value": changed, "other key": other}
    entry.write_text(texts[damage])
    assert cli("plan", "tiny.yaml") == first
    assert json.loads(entry.read_text())["entry"]["declaration"] == json.loads(whole)["entry"]["declaration"]
    assert cli("plan", "tiny.yaml") == first


def test_a_link_is_no_entry(cli: Any, plans: Path, tmp_path: Path) -> None:
    first = cli("plan", "tiny.yaml")
    (entry,) = plans.iterdir()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert cli("plan", "tiny.yaml") == first
    assert not entry.is_symlink()


def test_a_working_folder_that_is_gone_is_reported(cli: Any, tmp_path: Path) -> None:
    assert cli("plan", "tiny.yaml").code == 0
    (tmp_path / "code").rmdir()
    done = cli("plan", "tiny.yaml")
    assert done.code == 2
    assert "error[no-such-folder]" in done.err


def test_entries_are_their_owners_alone(cli: Any, home: Path, plans: Path) -> None:
    mask = os.umask(0)
    try:
        cli("plan", "tiny.yaml")
    finally:
        os.umask(mask)
    (entry,) = plans.iterdir()
    assert [path.stat().st_mode & 0o777 for path in (home, home / "cache", plans, entry)] == [0o700] * 3 + [0o600]


def test_entries_are_few(plans: Path) -> None:
    for number in range(memo.MOST_ENTRIES + 5):
        memo.write(f"{number:064}", memo.Entry({}, []))
    assert len(entries(plans)) == memo.MOST_ENTRIES
    assert memo.read(f"{memo.MOST_ENTRIES + 4:064}") == memo.Entry({}, [])


def test_without_a_place_for_entries_plans_are_made_anew(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cli("plan", "tiny.yaml")
    monkeypatch.setenv("STELLWERK_HOME", "/dev/null/home")
    assert cli("plan", "tiny.yaml") == cli("plan", "tiny.yaml") == first


@pytest.mark.parametrize("text", ["name: [", "kind: serve\nentrypoint: main:app\noptions: ['cpu:1']\n"])
def test_what_is_wrong_is_not_kept(cli: Any, workload: Path, home: Path, text: str) -> None:
    workload.write_text(text)
    first, second = cli("plan", "tiny.yaml"), cli("plan", "tiny.yaml")
    assert first == second
    assert first.code == 2
    assert not home.exists()


@pytest.fixture
def controller(home: Path) -> Iterator[list[Any]]:
    """A controller with one answer to every plan; yields the declarations that it is asked about."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["declaration"])
            text = json.dumps({"name": "asked", "chosen": None, "options": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        home.mkdir()
        (home / "token").write_text("secret\n")
        (home / "controller.json").write_text(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}))
        yield asked
        server.shutdown()
        thread.join()


def test_a_controller_is_asked_every_time(cli: Any, home: Path, controller: list[Any]) -> None:
    first, second = cli("plan", "tiny.yaml", "--json"), cli("plan", "tiny.yaml", "--json")
    assert first == second
    assert json.loads(first.out)["name"] == "asked"
    assert "ambiguous-topology" in first.err
    assert len(controller) == 2
    assert controller[0] == controller[1]
    (home / "controller.json").unlink()
    alone, again = cli("plan", "tiny.yaml", "--json"), cli("plan", "tiny.yaml", "--json")
    assert timeless(alone.out) == timeless(again.out)
    assert alone.err == again.err == first.err
    assert len(controller) == 2


def test_a_plan_of_a_named_fleet_asks_no_controller(cli: Any, controller: list[Any]) -> None:
    for _ in range(2):
        assert json.loads(cli("plan", "tiny.yaml", "--fleet", "fleet.yaml", "--json").out)["name"] == "tiny"
    assert not controller
