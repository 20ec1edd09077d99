"""The invariants of the core under random events, in random orders, with news late, doubled or of things long
gone."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from world import Limits, Queue, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.codec import canonical, decode_event, decode_state, encode
from stellwerk.scheduling.model import Demand, Fleet, Pool

CAUSES = ("user-error", "out-of-memory", "infrastructure")


def random_demand(rng: random.Random, key: str) -> Demand:
    """A workload that may fit, may have to wait, or may never fit."""
    choices = [
        tpu(rng.randint(1, 4)),
        replace(tpu(2), minimum=1, maximum=rng.randint(1, 3)),
        gpus(rng.randint(1, 30)),
        tpu(1, patience=rng.choice([0.0, 5.0, 50.0])),
        tpu(rng.randint(1, 3), "2x2"),
        replace(tpu(1, "2x4"), minimum=1, maximum=rng.randint(2, 5)),
        tpu(rng.randint(1, 2), "4x4x4", "tpu-v5p"),
        replace(tpu(1, "4x4x8", "tpu-v5p"), minimum=1, maximum=2),
    ]
    options = rng.sample(choices, rng.randint(1, 3))
    limits = Limits(wait=rng.choice([None, 500.0]), run=rng.choice([None, 300.0]), cost=rng.choice([None, 9.0]))
    return demand(
        key,
        *options,
        priority=rng.choice([-100, 0, 0, 100]),
        queue=rng.choice(["a", "a", "b"]),
        limits=limits,
        retries=rng.randint(0, 2),
        runtime=rng.choice([None, 30.0, 100.0, 400.0]),
    )


def random_site(rng: random.Random) -> Site:
    size, handed_out = rng.choice([(0, None), (2, None), (2, 1)]), rng.choice(["units", "units", "subslices"])
    pools = (
        slices(
            3,
            minimum=rng.randint(0, 3),
            buffer=rng.randint(0, 1),
            price=2.7,
            footprint=size[0],
            fixed=size[1],
            layout=handed_out,
        ),
        nodes(
            3,
            minimum=rng.randint(0, 3),
            provision=rng.choice([0.0, 30.0]),
            idle=20.0,
            lifetime=rng.choice([None, None, 200.0]),
        ),
    )
    if rng.random() < 0.5:
        layout, least = rng.choice(["torus", "optical"]), rng.randint(0, 4)
        pools += (
            Pool("pod", "tpu-v5p", "4x4x16", None, 64, 16, 4, least, layout=layout, lifetime=least * 99.0 or None),
        )
    queues = rng.choice(
        [
            (),
            (Queue("a"), Queue("b", (("tpu-v6e", 32),))),
            (Queue("a", (("h100", 8),), lend=rng.choice([True, 4])), Queue("b", (("h100", 16),), borrow=4, weight=2.0)),
        ]
    )
    policy = rng.choice(["default", "default", "fifo", "sjf", "backfill"])
    site = Site(*pools, queues=queues, memory=rng.choice([None, 5]))
    site.tell(ev.FleetChanged(0.0, replace(site.state.fleet, policy=policy, preempt=rng.random() < 0.5)))
    return site


def step(site: Site, rng: random.Random, number: int) -> None:
    """One thing happens."""
    site.now += rng.choice([0.0, 0.1, 1.0, 30.0])
    what = rng.choices(
        (
            "submit",
            "answer",
            "end",
            "host",
            "gone",
            "drain",
            "refuse",
            "stop",
            "wake",
            "save",
            "echo",
            "fleet",
        ),
        (8, 24, 8, 3, 1, 1, 2, 1, 4, 2, 3, 1),
    )[0]
    state = site.state
    units = list(state.units.values())
    if what == "submit":
        site.submit(random_demand(rng, f"w{number}"))
    elif what == "answer" and site.orders:
        for event in site.answer(site.orders.pop(rng.randrange(len(site.orders)))):
            site.tell(event)
    elif what == "end" and site.running:
        key = rng.choice(sorted(site.running))
        cause = rng.choice((None, *CAUSES))
        outcome = "failed" if cause else "succeeded"
        site.tell(ev.AttemptEnded(site.now, key, site.running.pop(key), outcome, cause))  # type: ignore[arg-type]
    elif what == "host" and units:
        unit = rng.choice(units)
        site.tell(ev.HostChanged(site.now, unit.name, unit.incarnation, rng.randrange(unit.hosts), rng.random() < 0.2))
    elif what == "gone" and units:
        unit = rng.choice(units)
        site.tell(ev.UnitGone(site.now, unit.name, unit.incarnation))
    elif what == "drain" and units:
        unit = rng.choice(units)
        site.tell(ev.DrainNoticed(site.now, unit.name, unit.incarnation, site.now + 30.0))
    elif what == "refuse":
        for order in [order for order in site.orders if type(order).__name__ == "ProvisionUnit"][:1]:
            site.orders.remove(order)
            site.tell(ev.ProvisionRefused(site.now, order.pool, order.unit, order.incarnation, "stock-out"))
    elif what == "stop" and state.workloads:
        site.tell(ev.StopRequested(site.now, rng.choice(sorted(state.workloads)), 5.0))
    elif what == "wake":
        site.pass_time(rng.choice([1.0, 61.0]))
    elif what == "save" and site.running:
        key = rng.choice(sorted(site.running))
        site.tell(ev.CheckpointReported(site.now, key, site.running[key], f"file:///{number}", number))
    elif what == "echo":
        site.tell(rng.choice(site.log))
    elif what == "fleet":
        site.tell(ev.FleetChanged(site.now, Fleet((slices(rng.randint(1, 4), minimum=0), nodes(2)))))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_invariants_hold_and_a_replay_gives_the_same_state(seed: int) -> None:
    rng = random.Random(seed)
    site = random_site(rng)
    for number in range(60):
        step(site, rng, number)
    replayed = Scheduler()
    for event in site.log:
        plain = json.loads(json.dumps(encode(event)))
        replayed.handle(decode_event(type(event).__name__, plain))
    assert canonical(replayed.state) == canonical(site.state)
    assert canonical(decode_state(json.loads(canonical(site.state)))) == canonical(site.state)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_everything_ends_once_the_world_is_kind_again(seed: int) -> None:
    """No workload is stuck: with units healthy and attempts that succeed, all come to an end."""
    rng = random.Random(seed)
    site = random_site(rng)
    for number in range(40):
        step(site, rng, number)
    for _ in range(400):
        site.obey(rng)
        for key in sorted(site.running):
            if key in site.running:
                site.finish(key)
        site.pass_time(60.0)
        if all(workload.phase == "ended" for workload in site.state.workloads.values()):
            break
    for workload in site.state.workloads.values():
        impossible = {reason.code for why in workload.reasons for reason in why} == {"impossible"}
        assert workload.phase == "ended" or (workload.attempts and impossible)
    assert not any(unit.held for unit in site.state.units.values())
