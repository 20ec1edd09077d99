"""The commands that need no controller, and every command when there is none: what they print and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stellwerk.cli.app import COMMANDS

Golden = Callable[[str, str], None]

WORKLOAD = """\
name: tiny
kind: job
entrypoint: main.py
options: [tpu-v6e:4x4, "cpu:2"]
runtime: 1h
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    (tmp_path / "main.py").write_text("print('hello')\n")
    (tmp_path / "tiny.yaml").write_text(WORKLOAD)
    return "tiny.yaml"


def test_help_lists_every_command(cli: Any, golden: Golden) -> None:
    done = cli("--help")
    assert done.code == 0
    golden("help.txt", done.out)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Any, golden: Golden, command: str) -> None:
    done = cli(command, "--help")
    assert (done.code, done.err) == (0, "")
    golden(f"help-{command}.txt", done.out)


def test_version(cli: Any) -> None:
    from stellwerk import __version__

    assert cli("--version").out == f"stellwerk {__version__}\n"


def test_an_unknown_command_gets_the_nearest_name(cli: Any) -> None:
    done = cli("lss")
    assert (done.code, done.err) == (2, "stellwerk: no such command: lss; did you mean ls?\n")


@pytest.mark.parametrize(
    "args", [("ls", "--no"), ("show",), ("logs", "x", "--attempt", "0"), ("stop", "x", "--grace", "x")], ids=" ".join
)
def test_wrong_usage_is_code_2(cli: Any, args: tuple[str, ...]) -> None:
    done = cli(*args)
    assert done.code == 2
    assert "Usage: stellwerk" in done.err


NEED_A_CONTROLLER = [
    ("ls",), ("history",), ("show", "x"), ("why", "x"), ("logs", "x"), ("stop", "x"), ("cost",), ("fleet", "show"),
    ("fleet", "check"), ("status",), ("down",), ("chaos", "kill-host", "x"), ("chaos", "preempt", "x"),
    ("chaos", "kill-unit", "x"), ("run", "--cluster", "x", "--", "true"), ("ls", "--json"), ("status", "--json"),
]  # fmt: skip


@pytest.mark.parametrize("args", NEED_A_CONTROLLER, ids=" ".join)
def test_without_a_controller_the_exit_code_is_3(cli: Any, home: Path, args: tuple[str, ...]) -> None:
    done = cli(*args)
    assert (done.code, done.out) == (3, "")
    assert done.err == f"stellwerk: no controller runs for {home}\nstart one with: stellwerk up\n"
    assert not home.exists()


def test_a_stale_address_is_no_controller(cli: Any, home: Path) -> None:
    home.mkdir()
    (home / "controller.json").write_text('{"url": "http://127.0.0.1:1", "pid": 1}')
    (home / "token").write_text("t")
    done = cli("ls")
    assert done.code == 3
    assert "nothing listens" in done.err


def test_hardware_list(cli: Any, golden: Golden) -> None:
    golden("hardware.txt", cli("hardware").out)


def test_hardware_in_any_spelling(cli: Any, golden: Golden) -> None:
    done = cli("hardware", "TPU-V6E")
    assert done.code == 0
    golden("hardware-v6e.txt", done.out)


def test_hardware_json_has_the_stable_keys(cli: Any) -> None:
    listed = json.loads(cli("hardware", "--json").out)
    keys = {
        "name", "kind", "spellings", "chips_per_host", "shapes", "memory_gib", "flops_bf16", "price_per_chip_hour",
        "sources",
    }  # fmt: skip
    assert all(keys <= set(one) for one in listed)
    shapes = [shape for one in listed for shape in one["shapes"]]
    assert all({"topology", "chips", "hosts", "machine", "multi_host"} <= set(shape) for shape in shapes)
    assert [one["name"] for one in json.loads(cli("hardware", "v6e", "--json").out)] == ["tpu-v6e"]


def test_unknown_hardware_is_told_with_what_there_is(cli: Any) -> None:
    done = cli("hardware", "h10")
    assert done.code == 2
    assert done.err.startswith("error[unknown-accelerator]: ")
    assert "did you mean h100?" in done.err


