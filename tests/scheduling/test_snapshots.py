"""A scheduler that starts from a snapshot decides like one that went on, and like one that folds every event."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from machine import random_site, step
from pytest import raises
from world import Queue, Site, demand, gpus, slices, tpu

from stellwerk.scheduling import Scheduler
from stellwerk.scheduling import commands as cmd
from stellwerk.scheduling import events as ev
from stellwerk.scheduling.codec import dump, load
from stellwerk.scheduling.model import Pool
from stellwerk.scheduling.state import State


class _Recorded(Site):
    """A site that remembers what followed from each event, and the state before each snapshot."""

    def __init__(self, *pools: Pool, **more: object) -> None:
        self.followed: list[list[cmd.Command]] = []
        self.cuts: list[tuple[int, str]] = []
        super().__init__(*pools, **more)  # type: ignore[arg-type]

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        if isinstance(event, ev.SnapshotTaken):
            self.cuts.append((len(self.log), dump(self.state)))
        self.followed.append(super().tell(event))
        return self.followed[-1]


def _goes_on(scheduler: Scheduler, site: _Recorded, begin: int) -> None:
    followed = [scheduler.handle(event) for event in site.log[begin:]]
    assert followed == site.followed[begin:]
    assert dump(scheduler.state) == dump(site.state)


def _check(site: _Recorded) -> None:
    _goes_on(Scheduler(), site, 0)
    for begin, text in site.cuts:
        state = load(State, text)
        assert dump(state) == text
        _goes_on(Scheduler(state=state), site, begin)


def _recorded(site: Site) -> _Recorded:
    """The same site, from its beginning on."""
    made = _Recorded()
    for event in site.log:
        made.tell(event)
    return made


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 69), min_size=1, max_size=3))
def test_the_state_and_all_commands_are_the_same_from_every_cut_on(seed: int, cuts: list[int]) -> None:
    rng = random.Random(seed)
    site = _recorded(random_site(rng))
    for number in range(70):
        if number in cuts:
            site.tell(ev.SnapshotTaken(site.now))
        step(site, rng, number)
    _check(site)


def test_what_has_ended_leaves_the_state_and_its_averages_stay() -> None:
    site = _Recorded(slices(2), queues=(Queue("a"), Queue("b")))
    site.obey()
    site.submit(*(demand(f"w{n}", tpu(), queue="ab"[n % 2], runtime=600.0) for n in range(5)))
    site.obey()
    site.pass_time(3000.0)
    site.finish("w0")
    site.submit(demand("never", gpus(1)))
    assert {site.phase("w0"), site.phase("never")} == {"ended"}
    shares = dump(site.state.shares)
    site.tell(ev.SnapshotTaken(site.now))
    assert list(site.state.workloads) == ["w1", "w2", "w3", "w4"]
    assert dump(site.state.shares) == shares
    assert site.scheduler.reasons("w0") == () and site.scheduler.cheapest_change("w0") is None
    _check(site)


def test_who_ended_is_told_once() -> None:
    site = Site(slices(1))
    site.obey()
    site.submit(demand("a", tpu()), demand("b", gpus(1)))
    assert [workload.key for workload in site.scheduler.over] == ["b"]
    site.tell(ev.Woke(site.now))
    assert site.scheduler.over == []


def test_a_dump_leaves_out_what_is_at_its_default() -> None:
    queues = (Queue("a", (("h100", 8),), lend=None), Queue("b", lend=1), Queue("c", lend=0))
    text = dump(queues)
    assert text == '[{"name":"a","quota":[["h100",8]]},{"name":"b","lend":1},{"name":"c","lend":0}]'
    assert [each.lend for each in load(tuple[Queue, ...], text)] == [None, 1, 0]
    with raises(ValueError, match="workloads"):
        load(State, '{"workloads":{"a":{"order":1}}}')
