from __future__ import annotations

import os

from pytest import MonkeyPatch

from stellwerk.backends.local import detect
from stellwerk.controller.machine import LocalMachine
from stellwerk.scheduling.model import Part, Pool

REAL = Pool("h100-here", "h100", None, None, 8, 1, maximum=1, minimum=1)


def test_real_hardware_comes_first_and_is_not_emulated_beside(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "detect", lambda: (REAL,))
    machine = LocalMachine()
    assert machine.pools([Part("main", "h100", None, 4)]) == (REAL,)
    names = [pool.name for pool in machine.pools([Part("main", "h100", None, 8, count=2)])]
    assert (names[0], len(names)) == ("h100-here", 2)
    assert [pool.emulated for pool in machine.pools([Part("main", "tpu-v6e", "4x4", 16)])] == [True]


def test_the_machine_says_what_it_can_carry() -> None:
    machine = LocalMachine()
    memory = machine.memory()
    assert memory is not None and memory > 0
    assert machine.footprint("tpu-v6e", 4, 16) > machine.footprint("cpu", 1, 1) > 0
    assert machine.emulates("h100", 1)
    assert machine.emulates("cpu", 10**6)
    assert not machine.emulates("cpu", os.cpu_count() or 1)