@pytest.mark.parametrize("what", ["workload", "fleet"])
def test_schema_is_a_json_schema(cli: Any, what: str) -> None:
    schema = json.loads(cli("schema", what).out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["type"] == "object"


def test_schema_of_something_else(cli: Any) -> None:
    done = cli("schema", "pool")
    assert (done.code, done.err) == (2, "stellwerk: no schema of 'pool'; there is one of: workload, fleet\n")


def test_check_finds_nothing_in_a_right_file(cli: Any, workload: str) -> None:
    done = cli("check", workload)
    assert (done.code, done.out, done.err) == (0, "1 file checked, nothing found\n", "")
    assert json.loads(cli("check", workload, "--json").out) == []


def test_check_tells_place_code_and_mend(cli: Any, tmp_path: Path, golden: Golden) -> None:
    wrong = WORKLOAD.replace("tpu-v6e:4x4", "tpu-v6e:4x5").replace("kind: job", "kind: jbo")
    (tmp_path / "wrong.yaml").write_text(wrong)
    done = cli("check", "wrong.yaml", "missing.yaml")
    assert done.code == 2
    golden("check.txt", done.err)
    problems = json.loads(cli("check", "wrong.yaml", "--json").out)
    assert {tuple(problem) for problem in problems} == {
        ("file", "line", "column", "severity", "code", "message", "mend")
    }


def test_plan_without_a_controller_starts_none(cli: Any, workload: str, home: Path) -> None:
    done = cli("plan", workload, "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert [option["option"] for option in told["options"]] == ["tpu-v6e:4x4", "cpu:2"]
    keys = {"option", "units", "hosts", "chips", "price_per_hour", "start", "finish", "cost", "verdict", "reasons"}
    assert all(keys <= set(option) for option in told["options"])
    assert [file.name for file in home.iterdir()] == ["cache"]


def test_plan_as_a_table(cli: Any, workload: str) -> None:
    done = cli("plan", workload)
    assert done.code == 0
    assert done.out.splitlines()[0].split()[:4] == ["OPTION", "UNITS", "HOSTS", "CHIPS"]
    assert "tpu-v6e:4x4 (emulated)" in done.out
    assert "WOULD COST" in done.out


def test_plan_that_can_never_run_is_code_1(cli: Any, tmp_path: Path, workload: str) -> None:
    (tmp_path / "fleet.yaml").write_text("pools:\n  - {name: small, accelerator: cpu, chips: 1, units: 1}\n")
    done = cli("plan", workload, "--fleet", "fleet.yaml", "--json")
    assert done.code == 1
    assert {option["verdict"] for option in json.loads(done.out)["options"]} == {"never"}


def test_plan_of_a_command(cli: Any) -> None:
    done = cli("plan", "--accelerator", "cpu:1", "--json", "--", "python", "-c", "print(1)")
    assert done.code == 0
    assert [option["option"] for option in json.loads(done.out)["options"]] == ["cpu:1"]


WRONG_RUNS = {
    "no file": (("missing.yaml",), "missing.yaml: error[no-such-file]"),
    "neither": ((), "name a file, or give --accelerator"),
    "no hardware": (("--", "true"), "a command needs hardware"),
    "both": (("tiny.yaml", "--", "true"), "names its own entrypoint"),
    "backend": (("tiny.yaml", "--on", "ray"), "backend ray comes with a later version"),
    "kubernetes": (("tiny.yaml", "--on", "kubernetes"), "backend kubernetes comes with a later version"),
    "hardware": (("tiny.yaml", "--accelerator", "v6e:3x3"), "--accelerator: error["),
    "no command": (("--cluster", "x"), "name the command after --"),
}


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("case", [case for case in WRONG_RUNS if case != "no command"])
def test_wrong_input_changes_nothing(cli: Any, workload: str, home: Path, command: str, case: str) -> None:
    args, told = WRONG_RUNS[case]
    done = cli(command, *args)
    assert done.code == 2, done
    assert told in done.err
    assert not home.exists()


def test_a_cluster_needs_a_command(cli: Any) -> None:
    args, told = WRONG_RUNS["no command"]
    done = cli("run", *args)
    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize("kind", ["batch", "serve", "tune", "rl", "pipeline"])
@pytest.mark.parametrize("command", ["run", "plan"])
def test_later_kinds_are_refused(cli: Any, tmp_path: Path, workload: str, home: Path, command: str, kind: str) -> None:
    text = WORKLOAD.replace("kind: job", f"kind: {kind}")
    if kind == "pipeline":
        text = "name: p\nkind: pipeline\nsteps:\n  - {name: a, kind: job, entrypoint: main.py, options: ['cpu:1']}\n"
    if kind == "batch":
        text = text.replace("main.py", "main:rows") + "input: /tmp/in\noutput: /tmp/out\n"
    if kind == "serve":
        text = text.replace("main.py", "main:app")
    (tmp_path / "later.yaml").write_text(text)
    done = cli(command, "later.yaml")
    assert done.code == 2, done
    assert "error[" in done.err
    assert not home.exists()


def test_an_impossible_workload_is_not_submitted(cli: Any, workload: str, home: Path) -> None:
    done = cli("run", "--accelerator", "tpu-v6e:16x16", "--yes", "--", "true")
    assert done.code == 1, done
    assert "can never run here; nothing was submitted" in done.err
    assert not home.exists()
