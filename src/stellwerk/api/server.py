"""The controller's HTTP API, on loopback, for the owner of its token alone.

Every request must carry the token and name this address as its host, so that a web page in the owner's browser can
reach nothing, by a request of its own or by a name that it rebinds. A request that waits (`watch`, `logs`) is woken by
the controller's news; files that attempts write are looked at a few times a second while somebody waits for them.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from stellwerk import spec
from stellwerk.controller import logs, operations, planning, views
from stellwerk.controller.bundles import BundleError
from stellwerk.controller.intake import Unsupported
from stellwerk.controller.loop import Controller, Failed
from stellwerk.controller.operations import Refused
from stellwerk.controller.submission import NameInUse, Submissions
from stellwerk.controller.times import parse_time
from stellwerk.observe.ledger import By
from stellwerk.scheduling.state import WorkloadState
from stellwerk.spec.problems import Flaw, Problem, SpecError
from stellwerk.spec.values import parse_name

Json = dict[str, Any]
LONGEST_WAIT = 30.0
"""Seconds that a request waits for news at most."""
_FILES = 0.25  # s between two looks at files that attempts write
_MOST = 32 * 2**20  # bytes of a request


class Body(BaseModel):
    """The common ground of requests: no unknown keys."""

    model_config = ConfigDict(extra="forbid")


class Submission(Body):
    """A workload to be run. `submission` is the caller's own id: sent twice, it is one submission."""

    declaration: Json
    submission: str = Field(min_length=1, max_length=200)
    name: str | None = None
    env: dict[str, str] = {}


class Declaration(Body):
    """A workload to be planned, or a fleet."""

    declaration: Json


class Stop(Body):
    """`grace`: seconds that the workload's code has to save its state."""

    grace: float = Field(10.0, ge=0, le=86_400, allow_inf_nan=False)


class CommandLine(Body):
    """A command to be run as a driver in a running workload of kind cluster."""

    argv: list[str] = Field(min_length=1)
    env: dict[str, str] = {}
    cwd: str


class Chaos(Body):
    """What to break: a host or a unit of a running workload; which one is free unless said."""

    kind: str
    name: str
    host: int | None = Field(None, ge=0)
    unit: str | None = None


class Shutdown(Body):
    """Whether the workloads are to end as well."""

    stop_workloads: bool = False


class Site:
    """What the API serves: a controller, once it has recovered, and how to end it."""

    def __init__(self, token: str, status: Callable[[], Json], shut_down: Callable[[bool], None]) -> None:
        """`status` is the status object; `shut_down(stop_workloads)` returns at once."""
        self.token = token
        self.status = status
        self.shut_down = shut_down
        self.hosts: frozenset[str] = frozenset()
        """Values of the Host header that are answered."""
        self._ready: tuple[Controller, Submissions] | None = None

    def ready(self, controller: Controller, submissions: Submissions) -> None:
        """From now on requests are answered."""
        self._ready = controller, submissions

    @property
    def controller(self) -> Controller:
        """The controller; 503 before it has recovered."""
        return self._both()[0]

    @property
    def submissions(self) -> Submissions:
        """Its submissions; 503 before it has recovered."""
        return self._both()[1]

    def workload(self, name: str) -> WorkloadState:
        """The workload of that name, the living one first; 404 when there is none."""
        found = views.find(self.controller.state, name) or self.controller.log.past.find(name)
        if found is None:
            raise HTTPException(404, f"there is no workload {name}")
        return found

    def _both(self) -> tuple[Controller, Submissions]:
        if self._ready is None:
            raise HTTPException(503, "the controller is starting")
        return self._ready


def create_app(site: Site) -> FastAPI:
    """The API over a site."""
    app = FastAPI(title="Stellwerk", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.site = site
    app.middleware("http")(_guard(site))
    _answer_errors(app)
    _routes(app)
    return app


_Next = Callable[[Request], Awaitable[Response]]


def _guard(site: Site) -> Callable[[Request, _Next], Awaitable[Response]]:
    wanted = f"Bearer {site.token}".encode()

    async def guard(request: Request, go_on: _Next) -> Response:
        if request.headers.get("host", "") not in site.hosts:
            return JSONResponse({"detail": "this address is not served under that name"}, 400)
        given = request.headers.get("authorization", "").encode("utf-8", errors="replace")
        if not hmac.compare_digest(given, wanted):
            return JSONResponse({"detail": "the token is missing or wrong"}, 401)
        if int(request.headers.get("content-length") or 0) > _MOST:
            return JSONResponse({"detail": f"a request has at most {_MOST} bytes"}, 413)
        return await go_on(request)

    return guard


def _answer_errors(app: FastAPI) -> None:
    def problems(found: list[Problem]) -> JSONResponse:
        return JSONResponse({"problems": [asdict(problem) for problem in found]}, 422)

    @app.exception_handler(SpecError)
    async def _spec(_request: Request, error: SpecError) -> JSONResponse:
        return problems(error.problems)

    @app.exception_handler(Unsupported)
    async def _unsupported(_request: Request, error: Unsupported) -> JSONResponse:
        return problems([Problem("workload", None, None, "error", error.code, error.message, error.mend)])

    @app.exception_handler(Flaw)
    async def _flaw(_request: Request, error: Flaw) -> JSONResponse:
        return problems([Problem("request", None, None, "error", error.code, error.message, error.mend)])

    @app.exception_handler(BundleError)
    async def _bundle(_request: Request, error: BundleError) -> JSONResponse:
        return problems([Problem("workload", None, None, "error", "working-dir", str(error))])

    @app.exception_handler(NameInUse)
    @app.exception_handler(Refused)
    async def _conflict(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 409)

    @app.exception_handler(Failed)
    async def _failed(_request: Request, error: Failed) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503)


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


