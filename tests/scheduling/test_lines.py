"""Lines of waiting workloads against a plain list that is sorted for every question."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import mark
from world import demand, gpus

from stellwerk.scheduling.policy.lines import INF, AgeLine, HeapLine, PassLine
from stellwerk.scheduling.state import WorkloadState, attempt_of, workload_of

RUNTIMES = st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0, INF])
STEPS = st.lists(
    st.tuples(st.sampled_from(["new", "new", "new", "leave", "back"]), st.randoms(), RUNTIMES), max_size=300
)


def waiting(order: int) -> WorkloadState:
    """A workload of that age."""
    return workload_of(demand(f"w{order}", gpus(1)), 0.0, order, 0.0)


@mark.parametrize("kind", [AgeLine, PassLine])
@given(steps=STEPS)
def test_a_line_by_age_answers_as_a_sorted_list(kind, steps):
    line, known, gone, made = kind(), dict[int, tuple[WorkloadState, float]](), list[WorkloadState](), 0
    for step, rng, runtime in steps:
        if step == "new":
            made += rng.choice([1, 1, 2])
            known[made] = waiting(made), runtime
            line.push(known[made][0], 0.0, runtime)
        elif step == "leave" and known:
            workload, _ = known.pop(rng.choice([min(known), rng.choice(sorted(known))]))
            gone.append(workload)
            line.leave(workload)
        elif step == "back" and gone:
            workload = gone.pop(rng.randrange(len(gone)))
            known[workload.order] = workload, runtime
            line.push(workload, 0.0, runtime)
        own = [known[order] for order in sorted(known)]
        assert line.size == len(own)
        assert list(line) == [workload for workload, _ in own]
        assert line.first() is (own[0][0] if own else None)
        for most in (0.5, 2.0, 4.0, 8.0):
            passes = next((each for each, takes in own if takes <= most), None) if kind is PassLine else None
            assert line.first_within(most) is passes
        if own:
            last = own[len(own) // 2][0]
            assert line.after(last) is next((each for each, _ in own if each.order > last.order), None)


def test_a_pass_line_of_thousands_finds_the_first_that_is_short_enough():
    line, count = PassLine(), 5000
    workloads = [waiting(order) for order in range(count)]
    for workload in workloads:
        line.push(workload, 0.0, 1.0 if workload.order == 4321 else 10.0 + workload.order % 7)
    assert line.first_within(5.0) is workloads[4321]
    assert line.first_within(9.0) is workloads[4321]
    line.leave(workloads[4321])
    assert line.first_within(9.0) is None
    assert line.first_within(10.0) is workloads[0]


@given(st.lists(st.tuples(st.booleans(), st.randoms(), RUNTIMES), max_size=120))
def test_a_heap_line_serves_by_key_then_age(steps):
    line, known = HeapLine(), list[tuple[float, int, WorkloadState]]()
    for number, (enters, rng, key) in enumerate(steps):
        if enters or not known:
            known.append((key, number, waiting(number)))
            line.push(known[-1][2], key, INF)
        else:
            _, _, workload = known.pop(rng.randrange(len(known)))
            workload.phase = rng.choice(["starting", "ended"])
            workload.attempts.append(attempt_of(1, 0, (), 0.0))
            line.leave(workload)
        known.sort(key=lambda each: each[:2])
        assert line.size == len(known)
        assert line.first() is (known[0][2] if known else None)
        assert list(line) == [workload for _, _, workload in known]
