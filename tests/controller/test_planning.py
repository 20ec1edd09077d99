from __future__ import annotations

import subprocess
import sys
from typing import Any

from controller_world import SmallMachine, job

from stellwerk import spec
from stellwerk.controller import planning
from stellwerk.controller.intake import demand, fleet
from stellwerk.controller.times import parse_time, rfc3339
from stellwerk.scheduling.codec import canonical
from stellwerk.scheduling.commands import ProvisionUnit
from stellwerk.scheduling.events import FleetChanged, Submitted, UnitAppeared
from stellwerk.scheduling.forecast import History, forecast
from stellwerk.scheduling.scheduler import Scheduler

NOW = 1_000_000.0
POOLS: list[dict[str, Any]] = [
    {"name": "trillium", "accelerator": "tpu-v6e", "topology": "4x4", "units": 2, "price": 2.0},
    {
        "name": "h100s",
        "accelerator": "h100",
        "machine": "a3-highgpu-8g",
        "units": {"min": 0, "max": 1},
        "provision": "5m",
        "price": 3.0,
    },
]


def _fleet(**keys: Any) -> spec.Fleet:
    return spec.load_fleet({"pools": POOLS} | keys)


def _scheduler(declared: spec.Fleet) -> Scheduler:
    scheduler = Scheduler(validate=True)
    for command in scheduler.handle(FleetChanged(NOW, fleet(declared, SmallMachine()))):
        if isinstance(command, ProvisionUnit):
            scheduler.handle(UnitAppeared(NOW, command.pool, command.unit, command.incarnation))
    return scheduler


def test_a_plan_prices_every_option_and_says_when() -> None:
    workload = job("lm", "tpu-v6e:4x4*3", "tpu-v6e:4x4*2", "h100:8", runtime="2h")
    plan = planning.plan(workload, _fleet(), now=NOW, machine=SmallMachine()).to_json()
    assert (plan["name"], plan["chosen"]) == ("lm", 1)
    never, now, later = plan["options"]
    assert [option["verdict"] for option in plan["options"]] == ["never", "now", "later"]
    assert never["reasons"][0]["code"] == "impossible"
    assert never["start"] == never["finish"] == never["cost"] == {"p50": None, "p90": None}
    assert (now["units"], now["hosts"], now["chips"], now["price_per_hour"]) == (2, 8, 32, 64.0)
    assert now["start"] == {"p50": rfc3339(NOW), "p90": rfc3339(NOW)}
    assert now["finish"]["p50"] == rfc3339(NOW + 7200)
    assert now["cost"] == {"p50": 128.0, "p90": 128.0}
    assert now["emulated"] is True
    assert later["start"] == {"p50": rfc3339(NOW + 300), "p90": rfc3339(NOW + 300)}
    assert later["finish"]["p90"] == rfc3339(NOW + 7500)
    assert later["reasons"][0]["code"] == "provisioning"


def test_what_is_unknown_is_null() -> None:
    plan = planning.plan(job("n", "cpu:2"), now=NOW, machine=SmallMachine()).to_json()
    (option,) = plan["options"]
    assert (option["verdict"], option["price_per_hour"]) == ("now", None)
    assert option["finish"] == option["cost"] == {"p50": None, "p90": None}


def test_an_ambiguous_topology_is_noted() -> None:
    plan = planning.plan(job("n", "tpu-v6e:2x4"), now=NOW, machine=SmallMachine())
    assert len(plan.notes) == 1
    assert "2x4 can be" in plan.notes[0]


def test_planning_changes_nothing_and_sees_what_runs() -> None:
    scheduler = _scheduler(_fleet())
    scheduler.handle(Submitted(NOW, demand(job("a", "tpu-v6e:4x4"), "a", "a")))
    before = canonical(scheduler.state)
    plan = planning.plan(job("b", "tpu-v6e:4x4*2"), scheduler=scheduler, now=NOW)
    assert [option.verdict for option in plan.options] == ["later"]
    grown = planning.plan(job("c", "tpu-v5e:2x2"), scheduler=scheduler, now=NOW, machine=SmallMachine())
    assert [option.verdict for option in grown.options] == ["now"]
    assert canonical(scheduler.state) == before


def test_why_names_the_cheapest_change() -> None:
    scheduler = _scheduler(_fleet(queues={"small": {"quota": {"tpu-v6e": 16}}, "default": {}}))
    scheduler.handle(Submitted(NOW, demand(job("a", "tpu-v6e:4x4"), "a", "a")))
    scheduler.handle(Submitted(NOW, demand(job("b", "tpu-v6e:4x4*2"), "b", "b")))
    why = planning.why(scheduler, scheduler.state.workloads["b"])
    assert (why["name"], why["state"]) == ("b", "waiting")
    assert why["options"][0]["option"] == "tpu-v6e:4x4*2"
    assert why["options"][0]["reasons"][0]["code"] == "capacity"
    assert why["earliest"] == {"p50": None, "p90": None}
    assert why["cheapest_change"] == {
        "kind": "units",
        "message": "one more unit of trillium",
        "option": "tpu-v6e:4x4*2",
        "subject": "trillium",
        "amount": 1,
        "price_per_hour": 32.0,
    }
    running = planning.why(scheduler, scheduler.state.workloads["a"])
    assert running["options"] == [{"option": "tpu-v6e:4x4", "reasons": []}]
    assert running["cheapest_change"] is None


def test_why_knows_a_quota_and_a_unit_on_its_way() -> None:
    scheduler = _scheduler(_fleet(queues={"small": {"quota": {"tpu-v6e": 16}}, "default": {}}))
    for name in ("a", "b"):
        scheduler.handle(Submitted(NOW, demand(job(name, "tpu-v6e:4x4", queue="small"), name, name)))
    change = planning.why(scheduler, scheduler.state.workloads["b"])["cheapest_change"]
    assert change["message"] == "a quota larger by 16 chips of tpu-v6e"
    scheduler.handle(Submitted(NOW, demand(job("c", "h100:8"), "c", "c")))
    found = forecast(scheduler, History())
    why = planning.why(scheduler, scheduler.state.workloads["c"], found["c"])
    assert why["earliest"] == {"p50": rfc3339(NOW + 300), "p90": rfc3339(NOW + 300)}


def test_times_go_there_and_back() -> None:
    assert rfc3339(0.5) == "1970-01-01T00:00:00.500000Z"
    assert rfc3339(None) is None
    assert (
        parse_time("1970-01-01T00:00:10Z")
        == parse_time("1970-01-01T02:00:10+02:00")
        == parse_time("1970-01-01T00:00:10")
        == 10
    )


def test_planning_imports_nothing_heavy() -> None:
    heavy = "('sqlalchemy', 'fastapi', 'ray', 'asyncio', 'jax')"
    code = f"import sys, stellwerk.controller.planning; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
