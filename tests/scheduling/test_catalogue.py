"""Which class a workload waits in, and the entry of a class."""

from __future__ import annotations

from dataclasses import replace

from world import Site, demand, gpus, nodes

from stellwerk.scheduling.index import Entry, entry_of
from stellwerk.scheduling.state import workload_of


def test_a_class_is_options_queue_and_priority_whoever_was_asked_for_before() -> None:
    book = Site(nodes(2)).scheduler.book
    one = demand("a", gpus(8))
    others = [replace(one, queue="q"), replace(one, priority=5), replace(one, options=(gpus(16),)), one]
    found = [book.class_of(each) for each in [one, *others]]
    assert found[0] is found[-1]
    assert len({id(each) for each in found}) == 4
    assert [book.class_of(each) for each in [one, *others]] == found
    again = replace(one, key="b", options=(gpus(8),))
    assert book.class_of(again) is found[0], "equal options make one class"


def test_an_entry_made_in_fewer_steps_is_an_entry() -> None:
    book = Site(nodes(2)).scheduler.book
    wanted = demand("a", gpus(8))
    first, found = workload_of(wanted, 0.0, 3, 0.0), book.class_of(wanted)
    made = entry_of(-5, 0.25, 1.5, 3, found, first, 7)
    assert type(made) is Entry
    assert made == Entry(-5, 0.25, 1.5, 3, found, first, 7)
    assert (made.rank, made.level, made.key, made.age, made.serial) == (-5, 0.25, 1.5, 3, 7)
