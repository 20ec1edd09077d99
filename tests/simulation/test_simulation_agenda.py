"""What comes next is what a sorted list says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stellwerk.simulation.agenda import Agenda

MOMENTS = st.sampled_from([0.0, 1.0, 1.5, 2.0])


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 2)) | st.none(), max_size=40))
def test_things_happen_by_time_then_kind_then_in_the_order_in_which_they_were_entered(
    steps: list[tuple[float, int] | None],
) -> None:
    agenda, known = Agenda(), list[tuple[float, int, int]]()
    for number, step in enumerate(steps):
        if step is not None:
            at, kind = step
            agenda.put(at, kind, f"thing {number}", number)
            known.append((at, kind, number))
        elif known:
            known.sort()
            at, kind, first = known.pop(0)
            assert agenda.times[0] == at
            assert agenda.pop() == (kind, f"thing {first}", first)
    assert bool(agenda.times) == bool(known)
