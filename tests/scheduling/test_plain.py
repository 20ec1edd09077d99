"""The plain case in few steps does what the general way does."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from world import Limits, demand, gpus, nodes

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.codec import canonical
from stellwerk.scheduling.model import Demand, Fleet


def general(fleet: ev.FleetChanged) -> tuple[Scheduler, list[cmd.Command]]:
    """A scheduler that takes no short cuts."""
    scheduler = Scheduler(explained=0)
    commands = scheduler.handle(fleet)
    scheduler.book.bare = scheduler.book.catalogue.bare = False
    return scheduler, commands


def random_demand(rng: random.Random, number: int) -> Demand:
    return demand(
        f"w{number}",
        gpus(rng.choice([1, 1, 2, 3, 4, 8, 12])),
        priority=rng.choice([0, 0, 1]),
        runtime=rng.choice([None, 30.0, 100.0]),
        retries=rng.randint(0, 1),
        limits=rng.choice([Limits(), Limits(), Limits(wait=90.0)]),
    )


def next_event(rng: random.Random, now: float, running: dict[str, int], number: int) -> ev.Event:
    what = rng.choices(("submit", "succeed", "fail", "stop", "wake", "host"), (10, 9, 2, 1, 2, 1))[0]
    key = rng.choice(sorted(running)) if running else ""
    if what == "succeed" and key:
        return ev.AttemptEnded(now, key, running.pop(key), "succeeded", exit_code=rng.choice([None, 0]))
    if what == "fail" and key:
        cause = rng.choice(("user-error", "infrastructure"))
        return ev.AttemptEnded(now, key, running.pop(key), "failed", cause)  # type: ignore[arg-type]
    if what == "stop" and key:
        return ev.StopRequested(now, key)
    if what == "host":
        return ev.HostChanged(now, f"h100-{rng.randrange(3)}", 1, 0, up=False)
    if what == "wake":
        return ev.Woke(now)
    return ev.Submitted(now, random_demand(rng, number))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_short_way_decides_as_the_general_way(seed: int) -> None:
    rng = random.Random(seed)
    fleet = Fleet((nodes(3),), policy=rng.choice(["fifo", "sjf"]))  # type: ignore[arg-type]
    short = Scheduler(explained=0)
    first = ev.FleetChanged(0.0, fleet)
    commands = short.handle(first)
    other, same = general(first)
    assert short.book.bare and commands == same
    for order in commands:
        if isinstance(order, cmd.ProvisionUnit):
            event = ev.UnitAppeared(0.0, order.pool, order.unit, order.incarnation)
            assert short.handle(event) == other.handle(event)
    now, running = 0.0, dict[str, int]()
    for number in range(80):
        now += rng.choice([0.0, 1.0, 30.0])
        event = next_event(rng, now, running, number)
        commands = short.handle(event)
        assert commands == other.handle(event)
        running.update({order.workload: order.attempt for order in commands if isinstance(order, cmd.StartAttempt)})
    assert canonical(short.state) == canonical(other.state)
