"""`stellwerk demo`: a training run on an emulated TPU slice that loses a host and is healed, with its bill.

It shows and it checks: the exit code is 0 only when the run was interrupted as planned, resumed from its checkpoint and
succeeded. Without `$STELLWERK_HOME` everything happens in a folder of its own, which is removed afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stellwerk.cli.errors import FAILED, CliError

if TYPE_CHECKING:
    from stellwerk.api.client import Client
    from stellwerk.cli.following import Item

_EXAMPLE = Path("examples", "tiny-lm", "train.yaml")
_RESUMED = re.compile(r"starting after step (\d+)")
# What the training itself prints, out of what Ray says around it.
_OWN = re.compile(r"(?:tiny-lm:|step +\d|held-out loss|stopped early)")
_DRESS = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=[^)]*\) ")
_TAIL = 40  # lines of the whole log shown when the demonstration fails


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the state folder and say where it is.")] = False,
) -> None:
    """Train a small language model on an emulated TPU slice, kill a host, watch it resume, and read the bill.

    Takes a few minutes on two cores. Exit code 0 only when all of it went as it should.
    """
    file = _example()
    signal.signal(signal.SIGTERM, _leave)
    with _home(keep) as home:
        wrong = _show(file, home)
    for finding in wrong:
        print(f"demo: {finding}", file=sys.stderr)
    if wrong:
        raise typer.Exit(FAILED)
    _say("The host was lost, the slice rebuilt, the training resumed and finished. That was the demonstration.")


def _leave(number: int, _frame: object) -> None:
    """End on a signal by way of all that must be taken down."""
    sys.exit(128 + number)


@dataclass(slots=True)
class _Story:
    """What is seen on the way, and the one thing that is done: a host is killed at the first checkpoint."""

    client: Client
    name: str
    killed: bool = False
    resumed_after: list[int] = field(default_factory=list[int])
    """The step after which each attempt began, as the training itself said."""
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=_TAIL))
    """The end of the whole log."""

    def item(self, item: Item) -> None:
        """Show what happened; reports are left out, the training prints them itself."""
        if item["kind"] != "progress" and item["data"].get("state") != "ended":
            self.note(str(item["message"]))

    def log(self, line: str) -> None:
        """Show a line of the training's own; the rest of the log is kept for when something goes wrong."""
        plain = _DRESS.sub("", _DRESS.sub("", line))
        self.tail.append(plain)
        if found := _RESUMED.search(plain):
            self.resumed_after.append(int(found[1]))
        if _OWN.match(plain):
            print(f"    {plain}", flush=True)

    def note(self, text: str) -> None:
        """Show a remark."""
        print(f"[stellwerk] {text}", flush=True)

    def close(self) -> None:
        """Nothing to clean up."""

    def kill_once(self, item: Item) -> None:
        """Kill a host when the first checkpoint is saved."""
        if item["kind"] != "checkpoint" or self.killed:
            return
        self.killed = True
        _say(f"A checkpoint is saved. Now a host dies: stellwerk chaos kill-host {self.name}")
        told = self.client.chaos("kill-host", self.name)
        self.note(f"killed host {told['host']} of {told['unit']}")


def _show(file: Path, home: Path) -> list[str]:
    """Run the demonstration; returns what went otherwise than it should."""
    from stellwerk.api.client import Client
    from stellwerk.api.errors import NoController
    from stellwerk.api.submission import load, plan_json
    from stellwerk.cli.plan import print_plan

    workload = load(file)
    _say(f"The plan of {_EXAMPLE}: stellwerk plan")
    print_plan(plan_json(workload))
    with suppress(NoController):
        return _run(Client.connect(home), workload)
    client = Client.ensure(home)
    try:
        return _run(client, workload)
    finally:
        _take_down(client)


def _run(client: Client, workload: Any) -> list[str]:
    from stellwerk.api.submission import dump, new_submission
    from stellwerk.cli.following import Follower
    from stellwerk.cli.run import outcome_line

    _say("Run it: stellwerk run. Indented lines are what the training prints.")
    name = client.submit(dump(workload), name=workload.name, submission=new_submission())["name"]
    story = _Story(client, name)
    try:
        found = Follower(client, name, story, also=story.kill_once).follow()
    except BaseException:
        client.stop(name, grace=0)
        raise
    story.note(f"{name} {outcome_line(found)}")
    _bill(client, name, found)
    wrong = _wrong(story, found)
    if wrong:
        print("\n".join(story.tail), file=sys.stderr)
    return wrong


def _bill(client: Client, name: str, found: Any) -> None:
    from stellwerk.cli.cost import print_bill
    from stellwerk.cli.workloads import print_attempts

    _say(f"Both attempts: stellwerk show {name}")
    print_attempts(found)
    _say("The bill: stellwerk cost --by attempt")
    print_bill(client.cost("attempt"), "attempt")


def _wrong(story: _Story, found: Any) -> list[str]:
    """Everything that a demonstration without fault must show, where it does not."""
    attempts = found["attempts"]
    lost = [attempt for attempt in attempts if attempt["cause"] == "infrastructure"]
    resumed = [step for step in story.resumed_after[1:] if step > 0]
    checks = (
        (story.killed, "no checkpoint was saved, so no host was killed"),
        (found["outcome"] == "succeeded", f"the workload {found['outcome']} instead of succeeding"),
        (len(attempts) >= 2 and bool(lost), "no attempt was ended by the loss of the host"),
        (bool(resumed), "no later attempt said that it resumed from a checkpoint"),
        (all(attempt["chip_hours"] for attempt in attempts), "an attempt is missing in the bill"),
    )
    return [finding for true, finding in checks if not true]


def _take_down(client: Client) -> None:
    from stellwerk.api.errors import ApiError, NoController
    from stellwerk.cli.controller import wait_until_gone

    with suppress(NoController, ApiError):
        pid = int(client.status()["pid"])
        client.shutdown(stop_workloads=True)
        wait_until_gone(pid, client, timeout=60)


@contextmanager
def _home(keep: bool) -> Generator[Path]:
    """The named state folder, or one of its own for as long as the demonstration takes."""
    if os.environ.get("STELLWERK_HOME"):
        from stellwerk.api.home import home_folder

        yield home_folder()
        return
    home = Path(tempfile.mkdtemp(prefix="stellwerk-demo-"))
    os.environ["STELLWERK_HOME"] = str(home)
    try:
        yield home
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    finally:
        del os.environ["STELLWERK_HOME"]
        if home.exists():
            print(f"The state folder is kept: {home} (logs, event log, checkpoints)")


def _example() -> Path:
    """The example in the source tree; the installed package does not carry it."""
    tree = Path(__file__).parents[3]
    for folder in (tree, Path.cwd()):
        if (folder / _EXAMPLE).is_file():
            return folder / _EXAMPLE
    raise CliError(f"the demonstration needs {_EXAMPLE} of the source tree; run it from a clone of the project")


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)
