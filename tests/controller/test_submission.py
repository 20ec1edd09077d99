from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from controller_world import FakeClock, SmallMachine, World, WorldBackend, job
from pytest import mark, raises

from stellwerk import spec
from stellwerk.controller.bundles import BundleError
from stellwerk.controller.intake import Unsupported
from stellwerk.controller.log import Log
from stellwerk.controller.loop import Controller
from stellwerk.controller.recovery import recover
from stellwerk.controller.submission import NameInUse, Submissions


async def _site(home: Path, world: World | None = None) -> tuple[Controller, Submissions, WorldBackend]:
    backend = WorldBackend(world or World(FakeClock()), eager=True)
    controller = Controller(home, backend, Log.at(home / "log.db"), backend.world.clock, validate=True)
    await recover(controller)
    return controller, Submissions(controller, SmallMachine()), backend


def test_names_are_unique_among_the_living(tmp_path: Path) -> None:
    async def story() -> None:
        controller, submissions, backend = await _site(tmp_path)
        names = [(await submissions.submit(job("lm"), None, f"s{n}")).name for n in range(3)]
        assert names == ["lm", "lm-2", "lm-3"]
        with raises(NameInUse, match="lm-2 is the name of a workload that has not ended"):
            await submissions.submit(job("lm"), "lm-2", "s9")
        assert (await submissions.submit(job("lm"), "mine", "s10")).name == "mine"
        longest = "x" * 40
        assert (await submissions.submit(job(longest), None, "s11")).name == longest
        assert (await submissions.submit(job(longest), None, "s12")).name == "x" * 38 + "-2"
        first = next(iter(controller.state.workloads.values()))
        backend.world.end((first.key, 1), "succeeded", None)
        backend.flush()
        assert (await submissions.submit(job("lm"), "lm", "s13")).name == "lm"
        assert len(set(controller.state.workloads)) == 7
        await controller.close()

    asyncio.run(story())


def test_the_same_submission_is_one_workload_even_at_the_same_time_and_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.py").write_text("print()")
    home = tmp_path / "home"
    home.mkdir()

    async def story() -> None:
        controller, submissions, backend = await _site(home)
        workload = job("lm", working_dir=str(tmp_path / "code"))
        answers = await asyncio.gather(*(submissions.submit(workload, None, "same") for _ in range(4)))
        assert len({answer.key for answer in answers}) == 1
        await controller.close()
        controller, submissions, _ = await _site(home, backend.world)
        assert await submissions.submit(workload, None, "same") == answers[0]
        assert len(controller.state.workloads) == 1
        await controller.close()

    asyncio.run(story())


def test_a_workload_runs_from_its_bundle_which_is_pruned_after_its_end(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.py").write_text("first")
    home = tmp_path / "home"
    home.mkdir()

    async def story() -> None:
        controller, submissions, backend = await _site(home)
        declared = await submissions.submit(job("lm", working_dir=str(tmp_path / "code")), None, "s")
        bundle = Path(declared.declaration["working_dir"])
        (tmp_path / "code" / "run.py").write_text("second")
        assert bundle.parent == home / "bundles"
        assert (bundle / "run.py").read_text() == "first"
        submissions.prune()
        assert bundle.is_dir()
        backend.world.end((declared.key, 1), "succeeded", None)
        backend.flush()
        submissions.prune()
        assert not bundle.exists()
        await controller.close()

    asyncio.run(story())


@mark.parametrize(
    ("keys", "error"),
    [({"kind": "batch"}, Unsupported), ({"working_dir": "/nowhere/at/all"}, BundleError)],
)
def test_what_is_refused_leaves_nothing(keys: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    async def story() -> None:
        controller, submissions, _ = await _site(tmp_path)
        before = len(list(controller.log.events()))
        with raises(error):
            await submissions.submit(job("lm", **keys), None, "s")
        assert len(list(controller.log.events())) == before
        assert controller.state.workloads == {}
        await controller.close()

    asyncio.run(story())


def test_a_declared_fleet_stays_declared_over_restarts(tmp_path: Path) -> None:
    async def story() -> None:
        controller, submissions, backend = await _site(tmp_path)
        await submissions.submit(job("a", "tpu-v6e:4x4"), None, "a")
        assert [pool.name for pool in controller.state.fleet.pools] == ["tpu-v6e-4x4"]
        pools = [{"name": "own", "accelerator": "p100", "chips": 8, "units": 1}]
        submissions.change_fleet(spec.load_fleet({"pools": pools, "accelerators": {"p100": {"price": 1.0}}}))
        await controller.close()
        controller, submissions, _ = await _site(tmp_path, backend.world)
        assert submissions.fleet_declared
        assert submissions.accelerators == {"p100"}
        declared = await submissions.submit(job("b", "tpu-v6e:4x4"), None, "b")
        assert controller.state.workloads[declared.key].cause == "impossible"
        await controller.close()

    asyncio.run(story())
