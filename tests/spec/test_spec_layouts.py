"""Layouts of pools, cohorts, policies, markets: their keys, what is wrong with them, what the core gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stellwerk.scheduling.codec import decode_event, encode
from stellwerk.scheduling.declared import fleet_of, pool_of
from stellwerk.scheduling.events import FleetChanged
from stellwerk.spec import Fleet, SpecError, load_fleet

V6E = {"name": "a", "accelerator": "v6e", "topology": "4x4", "units": 2}
V5P = {"name": "p", "accelerator": "v5p", "topology": "8x8x8", "units": 8}


def fleet(pool: dict[str, Any] | None = None, **more: Any) -> Fleet:
    return load_fleet({"pools": [{**V6E, **(pool or {})}], **more})


def refusal(pool: dict[str, Any] | None = None, **more: Any) -> str:
    with pytest.raises(SpecError) as caught:
        fleet(pool, **more)
    return str(caught.value)


def test_units_are_handed_out_whole_unless_said() -> None:
    loaded = fleet()
    assert loaded.pools[0].layout == "units"
    (pool,) = fleet_of(loaded).pools
    assert (pool.layout, pool.chips, pool.hosts, pool.lifetime) == ("units", 16, 4, None)


@pytest.mark.parametrize("layout", ["torus", "optical"])
def test_a_pod_has_its_own_topology_and_its_cubes_as_units(layout: str) -> None:
    loaded = fleet({**V5P, "layout": layout})
    (pool,) = fleet_of(loaded).pools
    assert (pool.topology, pool.unit_topology, pool.chips, pool.hosts, pool.maximum) == ("8x8x8", "4x4x4", 64, 16, 8)
    assert (loaded.pools[0].machine, loaded.pools[0].chips_per_host) == ("ct5p-hightpu-4t", 4)
    assert load_fleet(loaded) == loaded
    later = fleet({**V5P, "layout": layout, "units": {"min": 0, "max": 8}, "topology": "8 X 8 x 8"})
    assert later.pools[0].topology == "8x8x8"


@pytest.mark.parametrize(
    ("pool", "code", "said"),
    [
        ({"layout": "subslice"}, "not-allowed", "did you mean subslices?"),
        ({"layout": "torus"}, "layout", "slices are cubes of 4x4x4, and tpu-v6e has none"),
        ({**V5P, "layout": "torus", "topology": "4x4x6"}, "pod", "did you mean 4x4x8?"),
        ({**V5P, "layout": "optical", "topology": "8x8"}, "pod", "did you mean 4x8x8?"),
        ({**V5P, "layout": "optical", "topology": "big"}, "illegal-topology", "is no topology"),
        ({**V5P, "layout": "torus", "topology": "4x4x4"}, "pod", "4x4x4 has 1 cube, not 8; write units: 1"),
        ({**V5P, "layout": "torus", "units": {"min": 0, "max": 4}}, "pod", "8x8x8 has 8 cubes, not 4"),
        ({"topology": "1x1", "machine": "ct6e-standard-1t", "layout": "subslices"}, "layout", "no smaller part"),
        ({"accelerator": "h100", "topology": None, "chips": 8, "layout": "subslices"}, "layout", "is for TPUs"),
        ({"market": "flex-start", "lifetime": "8d"}, "lifetime", "at most 7 days"),
        ({"market": "flexstart"}, "not-allowed", "did you mean flex-start?"),
        ({"lay_out": "torus"}, "unknown-key", "did you mean layout?"),
    ],
)
def test_what_is_refused(pool: dict[str, Any], code: str, said: str) -> None:
    text = refusal(pool)
    assert f"error[{code}]" in text and said in text


def test_errors_have_their_place(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        """\
policy: fiffo
preempt: sometimes
pools:
  - {name: a, accelerator: v6e, topology: 4x4, layout: optical, units: 1}
  - {name: b, accelerator: v5p, topology: 8x8x8, layout: optical, units: 4}
queues:
  q: {cohort: Bad, borrow: -1, lend: some, policy: sfj, group: x}
"""
    )
    with pytest.raises(SpecError) as caught:
        load_fleet(file)
    found = [(problem.line, problem.column, problem.code) for problem in caught.value.problems]
    assert found == [
        (1, 9, "not-allowed"), (2, 10, "wrong-type"), (4, 56, "layout"), (5, 74, "pod"),
        (7, 15, "name"), (7, 28, "wrong-type"), (7, 38, "wrong-type"), (7, 52, "not-allowed"), (7, 57, "unknown-key"),
    ]  # fmt: skip
    assert "did you mean fifo?" in str(caught.value) and "did you mean cohort?" in str(caught.value)


def test_queues_reach_the_core_exactly_and_through_the_log() -> None:
    queues = {
        "a": {"quota": {"v6e": 16}, "cohort": "x", "borrow": True, "lend": True, "policy": "sjf"},
        "b": {"borrow": False, "lend": False},
        "c": {"borrow": 1, "lend": 1},
        "d": {"borrow": 0, "lend": 0},
    }
    made = fleet_of(fleet(queues=queues, policy="backfill", preempt=True))
    a, b, c, d = made.queues
    assert (a.cohort, a.borrow, a.lend, a.policy, a.quota) == ("x", None, None, "sjf", (("tpu-v6e", 16),))
    assert [(q.cohort, q.borrow, q.lend, q.policy) for q in (b, d)] == [("", 0, 0, None), ("", 0, 0, None)]
    assert (c.borrow, c.lend) == (1, 1) and c.lend is not True
    assert (made.policy, made.preempt) == ("backfill", True)
    told = decode_event("FleetChanged", json.loads(json.dumps(encode(FleetChanged(0.0, made)))))
    assert isinstance(told, FleetChanged) and told.fleet == made
    assert [queue.lend for queue in told.fleet.queues] == [None, 0, 1, 0]
    assert [type(queue.lend) for queue in told.fleet.queues] == [type(None), int, int, int]
    assert fleet_of(fleet()).policy == "default" and not fleet_of(fleet()).preempt


def test_markets_have_their_prices_and_flex_start_its_seven_days() -> None:
    def made(**more: Any):
        loaded = fleet(more)
        return pool_of(loaded, loaded.pools[0])

    on_demand, spot, flex = made(), made(market="spot"), made(market="flex-start")
    assert on_demand.price is not None and (spot.price is None or spot.price < on_demand.price)
    assert made(market="spot", price=1.1).price == 1.1
    assert (flex.market, flex.lifetime) == ("flex-start", 7 * 86400)
    assert made(market="flex-start", lifetime="1d").lifetime == 86400
    assert (on_demand.lifetime, made(market="spot", lifetime="24h").lifetime) == (None, 86400)
    h100 = {"accelerator": "h100", "topology": None, "machine": "a3-highgpu-8g"}
    both = [made(**h100, market=market).price for market in ("on-demand", "spot")]
    assert both[0] is not None and both[1] is not None and both[1] < both[0]


def test_flex_start_where_nobody_offers_it_is_doubtful() -> None:
    v4 = {"name": "v4", "accelerator": "v4", "topology": "2x2x2", "market": "flex-start", "units": 1}
    assert [problem.code for problem in load_fleet({"pools": [v4]}).warnings] == ["no-flex-start"]
    assert fleet({"market": "flex-start"}).warnings == ()
