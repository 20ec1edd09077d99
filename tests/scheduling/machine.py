"""Random sites and random things that happen to them, from a seed: what the property tests and `fuzz.py` drive.

A `Site` of `world` answers orders in any order, late or twice, loses hosts and units, is asked questions at any time,
and now and then the controller dies: the scheduler is made anew from the log and goes on from there.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

from world import Limits, Queue, Site, demand, gpus, nodes, slices, tpu

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.codec import canonical, decode_event, decode_state, encode
from stellwerk.scheduling.model import Demand, Fleet, Layout, Option, Part, PolicyName, Pool

CAUSES = ("user-error", "out-of-memory", "infrastructure")
POLICIES: tuple[PolicyName, ...] = ("default", "default", "fifo", "sjf", "backfill")
CUBES = {"4x4x4": 64, "4x4x8": 128, "4x8x8": 256, "8x8x8": 512}

EVENTS = {
    "submit": 8,
    "answer": 24,
    "end": 8,
    "host": 3,
    "gone": 1,
    "drain": 1,
    "refuse": 2,
    "stop": 1,
    "wake": 4,
    "save": 2,
    "load": 2,
    "echo": 3,
    "fleet": 1,
    "ask": 2,
    "restart": 1,
}
"""What may happen, and how often."""


def cubes(shape: str, count: int = 1) -> Option:
    """An option of slices of whole cubes."""
    return Option(f"tpu-v5p:{shape}*{count}", (Part("main", "tpu-v5p", shape, CUBES[shape], count),))


def roles(rng: random.Random) -> Option:
    """An option of two or three roles on hardware of different kinds, or of the same."""
    learner = Part("learner", "tpu-v6e", "4x4", 16, rng.randint(1, 2))
    generator = Part("generator", "h100", None, rng.choice([1, 4, 8, 12]), rng.randint(1, 2))
    critic = Part("critic", "tpu-v6e", rng.choice(["4x4", "2x4"]), 16, 1)
    critic = replace(critic, chips=16 if critic.topology == "4x4" else 8)
    parts = rng.choice([(learner, generator), (generator, learner), (learner, critic), (learner, generator, critic)])
    return Option("roles", parts)


def random_option(rng: random.Random) -> Option:
    """Hardware that may fit, may have to be waited for, or may never fit."""
    small, chips = rng.choice([("2x2", 4), ("2x4", 8), ("4x4", 16)])
    return rng.choice(
        [
            tpu(rng.randint(1, 4)),
            replace(tpu(2), minimum=1, maximum=rng.randint(1, 3)),
            gpus(rng.randint(1, 30)),
            replace(gpus(1), minimum=1, maximum=rng.randint(2, 12)),
            tpu(1, patience=rng.choice([0.0, 5.0, 50.0])),
            Option(f"tpu-v6e:{small}", (Part("main", "tpu-v6e", small, chips, rng.randint(1, 3)),)),
            replace(tpu(1, "2x4"), minimum=1, maximum=rng.randint(2, 5)),
            cubes(rng.choice(sorted(CUBES)), rng.randint(1, 2)),
            replace(cubes("4x4x8"), minimum=1, maximum=2),
            roles(rng),
        ]
    )


def random_demand(rng: random.Random, key: str) -> Demand:
    """A workload with one to three options."""
    options = [random_option(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    if rng.random() < 0.2:
        options[0] = replace(options[0], runtime=rng.choice([10.0, 200.0]))
    limits = Limits(wait=rng.choice([None, 500.0]), run=rng.choice([None, 300.0]), cost=rng.choice([None, 9.0]))
    made = demand(
        key,
        *options,
        priority=rng.choice([-100, 0, 0, 100]),
        queue=rng.choice(["a", "a", "b", "c"]),
        limits=limits,
        retries=rng.randint(0, 2),
        runtime=rng.choice([None, 30.0, 100.0, 400.0]),
    )
    elastic = options[0].maximum is not None
    return replace(made, kind="serve") if elastic and rng.random() < 0.4 else made


def random_pools(rng: random.Random) -> tuple[Pool, ...]:
    """Whole slices, split slices, GPU nodes and a pod, or some of them."""
    layout: Layout = rng.choice(["units", "units", "subslices"])
    first = slices(3, minimum=rng.randint(0, 3), buffer=rng.randint(0, 1), price=2.7, footprint=rng.choice([0, 2]))
    pod: Layout = rng.choice(["torus", "optical"])
    found = [
        replace(first, layout=layout, fixed=rng.choice([None, 1])),
        nodes(3, minimum=rng.randint(0, 3), provision=rng.choice([0.0, 30.0]), idle=20.0),
        nodes(2, "other", minimum=rng.randint(0, 2), market="spot", price=1.0, lifetime=rng.choice([None, 200.0])),
        Pool("pod", "tpu-v5p", "4x4x4", "ct5p-hightpu-4t", 64, 16, 8, rng.randint(0, 8), layout=pod),
    ]
    return tuple(found[: rng.choice([2, 2, 3, 4])])


def random_queues(rng: random.Random) -> tuple[Queue, ...]:
    """None at all, limited or not, alone or in cohorts, with policies of their own."""
    policy = rng.choice([None, None, *POLICIES])
    return rng.choice(
        [
            (),
            (Queue("a"), Queue("b", (("tpu-v6e", 32),), policy=policy), Queue("c", weight=4.0)),
            (
                Queue("a", (("h100", 8),), lend=rng.choice([None, 4])),
                Queue("b", (("h100", 16),), borrow=4, weight=2.0),
                Queue("c", (("h100", 4), ("tpu-v6e", 16)), cohort=rng.choice(["", "x"])),
            ),
            (
                Queue("a", (("h100", 16), ("tpu-v6e", 16)), lend=0),
                Queue("b", (("h100", 8), ("tpu-v6e", 32)), policy=policy),
                Queue("c", (("h100", 0), ("tpu-v6e", 0), ("tpu-v5p", 128))),
            ),
        ]
    )


def random_site(rng: random.Random) -> Site:
    """A site under a random policy, which may preempt or not."""
    site = Site(*random_pools(rng), queues=random_queues(rng), memory=rng.choice([None, None, 5]))
    fleet = replace(site.state.fleet, policy=rng.choice(POLICIES), preempt=rng.random() < 0.5)
    site.tell(ev.FleetChanged(0.0, fleet))
    return site


def step(site: Site, rng: random.Random, number: int) -> None:
    """One thing happens."""
    site.now += rng.choice([0.0, 0.0, 0.1, 1.0, 30.0, 400.0])
    what = rng.choices(list(EVENTS), list(EVENTS.values()))[0]
    state, now = site.state, site.now
    unit = rng.choice(units) if (units := list(state.units.values())) else None
    key = rng.choice(sorted(site.running)) if site.running else None
    if what == "submit":
        site.submit(random_demand(rng, f"w{number}"))
    elif what == "answer" and site.orders:
        for event in site.answer(site.orders.pop(rng.randrange(len(site.orders)))):
            site.tell(event)
    elif what == "end" and key is not None:
        cause = rng.choice((None, *CAUSES))
        outcome = "failed" if cause else "succeeded"
        site.tell(ev.AttemptEnded(now, key, site.running.pop(key), outcome, cause))  # type: ignore[arg-type]
    elif what == "host" and unit is not None:
        site.tell(ev.HostChanged(now, unit.name, unit.incarnation, rng.randrange(unit.hosts), rng.random() < 0.2))
    elif what == "gone" and unit is not None:
        site.tell(ev.UnitGone(now, unit.name, unit.incarnation))
    elif what == "drain" and unit is not None:
        site.tell(ev.DrainNoticed(now, unit.name, unit.incarnation, now + 30.0))
    elif what == "refuse":
        for order in [order for order in site.orders if type(order).__name__ == "ProvisionUnit"][:1]:
            site.orders.remove(order)
            code = rng.choice(["stock-out", "quota"])
            site.tell(ev.ProvisionRefused(now, order.pool, order.unit, order.incarnation, code))
    elif what == "stop" and state.workloads:
        site.tell(ev.StopRequested(now, rng.choice(sorted(state.workloads)), 5.0))
    elif what == "wake":
        site.pass_time(rng.choice([1.0, 61.0, 2000.0]))
    elif what == "save" and key is not None:
        site.tell(ev.CheckpointReported(now, key, site.running[key], f"file:///{number}", number))
    elif what == "load" and state.workloads:
        site.tell(ev.LoadReported(now, rng.choice(sorted(state.workloads)), rng.choice([0.0, 0.5, 2.5, 7.0])))
    elif what == "echo":
        site.tell(rng.choice(site.log))
    elif what == "fleet":
        site.tell(ev.FleetChanged(now, random_fleet(site, rng)))
    elif what == "ask":
        ask(site, rng)
    elif what == "restart":
        site.scheduler = replayed(site, validate=True)


def random_fleet(site: Site, rng: random.Random) -> Fleet:
    """Another fleet: small and plain, or the present one with another policy, other queues or other pools."""
    fleet = site.state.fleet
    return rng.choice(
        [
            Fleet((slices(rng.randint(1, 4), minimum=0), nodes(2))),
            replace(fleet, policy=rng.choice(POLICIES), preempt=rng.random() < 0.5),
            replace(fleet, queues=random_queues(rng)),
            replace(fleet, pools=random_pools(rng)),
        ]
    )


def ask(site: Site, rng: random.Random) -> None:
    """Ask everything that may be asked at any time; no answer changes what is decided later."""
    scheduler = site.scheduler
    for key in rng.sample(sorted(site.state.workloads), min(3, len(site.state.workloads))):
        scheduler.reasons(key)
        scheduler.cheapest_change(key)
    scheduler.evaluate(random_demand(rng, "asked"), site.now)
    scheduler.copy()


def replayed(site: Site, *, validate: bool = False) -> Scheduler:
    """A scheduler made from the log, through JSON."""
    scheduler = Scheduler(validate=validate)
    for event in site.log:
        scheduler.handle(decode_event(type(event).__name__, json.loads(json.dumps(encode(event)))))
    return scheduler


def run(seed: int, steps: int) -> Site:
    """A site to which `steps` things have happened."""
    rng = random.Random(seed)
    site = random_site(rng)
    for number in range(steps):
        step(site, rng, number)
    return site


def check_replay(site: Site) -> None:
    """The log gives the same state byte for byte, and the state can be written down and read back."""
    told = canonical(site.state)
    assert canonical(replayed(site).state) == told, "a replay of the log gives another state"
    assert canonical(decode_state(json.loads(told))) == told, "the state reads back as another one"


def check_endings(site: Site, rng: random.Random) -> None:
    """No workload is stuck: with units healthy and attempts that succeed, all come to an end."""
    for _ in range(600):
        site.obey(rng)
        for key in sorted(site.running):
            if key in site.running:
                site.finish(key)
        site.pass_time(60.0)
        if all(workload.phase == "ended" for workload in site.state.workloads.values()):
            break
    for workload in site.state.workloads.values():
        impossible = {reason.code for why in workload.reasons for reason in why} == {"impossible"}
        stuck = f"{workload.key} is {workload.phase}: {workload.reasons}"
        assert workload.phase == "ended" or (workload.attempts and impossible), stuck
    assert not any(unit.held for unit in site.state.units.values())
