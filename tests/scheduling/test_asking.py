"""Those whom quota holds back are asked one after another; what comes of it is what asking all at once gives."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import run
from world import Queue, demand, gpus, nodes

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.book import Book
from stellwerk.scheduling.codec import canonical
from stellwerk.scheduling.commands import ProvisionUnit, StartAttempt
from stellwerk.scheduling.index import Lane
from stellwerk.scheduling.model import Fleet


def all_at_once(book: Book, lane: Lane) -> None:
    """What `Book.ask_next` saves: every class that is asked goes back in the order."""
    book.ask_rest()


def borrowers(seed: int) -> list[list[tuple[str, int]]]:
    """The starts after each event of a cohort that is always full: nothing but quota limits it."""
    rng = random.Random(seed)
    names = [f"q{number}" for number in range(4)]
    queues = tuple(Queue(name, (("h100", 8),), borrow=rng.choice([None, 4, 16]), cohort="all") for name in names)
    scheduler = Scheduler(explained=0)
    fleet = Fleet((nodes(8),), queues, policy=rng.choice(["default", "backfill", "fifo"]), preempt=rng.random() < 0.5)  # type: ignore[arg-type]
    for order in scheduler.handle(ev.FleetChanged(0.0, fleet)):
        if isinstance(order, ProvisionUnit):
            scheduler.handle(ev.UnitAppeared(0.0, order.pool, order.unit, order.incarnation))
    running: dict[str, int] = {}
    told: list[list[tuple[str, int]]] = []
    for number in range(160):
        now, key = float(number), ""
        if running and rng.random() < 0.5:
            key = rng.choice(sorted(running))
            event: ev.Event = ev.AttemptEnded(now, key, running.pop(key), "succeeded")
        else:
            asked = gpus(rng.choice([1, 1, 2, 5, 8]))
            wanted = demand(f"w{number}", asked, queue=rng.choice(names), priority=rng.choice([0, 0, 1, 2]))
            event = ev.Submitted(now, wanted)
        orders = [each for each in scheduler.handle(event) if isinstance(each, StartAttempt)]
        running.update((each.workload, each.attempt) for each in orders)
        told.append([(each.workload, each.attempt) for each in orders])
    return told


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_full_cohort_is_served_in_the_same_order(seed: int) -> None:
    one_by_one = borrowers(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Book, "ask_next", all_at_once)
        assert borrowers(seed) == one_by_one
    assert any(one_by_one)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_random_sites_come_to_the_same_state(seed: int) -> None:
    one_by_one = canonical(run(seed, 50).state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Book, "ask_next", all_at_once)
        assert canonical(run(seed, 50).state) == one_by_one
