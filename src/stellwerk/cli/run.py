"""`stellwerk run`: submit a workload and follow it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stellwerk.api.submission import plan_json
from stellwerk.cli import formats
from stellwerk.cli.arguments import TailCommand, tail
from stellwerk.cli.declaring import declared
from stellwerk.cli.errors import FAILED, INTERRUPTED, CliError
from stellwerk.cli.plan import hopeless, print_plan, summary

if TYPE_CHECKING:
    from stellwerk.api.client import Client
    from stellwerk.cli.following import Follower
    from stellwerk.spec import Workload

_POLL = 5.0  # s


def run(
    ctx: typer.Context,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="A workload file.", show_default=False)] = None,
    accelerator: Annotated[
        list[str] | None, typer.Option(help="Hardware instead of the file's; again for a fallback.", metavar="HARDWARE")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Another name.", metavar="NAME")] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue.", metavar="QUEUE")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run the command in this running workload of kind cluster.", metavar="NAME")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit and return.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    on: Annotated[str, typer.Option(help="The backend.", metavar="BACKEND")] = "local",
) -> None:
    """Run a workload: show its plan, submit it, then follow it until it has ended.

    The workload is a FILE, or hardware and a command: --accelerator tpu-v6e:4x4 -- python train.py. The controller is
    started when none runs. The driver's log goes to stdout, what Stellwerk says to stderr.

    Exit codes: 0 succeeded; 1 failed, was stopped, or can never run here; 2 the input was wrong; 3 no controller; 130
    left with Ctrl-C. On a terminal Ctrl-C asks whether to stop the workload or to leave it running; elsewhere it is
    left running, and `stellwerk stop NAME` stops it.
    """
    command = tail(ctx)
    if cluster is not None:
        raise typer.Exit(_in_cluster(cluster, command, file))
    workload = declared(file, command, accelerator=accelerator, name=name, queue=queue, on=on)
    if not _agreed(workload, yes):
        raise typer.Exit(FAILED)
    client, submitted = submit(workload)
    if detach:
        print(f"{submitted} is submitted; follow it with: stellwerk logs -f {submitted}")
        return
    raise typer.Exit(_follow(client, submitted, workload.kind))


run.cls = TailCommand  # pyright: ignore[reportFunctionMemberAccess]


def submit(workload: Workload) -> tuple[Client, str]:
    """Hand a workload in, to a controller that is started if none runs; returns a client and the name."""
    from stellwerk.api.client import Client
    from stellwerk.api.submission import dump, new_submission

    client = Client.ensure()
    answer = client.submit(dump(workload), name=workload.name, submission=new_submission())
    return client, str(answer["name"])


def outcome_line(found: Any) -> str:
    """How a workload ended, in one line."""
    took = formats.duration(formats.between(found["submitted"], found["finished"]))
    caused = f": {found['cause']}" if found["cause"] else ""
    detail = f" ({found['message']})" if found.get("message") else ""
    attempts = formats.quantity(found["attempt"] or 0, "attempt")
    costs = [attempt["cost"] for attempt in found["attempts"]]
    would = "would cost" if found.get("emulated") else "cost"
    bill = f", {would} {formats.money(sum(costs))}" if costs and None not in costs else ""
    return f"{found['outcome']}{caused}{detail} after {took}, {attempts}{bill}"


def _agreed(workload: Workload, yes: bool) -> bool:
    """Show the plan; ask when a person is there who did not say --yes."""
    told = plan_json(workload)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if interactive:
        print_plan(told)
    elif not hopeless(told):
        print(summary(told), file=sys.stderr)
    if hopeless(told):
        for option in told["options"]:
            print(f"{workload.name}: {option['option']}: {formats.reasons(option['reasons'])}", file=sys.stderr)
        raise CliError(f"{workload.name} can never run here; nothing was submitted", FAILED)
    return yes or not interactive or typer.confirm(f"Run {workload.name}?", default=True)


def _follow(client: Client, name: str, kind: str) -> int:
    from stellwerk.cli.following import Follower
    from stellwerk.cli.screens import screen

    follower = Follower(client, name, screen(name))
    # A cluster runs nothing itself: once it is up, there is nothing to follow.
    until = "running" if kind == "cluster" else "ended"
    found = _until(follower, until)
    if found is None:
        return INTERRUPTED
    if found["state"] == "running":
        follower.screen.note(f"is up; run in it with: stellwerk run --cluster {name} -- COMMAND")
        return 0
    follower.screen.note(outcome_line(found))
    return 0 if found["outcome"] == "succeeded" else FAILED


def _until(follower: Follower, until: str) -> dict[str, Any] | None:
    """Follow; None when it was left running after Ctrl-C."""
    try:
        return follower.follow(until)
    except KeyboardInterrupt:
        pass
    name = follower.name
    try:
        if sys.stdin.isatty() and sys.stdout.isatty() and typer.confirm(f"\nStop {name}? (no leaves it running)"):
            follower.client.stop(name)
            return follower.follow()
    except (KeyboardInterrupt, EOFError, typer.Abort):
        pass
    follower.screen.note(f"is left as it is; stop it with: stellwerk stop {name}")
    return None


def _in_cluster(name: str, command: list[str] | None, file: str | None) -> int:
    """Run a command in a running cluster and print what it prints."""
    from stellwerk.cli.workloads import connected

    if not command or file is not None:
        raise CliError(f"name the command after --, for example: stellwerk run --cluster {name} -- python train.py")
    client = connected()
    number = client.command(name, command, {}, os.getcwd())
    source, after, code = f"command-{number}", 0, None
    while True:
        part = client.logs(name, source=source, after={source: after}, timeout=0 if code is not None else _POLL)
        for chunk in part["chunks"]:
            after = chunk["offset"]
            sys.stdout.write(chunk["text"])
            sys.stdout.flush()
        if code is not None and not part["chunks"]:
            break
        code = client.command_result(name, number) if code is None else code
    if code:
        print(f"{name}: the command ended with exit code {code}", file=sys.stderr)
    return FAILED if code else 0
