"""`up`, `down`, `status`: the controller itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stellwerk.cli import formats
from stellwerk.cli.arguments import json_option
from stellwerk.cli.errors import FAILED, UNAVAILABLE, CliError
from stellwerk.cli.tables import print_json, print_pairs
from stellwerk.cli.workloads import connected

if TYPE_CHECKING:
    from stellwerk.api.client import Client

_POLL = 0.05  # s


def up(
    fleet: Annotated[str | None, typer.Option(help="A fleet file; replaces the fleet it has.", metavar="FLEET")] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay on this terminal until Ctrl-C.")] = False,
) -> None:
    """Start the controller, or give the running one another fleet."""
    from stellwerk.api.client import Client
    from stellwerk.api.home import home_folder

    declaration = _declaration(fleet) if fleet else None
    if foreground:
        _serve(declaration)
        return
    client = Client.ensure(home_folder(), declaration)
    found = client.status()
    print(f"the controller runs: {found['url']}, process {found['pid']}, state in {client.home}")


def down(
    stop_workloads: Annotated[bool, typer.Option("--stop-workloads", help="Stop what runs, too.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it has ended.", min=0)] = 60,
) -> None:
    """Stop the controller. What runs goes on, and `up` finds it again, unless --stop-workloads is given."""
    client = connected()
    status = client.status()
    client.shutdown(stop_workloads=stop_workloads)
    wait_until_gone(int(status["pid"]), client, timeout)
    left = 0 if stop_workloads else int(status["workloads"] or 0)
    print("the controller has ended" + (f"; {formats.quantity(left, 'workload')} left as they are" if left else ""))


def status(json: bool = json_option()) -> None:
    """Say whether the controller runs, since when and where; exit code 3 when it does not."""
    found = connected().status()
    if json:
        print_json(found)
        return
    print_pairs(
        (
            ("url", str(found["url"])),
            ("process", str(found["pid"])),
            ("backend", str(found["on"])),
            ("version", str(found["version"])),
            ("started", formats.clock(found["started"])),
            ("workloads", str(found["workloads"])),
            ("home", str(found.get("home") or "")),
        )
    )


def wait_until_gone(pid: int, client: Client, timeout: float) -> None:
    """Return when the controller's process is gone; raise after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while _alive(pid):
        if time.monotonic() > deadline:
            message = f"the controller (process {pid}) has not ended after {timeout:g} s; see {client.home}"
            raise CliError(message, FAILED)
        time.sleep(_POLL)


def _alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _declaration(fleet: str) -> dict[str, Any]:
    from stellwerk.spec import load_fleet

    return load_fleet(fleet).model_dump(mode="json")


def _serve(declaration: dict[str, Any] | None) -> None:
    """Run the controller as a child on this terminal, so that the fleet can be handed in once it answers."""
    from stellwerk.api.client import Client
    from stellwerk.api.errors import NoController
    from stellwerk.api.home import home_folder
    from stellwerk.api.starting import spawn, wait_until_ready

    home = home_folder()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        running = Client.connect(home).status()["pid"]
    except NoController:
        pass
    else:
        raise CliError(f"a controller runs already (process {running})", UNAVAILABLE)
    process = spawn(home, detached=False)
    try:
        wait_until_ready(home, process, timeout=60)
        if declaration is not None:
            Client.connect(home).put_fleet(declaration)
        code = process.wait()
    except KeyboardInterrupt:
        code = process.wait()  # it got the same Ctrl-C
    except BaseException:
        process.terminate()
        process.wait()
        raise
    raise typer.Exit(0 if code in (0, 130, -2) else FAILED)
