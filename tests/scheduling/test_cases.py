"""Cases from people's reports, from the files that people write to what the core orders, second by second."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from world import Site

from stellwerk import spec
from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.declared import demand, fleet_of
from stellwerk.scheduling.policy.provisioning import COOL_DOWN, QUOTA_COOL_DOWN


def site_of(pools: list[dict[str, Any]], **more: Any) -> Site:
    """A core that knows a fleet file; nothing is answered yet."""
    site = Site()
    site.tell(ev.FleetChanged(0.0, fleet_of(spec.load_fleet({"pools": pools, **more}))))
    return site


def submit(site: Site, name: str, options: list[Any], kind: str = "job", **more: Any) -> None:
    file = {"kind": kind, "entrypoint": "x.py", "options": options, **more}
    site.tell(ev.Submitted(site.now, demand(spec.load_workload(file), name, name)))


def ordered(site: Site, kind: type[Any], pool: str | None = None) -> list[Any]:
    """Orders of a kind that nobody has answered."""
    return [each for each in site.orders if isinstance(each, kind) and pool in (None, getattr(each, "pool", None))]


def answer(site: Site, orders: Iterable[cmd.Command]) -> None:
    for order in list(orders):
        site.orders.remove(order)
        for event in site.answer(order):
            site.tell(event)


def wake_until(site: Site, until: float, *kinds: type[Any]) -> None:
    """Let time pass; orders of these kinds are answered at once, others stay."""
    while (wake := site.state.wake_at) is not None and wake <= until:
        site.now = max(site.now, wake)
        site.tell(ev.Woke(site.now))
        answer(site, [order for order in site.orders if isinstance(order, kinds)])
    site.now = until


V6E = {"name": "v6e", "accelerator": "tpu-v6e", "topology": "4x4", "units": {"min": 0, "max": 2}, "provision": "540s"}


class TestSliceFromZero:
    """T9: one slice is made, once, at once, and waited for; given up at 1200 s, it is given back."""

    def begin(self) -> Site:
        site = site_of([V6E])
        assert ordered(site, cmd.ProvisionUnit) == []
        submit(site, "a", ["tpu-v6e:4x4"], limits={"wait": "1200s"})
        assert [order.unit for order in ordered(site, cmd.ProvisionUnit)] == ["v6e-0"]
        return site

    def test_it_starts_when_the_slice_is_there(self) -> None:
        site = self.begin()
        for second in (60.0, 100.0, 539.0):
            wake_until(site, second)
            assert site.phase("a") == "waiting" and len(ordered(site, cmd.ProvisionUnit)) == 1
            assert site.codes("a") == [["provisioning"]] and not ordered(site, cmd.ReleaseUnit)
        site.now = 540.0
        answer(site, ordered(site, cmd.ProvisionUnit))
        assert [order.workload for order in ordered(site, cmd.StartAttempt)] == ["a"]
        assert site.state.workloads["a"].attempts[0].began == 540.0

    def test_it_gives_up_and_nothing_is_left(self) -> None:
        site = self.begin()
        wake_until(site, 1200.0)
        workload = site.state.workloads["a"]
        assert (workload.phase, workload.cause, workload.finished) == ("ended", "wait-limit", 1200.0)
        assert "1 on the way (a unit takes 540 s)" in workload.message
        assert [order.unit for order in ordered(site, cmd.ReleaseUnit)] == ["v6e-0"]
        site.orders = ordered(site, cmd.ReleaseUnit)
        site.obey()
        assert site.state.units == {}


def gpu_chain() -> tuple[list[dict[str, Any]], list[Any]]:
    """Nodes of one GPU each, so that a gang of 16 is 16 nodes."""
    pools = [
        {"name": "h100-spot", "accelerator": "h100", "machine": "a3-highgpu-1g", "market": "spot"},
        {"name": "h100", "accelerator": "h100", "machine": "a3-highgpu-1g"},
        {"name": "a100", "accelerator": "a100-80g", "machine": "a2-ultragpu-1g"},
    ]
    options = ["h100:16@spot", {"accelerator": "h100", "count": 16, "market": "on-demand", "patience": "300s"}]
    return [{**pool, "units": {"min": 0, "max": 16}} for pool in pools], [*options, "a100-80g:16"]


class TestClassChain:
    """T12: spot is refused by quota, on-demand is stocked out after 9 of 16, the third class takes all."""

    def test_the_chain(self) -> None:
        pools, options = gpu_chain()
        site = site_of(pools)
        submit(site, "w", options)
        first, *others = ordered(site, cmd.ProvisionUnit, "h100-spot")
        assert len(others) == 15
        site.orders.clear()
        site.tell(ev.ProvisionRefused(0.0, "h100-spot", first.unit, 1, "quota"))
        assert len(ordered(site, cmd.ProvisionUnit, "h100")) == 16
        answer(site, ordered(site, cmd.ReleaseUnit))

        site.now = 5.0
        coming = ordered(site, cmd.ProvisionUnit, "h100")
        answer(site, coming[:9])
        site.tell(ev.ProvisionRefused(5.0, "h100", coming[9].unit, 1, "stock-out"))
        site.orders = ordered(site, cmd.ReleaseUnit)
        assert site.phase("w") == "waiting" and sum(u.pool == "h100" for u in site.state.units.values()) >= 9

        wake_until(site, 305.0, cmd.ReleaseUnit)
        assert len(ordered(site, cmd.ProvisionUnit, "a100")) == 16
        assert not [unit for unit in site.state.units.values() if unit.pool == "h100"]
        answer(site, ordered(site, cmd.ProvisionUnit, "a100"))
        (start,) = ordered(site, cmd.StartAttempt)
        assert {grant.pool for grant in start.grants} == {"a100"}
        assert sum(grant.chips for grant in start.grants) == 16
        left = site.state.workloads["w"].departures
        assert [(each.option, each.code, each.at) for each in left] == [(0, "quota", 0.0), (1, "limit", 300.0)]

    @pytest.mark.parametrize(("code", "pause"), [("quota", QUOTA_COOL_DOWN), ("stock-out", COOL_DOWN)])
    def test_a_refused_pool_is_asked_again_only_after_its_cool_down(self, code: str, pause: float) -> None:
        pools, _ = gpu_chain()
        site = site_of(pools)
        submit(site, "w", ["h100:1@spot"])
        (first,) = ordered(site, cmd.ProvisionUnit)
        site.orders.clear()
        site.tell(ev.ProvisionRefused(0.0, "h100-spot", first.unit, 1, code))
        submit(site, "later", ["h100:1@spot"])
        wake_until(site, pause - 1.0)
        assert ordered(site, cmd.ProvisionUnit) == []
        assert site.codes("w")[0] == ["stock-out" if code == "stock-out" else "cool-down"]
        wake_until(site, pause)
        assert {order.pool for order in ordered(site, cmd.ProvisionUnit)} == {"h100-spot"}
        answer(site, ordered(site, cmd.ProvisionUnit))
        assert {site.phase(name) for name in ("w", "later")} == {"starting"}


class TestMarkets:
    """Spot units are taken away, flex-start units leave after their time and come when there are some."""

    def test_a_spot_unit_that_is_taken_costs_no_retry(self) -> None:
        site = site_of([{**V6E, "market": "spot", "units": 1, "provision": "9m"}])
        site.obey()
        submit(site, "w", ["tpu-v6e:4x4@spot"])
        answer(site, ordered(site, cmd.StartAttempt))
        site.tell(ev.DrainNoticed(0.0, "v6e-0", 1, 30.0))
        assert [(order.cause, order.grace) for order in ordered(site, cmd.StopAttempt)] == [("infrastructure", 30.0)]
        answer(site, ordered(site, cmd.StopAttempt))
        site.tell(ev.UnitGone(30.0, "v6e-0", 1, "preempted"))
        workload = site.state.workloads["w"]
        assert (workload.phase, workload.attempts[0].cause) == ("waiting", "infrastructure")
        assert (workload.failures, workload.retries_left) == (0, 0)
        again = [order for order in ordered(site, cmd.ProvisionUnit) if order.incarnation == 2]
        assert [order.unit for order in again] == ["v6e-0"]
        answer(site, again)
        assert site.phase("w") == "starting"

    def test_a_spot_unit_that_vanishes_ends_what_runs_on_it(self) -> None:
        site = site_of([{**V6E, "market": "spot", "units": 1}])
        site.obey()
        submit(site, "w", ["tpu-v6e:4x4"])
        answer(site, ordered(site, cmd.StartAttempt))
        site.tell(ev.UnitGone(1.0, "v6e-0", 1, "preempted"))
        assert [order.cause for order in ordered(site, cmd.StopAttempt)] == ["infrastructure"]
        site.obey()
        assert (site.phase("w"), len(site.state.workloads["w"].attempts)) == ("running", 2)

    def test_a_flex_start_unit_leaves_after_its_time(self) -> None:
        week = 7 * 86400.0
        site = site_of([{**V6E, "market": "flex-start"}])
        submit(site, "w", ["tpu-v6e:4x4@flex-start"])
        site.now = 540.0
        site.obey()
        assert site.phase("w") == "running"
        wake_until(site, 540.0 + week - 301.0)
        assert site.orders == [] or not ordered(site, cmd.StopAttempt)
        wake_until(site, 540.0 + week - 300.0)
        assert [(order.cause, order.grace) for order in ordered(site, cmd.StopAttempt)] == [("infrastructure", 300.0)]
        assert site.state.units["v6e-0"].leaving
        answer(site, ordered(site, cmd.StopAttempt))
        assert [order.unit for order in ordered(site, cmd.ReleaseUnit)] == ["v6e-0"]
        assert site.state.workloads["w"].failures == 0
        site.obey()
        assert (site.phase("w"), len(site.state.workloads["w"].attempts)) == ("running", 2)

    def test_an_idle_unit_is_replaced_at_the_end_of_its_time(self) -> None:
        site = site_of([{**V6E, "market": "flex-start", "units": {"min": 1, "max": 1}, "lifetime": "1h"}])
        site.obey()
        wake_until(site, 3600.0 - 301.0, cmd.ReleaseUnit)
        assert site.state.units["v6e-0"].incarnation == 1
        wake_until(site, 3600.0 - 300.0)
        site.obey()
        assert (site.state.units["v6e-0"].incarnation, site.state.units["v6e-0"].phase) == (2, "up")

    def test_flex_start_waits_for_stock(self) -> None:
        site = site_of([{**V6E, "market": "flex-start"}])
        submit(site, "w", ["tpu-v6e:4x4"])
        for turn in range(3):
            (order,) = ordered(site, cmd.ProvisionUnit)
            site.orders.clear()
            site.tell(ev.ProvisionRefused(site.now, "v6e", order.unit, order.incarnation, "stock-out"))
            assert site.codes("w") == [["stock-out"]]
            wake_until(site, COOL_DOWN * (turn + 1))
        answer(site, ordered(site, cmd.ProvisionUnit))
        assert site.phase("w") == "starting"


class TestSubSlices:
    """Small slices share a unit, and say where they lie."""

    def test_two_halves_of_one_unit_and_a_whole_one(self) -> None:
        site = site_of([{**V6E, "layout": "subslices", "units": 2, "provision": "0s"}])
        site.obey()
        for name, shape in (("a", "2x4"), ("b", "2x4"), ("c", "4x4"), ("d", "2x2")):
            submit(site, name, [{"accelerator": "tpu-v6e", "topology": shape, "chips_per_host": 4}])
        site.obey()
        held = {name: site.state.workloads[name].attempts[0].grants[0] for name in "abc"}
        assert (held["a"].unit, held["b"].unit, held["c"].unit) == ("v6e-0", "v6e-0", "v6e-1")
        assert {held["a"].place, held["b"].place} == {"0,0/2x4", "2,0/2x4"}
        assert [(held[name].chips, held[name].hosts) for name in "abc"] == [(8, 2), (8, 2), (16, 4)]
        assert site.codes("d") == [["capacity"]]
        site.finish("a")
        grant = site.state.workloads["d"].attempts[0].grants[0]
        assert (grant.unit, grant.chips, grant.hosts) == ("v6e-0", 4, 1)

    def test_another_machine_type_is_not_cut_out(self) -> None:
        site = site_of([{**V6E, "layout": "subslices", "units": 2}])
        submit(site, "a", [{"accelerator": "tpu-v6e", "topology": "2x4", "machine": "ct6e-standard-8t"}])
        assert site.state.workloads["a"].cause == "impossible"

    @pytest.mark.parametrize("layout", ["torus", "optical"])
    def test_a_pod_hands_out_slices_of_cubes(self, layout: str) -> None:
        pod = {"name": "pod", "accelerator": "tpu-v5p", "topology": "4x4x16", "layout": layout, "units": 4}
        site = site_of([pod])
        site.obey()
        for name, shape in (("a", "4x4x8"), ("b", "4x4x4"), ("c", "4x8x8")):
            submit(site, name, [f"tpu-v5p:{shape}"])
        assert [len(site.state.workloads[name].attempts[0].grants) for name in "ab"] == [2, 1]
        assert site.state.workloads["c"].phase == ("waiting" if layout == "optical" else "ended")
