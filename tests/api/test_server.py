"""The API over a real controller; what the backend drives is a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from controller_world import FakeClock, SmallMachine, World, WorldBackend
from pytest import mark

from stellwerk.api.server import Site, create_app
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import recover
from stellwerk.controller.submission import Submissions

TOKEN = {"Authorization": "Bearer secret"}
JOB = {"kind": "job", "name": "lm", "entrypoint": "run.py", "options": ["tpu-v6e:4x4"], "working_dir": "mem://x"}
Story = Callable[["_Api"], Awaitable[None]]


class _Api:
    """A client of the app, with the backend's model at hand."""

    def __init__(self, http: httpx.AsyncClient, controller: Controller, backend: WorldBackend, home: Path) -> None:
        self.http, self.controller, self.backend, self.home = http, controller, backend, home
        self.world = backend.world
        self.ended: list[bool] = []

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def submit(self, name: str = "lm", submission: str = "s", **keys: Any) -> str:
        body = {"declaration": JOB | {"name": name} | keys, "name": None, "submission": submission}
        return (await self.post("/v1/workloads", body, 201))["key"]

    def run(self, key: str, attempt: int = 1) -> None:
        self.world.start((key, attempt))
        self.backend.flush()

    def end(self, key: str, attempt: int = 1) -> None:
        self.world.end((key, attempt), "succeeded", None)
        self.backend.flush()


@asynccontextmanager
async def _api(home: Path, headers: dict[str, str] | None = None) -> AsyncIterator[_Api]:
    backend = WorldBackend(World(FakeClock()), eager=True)
    controller = Controller(home, backend, Log.at(home / "log.db"), backend.world.clock, validate=True)
    await recover(controller)
    ended: list[bool] = []
    about = {"pid": 1, "url": "http://here", "on": "local", "version": "0", "started": None, "home": str(home)}
    site = Site("secret", lambda: about, ended.append)
    site.hosts = frozenset({"here"})
    site.ready(controller, Submissions(controller, SmallMachine()))
    transport = httpx.ASGITransport(create_app(site))
    async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=TOKEN | (headers or {})) as http:
        api = _Api(http, controller, backend, home)
        api.ended = ended
        yield api
    await controller.close()


def _run(home: Path, story: Story) -> None:
    async def go() -> None:
        async with _api(home) as api:
            await story(api)

    asyncio.run(go())


@mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer s\u00e9cret".encode("latin-1")}, 401),  # type: ignore[dict-item]
        ({"Host": "evil.example"}, 400),
        ({}, 200),
    ],
)
def test_only_the_owner_under_the_right_name_is_answered(headers: dict[str, str], status: int, tmp_path: Path) -> None:
    async def go() -> None:
        async with _api(tmp_path, headers) as api:
            answer = await api.http.get("/v1/status")
            assert answer.status_code == status
            assert (status == 200) == ("pid" in answer.json())

    asyncio.run(go())