_At = Annotated[Site, Depends(_site)]


def _routes(app: FastAPI) -> None:
    app.get("/v1/status")(status)
    app.post("/v1/workloads", status_code=201)(submit)
    app.get("/v1/workloads")(workloads)
    app.get("/v1/workloads/{name}")(workload)
    app.get("/v1/workloads/{name}/why")(why)
    app.get("/v1/workloads/{name}/watch")(watch)
    app.get("/v1/workloads/{name}/logs")(read_logs)
    app.post("/v1/workloads/{name}/stop", status_code=202)(stop)
    app.post("/v1/workloads/{name}/command")(command)
    app.get("/v1/workloads/{name}/command/{number}")(command_result)
    app.post("/v1/plan")(plan)
    app.get("/v1/fleet")(fleet)
    app.put("/v1/fleet")(put_fleet)
    app.get("/v1/cost")(cost)
    app.post("/v1/chaos")(chaos)
    app.post("/v1/shutdown", status_code=202)(shutdown)


async def status(site: _At) -> Json:
    """The controller itself."""
    return site.status() | {"workloads": site.controller.living}


async def submit(site: _At, body: Submission) -> Json:
    """Take a workload in."""
    name = None if body.name is None else parse_name(body.name)
    workload = _workload(site, body.declaration, body.env)
    declared = await site.submissions.submit(workload, name, body.submission)
    return {"key": declared.key, "name": declared.name}


async def workloads(
    site: _At, ended: bool = False, name: str | None = None, limit: Annotated[int | None, Query(ge=1)] = None
) -> list[Json]:
    """Living workloads with what is expected of them; or those that have ended, the latest first, at most `limit`."""
    controller = site.controller
    state = controller.state
    if ended:
        return [views.listed(state, each) for each in controller.history(name, limit)]
    found = await controller.outlooks.of_all(state, controller.clock.now())
    return views.listing(state, ended=False, name=name, outlooks=found)


async def workload(site: _At, name: str) -> Json:
    """One workload with its attempts."""
    return _shown(site, site.workload(name))


async def why(site: _At, name: str) -> Json:
    """Why a workload waits, until when, and what would start it now."""
    controller, workload = site.controller, site.workload(name)
    found = await controller.outlooks.of_all(controller.state, controller.clock.now())
    now = controller.workload(workload.key) or workload
    return planning.why(controller.scheduler, now, found.get(workload.key))


async def watch(site: _At, name: str, after: int = 0, timeout: float = 0.0) -> Json:
    """What happened to a workload after item `after`, as soon as there is something."""
    controller, key = site.controller, site.workload(name).key

    def look() -> Json:
        state = _known(controller, key)
        controller.feed.refresh(key)
        items = controller.feed.items(key, after)
        return {
            "seq": items[-1].seq if items else after,
            "workload": _shown(site, state),
            "items": [item.to_json() for item in items],
            "ended": state.phase == "ended",
        }

    return await _until(controller, timeout, look, lambda seen: seen["items"] or seen["ended"])


async def read_logs(
    site: _At, name: str, attempt: int | None = None, source: str | None = None, after: str = "{}", timeout: float = 0.0
) -> Json:
    """Text that an attempt wrote beyond the given offsets, as soon as there is some."""
    controller, key = site.controller, site.workload(name).key
    offsets = _offsets(after)

    def look() -> Json:
        state = _known(controller, key)
        number = attempt or len(state.attempts) or None
        ended = state.phase == "ended" or any(a.number == number and a.finished for a in state.attempts)
        found = logs.read(controller.home / "workloads" / key, number, offsets, source) if number else []
        chunks = [asdict(chunk) for chunk in found]
        return {"attempt": number, "chunks": chunks, "ended": ended and not chunks}

    return await _until(controller, timeout, look, lambda seen: seen["chunks"] or seen["ended"])


async def stop(site: _At, name: str, body: Stop) -> Json:
    """Ask that a workload end."""
    found = site.workload(name)
    if found.phase == "ended":
        raise HTTPException(409, f"{name} has ended already")
    site.controller.request_stop(found.key, body.grace)
    return views.listed(site.controller.state, found)


