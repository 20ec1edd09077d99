"""The client of the controller's HTTP API, on the standard library alone.

An HTTP library would take longer to import than a listing takes to print. Every request has a connection of its own,
so that a client can be used from several threads and a controller that was restarted is found again. What can be asked
twice is asked again when a connection drops; a submission carries a key, so that it can be asked twice as well.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from stellwerk.api.errors import ApiError, NoController
from stellwerk.api.home import Address, home_folder, read_address

Json = dict[str, Any]

_TRIES = 4
_PAUSE = 0.1  # s before the second try; doubles with every further one
_PATIENCE = 30.0  # s that an answer may take beyond what the request itself asks to wait
_DROPPED = (http.client.HTTPException, ConnectionError, TimeoutError)


class Client:
    """One method per endpoint; answers are the JSON objects of the API."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @classmethod
    def connect(cls, home: Path | None = None) -> Client:
        """A client of the controller that runs for this home; raises `NoController`."""
        client = cls(home or home_folder())
        client.status()
        return client

    @classmethod
    def ensure(cls, home: Path | None = None, fleet: Mapping[str, Any] | None = None, timeout: float = 60) -> Client:
        """A client of a controller, started if none runs; `fleet` replaces the fleet it has, if given.

        Raises `NoController` when a started controller has not answered within `timeout` seconds.
        """
        home = home or home_folder()
        try:
            client = cls.connect(home)
        except NoController:
            from stellwerk.api.starting import start_controller

            start_controller(home, timeout)
            client = cls.connect(home)
        if fleet is not None:
            client.put_fleet(fleet)
        return client

    def status(self) -> Json:
        """The controller itself: process, address, version, number of workloads."""
        return self._ask("GET", "/v1/status")

    def submit(
        self,
        declaration: Mapping[str, Any],
        *,
        submission: str,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Json:
        """Hand in a workload; `submission` is the key under which a second try is the same submission."""
        body: Json = {"declaration": dict(declaration), "name": name, "submission": submission}
        return self._ask("POST", "/v1/workloads", body | ({"env": dict(env)} if env else {}))

    def workloads(self, *, ended: bool = False, name: str | None = None, limit: int | None = None) -> list[Json]:
        """Live workloads, or the ended ones, newest first and no more than `limit`."""
        query = {"ended": "true" if ended else "false", "name": name, "limit": limit}
        return self._ask("GET", "/v1/workloads", query=query)

    def workload(self, name: str) -> Json:
        """One workload with its attempts."""
        return self._ask("GET", f"/v1/workloads/{quote(name, safe='')}")

    def why(self, name: str) -> Json:
        """Why a workload waits, per option."""
        return self._ask("GET", f"/v1/workloads/{quote(name, safe='')}/why")

    def watch(self, name: str, after: int = 0, timeout: float = 20) -> Json:
        """What happened to a workload after sequence number `after`; waits up to `timeout` s for news."""
        query = {"after": after, "timeout": timeout}
        return self._ask("GET", f"/v1/workloads/{quote(name, safe='')}/watch", query=query, wait=timeout)

    def logs(
        self,
        name: str,
        *,
        attempt: int | None = None,
        source: str | None = None,
        after: Mapping[str, int] | None = None,
        timeout: float = 0,
    ) -> Json:
        """Log text beyond the given offsets per source; waits up to `timeout` s for some."""
        query = {
            "attempt": attempt,
            "source": source,
            "after": json.dumps(dict(after or {})),
            "timeout": timeout,
        }
        return self._ask("GET", f"/v1/workloads/{quote(name, safe='')}/logs", query=query, wait=timeout)

    def stop(self, name: str, grace: float = 10) -> Json:
        """Ask that a workload end; its code has `grace` seconds to save what it has."""
        return self._ask("POST", f"/v1/workloads/{quote(name, safe='')}/stop", {"grace": grace})

    def command(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
        """Run a command as a driver in a running `cluster` workload; the answer is the command's id."""
        body = {"argv": list(argv), "env": dict(env), "cwd": cwd}
        answer = self._ask("POST", f"/v1/workloads/{quote(name, safe='')}/command", body, again=False)
        return str(answer["id"])

    def command_result(self, name: str, command: str) -> int | None:
        """The command's exit code, or None while it runs."""
        where = f"/v1/workloads/{quote(name, safe='')}/command/{quote(command, safe='')}"
        return self._ask("GET", where)["exit_code"]

    def plan(self, declaration: Mapping[str, Any]) -> Json:
        """What every option of a declaration would give now; changes nothing."""
        return self._ask("POST", "/v1/plan", {"declaration": dict(declaration)})

    def fleet(self) -> Json:
        """Pools, units, hosts and queues."""
        return self._ask("GET", "/v1/fleet")

    def put_fleet(self, declaration: Mapping[str, Any]) -> Json:
        """Declare the fleet anew."""
        return self._ask("PUT", "/v1/fleet", {"declaration": dict(declaration)})

    def cost(self, by: str = "workload", since: str | None = None) -> list[Json]:
        """The ledger, summed by `workload`, `queue`, `pool` or `attempt`, from a time (RFC 3339) on."""
        return self._ask("GET", "/v1/cost", query={"by": by, "since": since})

    def chaos(self, kind: str, name: str, *, host: int | None = None, unit: str | None = None) -> Json:
        """Break something of a workload on purpose."""
        body = {"kind": kind, "name": name, "host": host, "unit": unit}
        return self._ask("POST", "/v1/chaos", body, again=False)

    def shutdown(self, *, stop_workloads: bool) -> None:
        """Ask the controller to end, with or without the workloads."""
        self._ask("POST", "/v1/shutdown", {"stop_workloads": stop_workloads}, again=False)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        wait: float = 0,
        again: bool = True,
    ) -> Any:
        """One request, asked again when the connection drops or the controller is starting."""
        given = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        detail = ""
        for number in range(_TRIES):
            if number:
                time.sleep(_PAUSE * 2 ** (number - 1))
            address = read_address(self.home)
            if address is None:
                raise NoController(self.home)
            try:
                status, answer = _exchange(address, method, target, body, wait + _PATIENCE)
            except ConnectionRefusedError:
                detail = "nothing listens at the address that the last one left"
                continue
            except _DROPPED as error:
                detail = f"the connection broke ({type(error).__name__})"
                if not again:
                    break
                continue
            if status == http.client.SERVICE_UNAVAILABLE:
                detail = "it is starting"
                continue
            return _checked(status, answer)
        raise NoController(self.home, detail)


def _exchange(
    address: Address, method: str, target: str, body: Mapping[str, Any] | None, timeout: float
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
    try:
        connection.request(method, target, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(text) if text else None
    except ValueError:
        return response.status, {"detail": f"the answer is not JSON ({response.status} {response.reason})"}


def _checked(status: int, answer: Any) -> Any:
    if status < http.client.BAD_REQUEST:
        return answer
    told = cast("Json", answer) if isinstance(answer, dict) else {}
    if isinstance(told.get("problems"), list):
        problems: list[Json] = told["problems"]
        raise ApiError(status, "\n".join(str(problem.get("message")) for problem in problems), problems)
    if status == http.client.UNAUTHORIZED:
        raise ApiError(status, "the controller does not accept the token of this home")
    raise ApiError(status, str(told.get("detail") or f"the controller answered {status}"))