def test_there_are_no_pages_and_no_foreign_origins(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        for path in ("/docs", "/redoc", "/openapi.json", "/"):
            await api.get(path, 404)
        answer = await api.http.get("/v1/status", headers={"Origin": "http://evil.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]

    _run(tmp_path, story)


def test_before_recovery_the_answer_is_503() -> None:
    async def go() -> None:
        site = Site("secret", dict, lambda _stop: None)
        site.hosts = frozenset({"here"})
        transport = httpx.ASGITransport(create_app(site))
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=TOKEN) as http:
            assert (await http.get("/v1/fleet")).status_code == 503

    asyncio.run(go())


def test_the_life_of_a_workload(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        key = await api.submit()
        assert await api.submit() == key
        (listed,) = await api.get("/v1/workloads")
        expected = {"name": "lm", "kind": "job", "queue": "default", "state": "starting", "attempt": 1}
        expected |= {"option": "tpu-v6e:4x4", "units": ["tpu-v6e-4x4-0"], "hosts": 4, "chips": 16}
        assert {key: listed[key] for key in expected} == expected
        assert listed["emulated"] is True
        api.run(key)
        api.world.save((key, 1), 5)
        api.backend.flush()
        api.world.clock.advance(3600.0)
        api.end(key)
        assert await api.get("/v1/workloads") == []
        (ended,) = await api.get("/v1/workloads", ended=True)
        assert (ended["outcome"], ended["cause"], ended["state"]) == ("succeeded", None, "ended")
        shown = await api.get("/v1/workloads/lm")
        assert (shown["retries_left"], shown["checkpoint"]) == (0, "mem://5")
        (attempt,) = shown["attempts"]
        assert (attempt["number"], attempt["state"], attempt["outcome"], attempt["chip_hours"]) == (
            1,
            "ended",
            "succeeded",
            16.0,
        )
        assert attempt["cost"] == 16.0 * 2.7
        (bill, *pools) = await api.get("/v1/cost", by="workload")
        assert (bill["key"], bill["busy_s"], bill["emulated"]) == ("lm", 3600.0, True)
        assert [row["pool"] for row in pools] == ["tpu-v6e-4x4"] * len(pools)
        (status,) = [await api.get("/v1/status")]
        assert (status["workloads"], status["home"]) == (0, str(tmp_path))
        assert await api.get("/v1/cost", since="2100-01-01T00:00:00Z") == []
        await api.get("/v1/cost", 400, since="yesterday")
        await api.get("/v1/cost", 422, by="colour")

    _run(tmp_path, story)


def test_the_living_one_is_meant_by_a_name(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        first = await api.submit(submission="1")
        api.run(first)
        api.end(first)
        second = await api.submit(submission="2")
        assert (await api.get("/v1/workloads/lm"))["key"] == second
        assert (await api.get(f"/v1/workloads/{first}"))["key"] == first
        assert len(await api.get("/v1/workloads", ended=True, name="lm")) == 1
        assert await api.get("/v1/workloads", name="other") == []
        await api.get("/v1/workloads/other", 404)
        await api.get("/v1/workloads/other/why", 404)

    _run(tmp_path, story)


def test_wrong_declarations_are_answered_with_their_problems(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        async def refused(declaration: Any, name: str | None = None) -> list[str]:
            body = {"declaration": declaration, "name": name, "submission": "s"}
            return [problem["code"] for problem in (await api.post("/v1/workloads", body, 422))["problems"]]

        assert await refused(JOB | {"kinds": "x"}) == ["unknown-key"]
        assert await refused(JOB | {"kind": "serve"}) == ["kind-unsupported"]
        assert await refused(JOB | {"working_dir": "/nowhere/at/all"}) == ["working-dir"]
        assert await refused(JOB, "Not A Name") == ["name"]
        await api.post("/v1/workloads", {"declaration": JOB}, 422)
        answer = await api.http.put("/v1/fleet", json={"declaration": {"pools": [{"name": "x"}]}})
        assert answer.status_code == 422
        assert answer.json()["problems"]
        assert api.controller.state.workloads == {}

    _run(tmp_path, story)


def test_a_name_that_is_in_use_conflicts_and_env_of_the_request_wins(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        body = {"declaration": JOB | {"env": {"A": "1", "B": "1"}}, "submission": "1", "env": {"B": "2"}}
        key = (await api.post("/v1/workloads", body, 201))["key"]
        declared = api.controller.log.declared(key=key)
        assert declared and declared.declaration["env"] == {"A": "1", "B": "2"}
        answer = await api.post("/v1/workloads", body | {"submission": "2", "name": "lm"}, 409)
        assert "lm is the name" in answer["detail"]

    _run(tmp_path, story)


def test_a_watch_answers_at_once_or_when_something_happens(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        key = await api.submit()
        seen = await api.get("/v1/workloads/lm/watch", timeout=30)
        assert [item["kind"] for item in seen["items"]] == ["state"] * len(seen["items"])
        nothing = await api.get("/v1/workloads/lm/watch", after=seen["seq"], timeout=0)
        assert (nothing["items"], nothing["seq"], nothing["ended"]) == ([], seen["seq"], False)
        waiting = asyncio.create_task(api.get("/v1/workloads/lm/watch", after=seen["seq"], timeout=30))
        await asyncio.sleep(0)
        api.run(key)
        seen = await waiting
        assert [item["message"] for item in seen["items"]] == ["attempt 1 is running"]
        assert seen["workload"]["state"] == "running"
        api.end(key)
        seen = await api.get("/v1/workloads/lm/watch", after=seen["seq"], timeout=30)
        assert seen["ended"] is True
        assert (await api.get("/v1/workloads/lm/watch", after=seen["seq"], timeout=30))["items"] == []

    _run(tmp_path, story)


def test_logs_are_read_by_offset_and_never_within_a_character(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        key = await api.submit()
        logs = tmp_path / "workloads" / key / "attempt-1" / "logs"
        logs.mkdir(parents=True)
        (logs / "driver.log").write_bytes(b"step 1 " + "\N{SNOWMAN}".encode()[:2])
        (logs / "u-0-host-1.log").write_text("hello\n")
        (logs / "start.log").write_text("noise\n")
        seen = await api.get("/v1/workloads/lm/logs")
        assert seen == {
            "attempt": 1,
            "chunks": [
                {"source": "driver", "text": "step 1 ", "offset": 7},
                {"source": "u-0-host-1", "text": "hello\n", "offset": 6},
            ],
            "ended": False,
        }
        with (logs / "driver.log").open("ab") as file:
            file.write("\N{SNOWMAN}".encode()[2:])
        seen = await api.get("/v1/workloads/lm/logs", source="driver", after='{"driver": 7}', timeout=30)
        assert seen["chunks"] == [{"source": "driver", "text": "\N{SNOWMAN}", "offset": 10}]
        api.end(key)
        seen = await api.get("/v1/workloads/lm/logs", after='{"driver": 10, "u-0-host-1": 6}', timeout=30)
        assert (seen["chunks"], seen["ended"]) == ([], True)
        for wrong in ("x", "[]", '{"driver": -1}'):
            await api.get("/v1/workloads/lm/logs", 400, after=wrong)

    _run(tmp_path, story)


def test_stop_ends_a_workload_once(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        key = await api.submit()
        api.run(key)
        assert (await api.post("/v1/workloads/lm/stop", {"grace": 1}, 202))["name"] == "lm"
        assert (await api.get("/v1/workloads/lm"))["outcome"] == "stopped"
        await api.post("/v1/workloads/lm/stop", {"grace": 1}, 409)
        await api.post("/v1/workloads/lm/stop", {"grace": -1}, 422)

    _run(tmp_path, story)


def test_plan_why_and_fleet(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        plan = await api.post("/v1/plan", {"declaration": JOB})
        assert (plan["chosen"], plan["options"][0]["verdict"]) == (0, "now")
        assert (await api.get("/v1/fleet"))["pools"] == []
        pools = [{"name": "trillium", "accelerator": "v6e", "topology": "4x4", "units": 1}]
        answer = await api.http.put("/v1/fleet", json={"declaration": {"pools": pools}})
        (pool,) = answer.json()["pools"]
        assert {k: pool[k] for k in ("name", "accelerator", "topology", "machine", "market", "price_per_hour")} == {
            "name": "trillium", "accelerator": "tpu-v6e", "topology": "4x4", "machine": "ct6e-standard-4t",
            "market": "on-demand", "price_per_hour": 16 * 2.7,
        }  # fmt: skip
        await api.submit("a", "a")
        await api.submit("b", "b")
        (unit,) = (await api.get("/v1/fleet"))["pools"][0]["units"]
        expected = {"name": "trillium-0", "incarnation": 1, "state": "up", "hosts_up": 4, "hosts": 4}
        expected |= {"free_chips": 0, "workloads": ["a"]}
        assert {key: unit[key] for key in expected} == expected
        why = await api.get("/v1/workloads/b/why")
        assert why["options"][0]["reasons"][0]["code"] == "capacity"
        assert why["cheapest_change"]["message"] == "one more unit of trillium"
        assert set(why["earliest"]) == set(why["finish"]) == {"p50", "p90"}
        (waiting,) = [w for w in await api.get("/v1/workloads") if w["name"] == "b"]
        assert (waiting["units"], waiting["hosts"], waiting["reasons"][0]["code"]) == ([], 4, "capacity")
        assert waiting["start"] == why["earliest"]

    _run(tmp_path, story)


def test_chaos_breaks_what_a_workload_holds(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        await api.submit()
        unit = "tpu-v6e-4x4-0"
        assert await api.post("/v1/chaos", {"kind": "kill-host", "name": "lm"}) == {"unit": unit, "host": 3}
        assert await api.post("/v1/chaos", {"kind": "kill-host", "name": "lm", "host": 1}) == {"unit": unit, "host": 1}
        assert await api.post("/v1/chaos", {"kind": "preempt", "name": "lm", "unit": unit}) == {
            "unit": unit,
            "host": None,
        }
        assert [(kind, host) for kind, _, _, host in api.backend.broken] == [
            ("kill-host", 3),
            ("kill-host", 1),
            ("preempt", None),
        ]
        for wrong in ({"kind": "sneeze"}, {"kind": "kill-host", "host": 4}, {"kind": "kill-unit", "unit": "other"}):
            await api.post("/v1/chaos", {"name": "lm"} | wrong, 409)
        await api.post("/v1/chaos", {"kind": "kill-host", "name": "other"}, 404)

    _run(tmp_path, story)


def test_commands_run_in_a_running_cluster_only(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        line = {"argv": ["python", "x.py"], "env": {}, "cwd": "/"}
        key = await api.submit("c", kind="cluster", entrypoint=None)
        await api.post("/v1/workloads/c/command", line, 409)
        api.run(key)
        assert await api.post("/v1/workloads/c/command", line) == {"id": "1"}
        assert await api.get("/v1/workloads/c/command/1") == {"exit_code": 0}
        await api.get("/v1/workloads/c/command/2", 404)
        api.run(await api.submit("j", "j"))
        await api.post("/v1/workloads/j/command", line, 409)

    _run(tmp_path, story)


def test_shutdown_is_passed_on(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        assert await api.post("/v1/shutdown", {"stop_workloads": True}, 202) == {}
        assert api.ended == [True]

    _run(tmp_path, story)


def test_what_has_left_the_state_is_answered_as_before(tmp_path: Path) -> None:
    async def story(api: _Api) -> None:
        keys = [await api.submit(submission=f"s{number}") for number in range(2)]
        for key in keys:
            api.run(key)
            api.world.clock.advance(60.0)
            api.end(key)
        paths = ("/v1/workloads/lm", f"/v1/workloads/{keys[0]}", f"/v1/workloads/{keys[0]}/why", "/v1/cost")
        before = [await api.get(path) for path in paths]
        history = await api.get("/v1/workloads", ended=True)
        api.controller.snapshot()
        assert api.controller.state.workloads == {}
        assert [await api.get(path) for path in paths] == before
        assert await api.get("/v1/workloads", ended=True) == history
        assert await api.get("/v1/workloads", ended=True, limit=1) == history[:1]
        await api.get("/v1/workloads", 422, ended=True, limit=0)
        seen = await api.get(f"/v1/workloads/{keys[0]}/watch", after=0)
        assert seen["ended"] and seen["items"][-1]["message"] == "succeeded"
        assert (await api.get(f"/v1/workloads/{keys[0]}/logs"))["ended"]
        await api.post(f"/v1/workloads/{keys[0]}/stop", {}, 409)

    _run(tmp_path, story)