async def command(site: _At, name: str, body: CommandLine) -> Json:
    """Run a command in a running workload of kind cluster."""
    found, backend = site.workload(name), site.controller.backend
    if found.demand.kind != "cluster" or found.phase != "running":
        what = f"is {found.phase}" if found.demand.kind == "cluster" else f"is of kind {found.demand.kind}"
        raise HTTPException(409, f"{name} {what}; commands run in a running workload of kind cluster")
    if not isinstance(backend, operations.RunsCommands):
        raise HTTPException(409, "this backend does not run commands")
    return {"id": backend.command(found.key, found.attempts[-1].number, body.argv, body.env, body.cwd)}


async def command_result(site: _At, name: str, number: str) -> Json:
    """The exit code of a command, or null while it runs."""
    found, backend = site.workload(name), site.controller.backend
    if not found.attempts or not isinstance(backend, operations.RunsCommands):
        raise HTTPException(404, f"{name} has run no command")
    try:
        return {"exit_code": backend.command_result(found.key, found.attempts[-1].number, number)}
    except KeyError:
        raise HTTPException(404, f"{name} has no command {number}") from None


async def plan(site: _At, body: Declaration) -> Json:
    """What every option of a declaration would give now; changes nothing."""
    return (await site.submissions.plan(_workload(site, body.declaration))).to_json()


async def fleet(site: _At) -> Json:
    """Pools, units, hosts and queues."""
    return views.fleet(site.controller.scheduler)


async def put_fleet(site: _At, body: Declaration) -> Json:
    """Declare the fleet anew."""
    site.submissions.change_fleet(spec.load_fleet(body.declaration))
    return views.fleet(site.controller.scheduler)


async def cost(site: _At, by: By = "workload", since: str | None = None) -> list[Json]:
    """The ledger, from a time on."""
    controller = site.controller
    try:
        start = parse_time(since) if since else 0.0
    except ValueError:
        raise HTTPException(400, f"{since} is not a time; write for example 2026-01-02T03:04:05Z") from None
    names = controller.log.past.names() if by in ("workload", "attempt") else {}
    return views.cost(controller.state, controller.ledger, by, controller.clock.now(), start, names)


async def chaos(site: _At, body: Chaos) -> Json:
    """Break something of a workload on purpose."""
    found, backend = site.workload(body.name), site.controller.backend
    if not isinstance(backend, operations.Breaks):
        raise HTTPException(409, "this backend breaks nothing on purpose")
    unit = _victim(site, found, body)
    state = site.controller.state.units[unit]
    host = body.host if body.kind != "kill-host" or body.host is not None else state.hosts - 1
    if host is not None and host >= state.hosts:
        raise HTTPException(409, f"{unit} has {state.hosts} hosts; they count from 0")
    host = host if body.kind == "kill-host" else None
    backend.chaos(body.kind, unit, state.incarnation, host)
    return {"unit": unit, "host": host}


async def shutdown(site: _At, body: Shutdown) -> Json:
    """End the controller, with the workloads if so asked; what is not asked to end keeps running."""
    site.shut_down(body.stop_workloads)
    return {}


def _victim(site: Site, found: WorkloadState, body: Chaos) -> str:
    if body.kind not in operations.CHAOS:
        raise HTTPException(409, f"{body.kind} is not known; allowed are {', '.join(operations.CHAOS)}")
    units = found.live.units if found.live else ()
    units = tuple(unit for unit in units if unit in site.controller.state.units)
    if not units:
        raise HTTPException(409, f"{body.name} is {found.phase}, and holds no unit")
    if body.unit is not None and body.unit not in units:
        raise HTTPException(409, f"{body.name} does not hold {body.unit}; it holds {', '.join(units)}")
    return body.unit or units[0]


def _workload(site: Site, declaration: Json, env: Mapping[str, str] | None = None) -> spec.Workload:
    if env:
        own = declaration.get("env")
        declaration = declaration | {"env": (own if isinstance(own, dict) else {}) | dict(env)}
    return spec.load_workload(declaration, extra_accelerators=site.submissions.accelerators)


def _shown(site: Site, found: WorkloadState) -> Json:
    controller = site.controller
    return views.show(controller.state, controller.ledger, found, controller.clock.now())


def _known(controller: Controller, key: str) -> WorkloadState:
    found = controller.workload(key)
    assert found is not None, "no workload is ever forgotten"
    return found


def _offsets(text: str) -> dict[str, int]:
    try:
        raw = json.loads(text)
        offsets = {str(source): int(offset) for source, offset in raw.items()}
    except (ValueError, TypeError, AttributeError):
        offsets = {"": -1}
    if any(offset < 0 for offset in offsets.values()):
        raise HTTPException(400, "`after` is a JSON object from source to offset")
    return offsets


async def _until(
    controller: Controller, timeout: float, look: Callable[[], Json], enough: Callable[[Json], Any]
) -> Json:
    """Look at once and at all news until there is enough, or until time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(max(0.0, timeout), LONGEST_WAIT)
    while True:
        seen = look()
        left = deadline - loop.time()
        if enough(seen) or not left > 0 or controller.closing or controller.failed.is_set():
            return seen
        await controller.news(min(left, _FILES))
