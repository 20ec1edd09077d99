"""Whose fault it was, told from real exception classes of Ray and Ray Train."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.runtime.outcome import Outcome, of_exception, of_exit, reachable


def never() -> bool:
    raise AssertionError("nothing about this exception hints at a lost host")


def caught(cause: BaseException, outer: BaseException) -> BaseException:
    try:
        raise outer from cause
    except type(outer) as error:
        return error


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        (None, 0, None),
        (0, 0, None),
        (False, 0, None),
        (3, 3, "user-error"),
        (True, 1, "user-error"),
        ("the loss is NaN", 1, "user-error"),
    ],
)
def test_exits(status: object, code: int, cause: str | None) -> None:
    outcome = of_exit(status)
    assert (outcome.exit_code, outcome.cause) == (code, cause)


def test_a_message_on_exit_is_kept() -> None:
    assert of_exit("the loss is NaN").message == "the loss is NaN"


def test_a_plain_exception_is_the_users() -> None:
    outcome = of_exception(ValueError("first\nsecond"), never)
    assert outcome == Outcome(1, "user-error", "ValueError: first", "ValueError")


def test_interrupted() -> None:
    assert of_exception(KeyboardInterrupt(), never).exit_code == 130


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no more"),
        caught(MemoryError(), RuntimeError("cannot load")),
        ExceptionGroup("many", [ValueError(), ExceptionGroup("more", [MemoryError()])]),
    ],
)
def test_out_of_memory(error: BaseException) -> None:
    assert of_exception(error, never).cause == "out-of-memory"


def test_out_of_memory_of_the_chip() -> None:
    kind = type("JaxRuntimeError", (RuntimeError,), {})
    assert of_exception(kind("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte"), never).cause == "out-of-memory"
    assert of_exception(kind("INVALID_ARGUMENT: no"), never).cause == "user-error"


def test_losing_the_cluster() -> None:
    outcome = of_exception(ConnectionError("Could not connect to GCS at 10.0.0.1:6379"), never)
    assert outcome.cause == "infrastructure"
    assert of_exception(ConnectionError("db:5432 refused"), lambda: False).cause == "user-error"


@pytest.mark.parametrize("lost", [True, False])
def test_a_broken_collective_is_judged_by_the_hosts(lost: bool) -> None:
    kind = type("JaxRuntimeError", (RuntimeError,), {})
    error = kind("FAILED_PRECONDITION: Gloo all-reduce: Connection closed by peer")
    assert of_exception(error, lambda: lost).cause == ("infrastructure" if lost else "user-error")


def test_an_endless_chain_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert list(reachable(one)) == [one, two]


def test_a_suppressed_context_does_not_count() -> None:
    error = ValueError("bad number")
    error.__context__, error.__suppress_context__ = MemoryError(), True
    assert of_exception(error, never).cause == "user-error"


@given(st.text())
def test_a_message_is_one_short_line(text: str) -> None:
    message = of_exception(ValueError(text), lambda: False).message
    assert len(message.splitlines()) <= 1
    assert len(message) <= 500


def test_written_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    Outcome(1, "user-error", "ValueError: x", "ValueError").write(path)
    assert json.loads(path.read_text()) == {
        "exit_code": 1,
        "cause": "user-error",
        "message": "ValueError: x",
        "exception": "ValueError",
    }
    assert list(tmp_path.iterdir()) == [path]


class TestRay:
    """The classes that Ray really raises."""

    @pytest.fixture(autouse=True)
    def _ray(self) -> Iterator[None]:
        pytest.importorskip("ray")
        yield

    def test_out_of_memory(self) -> None:
        from ray.exceptions import OutOfMemoryError

        assert of_exception(OutOfMemoryError("killed"), never).cause == "out-of-memory"

    def test_node_death(self) -> None:
        from ray.exceptions import LocalRayletDiedError, NodeDiedError

        assert of_exception(NodeDiedError("gone"), never).cause == "infrastructure"
        assert of_exception(LocalRayletDiedError("gone"), never).cause == "infrastructure"

    def test_a_task_without_memory_shows_its_own_message(self) -> None:
        from ray.exceptions import RayTaskError

        text = "\x1b[36mray::f()\x1b[39m (pid=7)\nMemoryError: no room"
        outcome = of_exception(RayTaskError("f", text, MemoryError("no room")).as_instanceof_cause())
        assert (outcome.cause, outcome.message) == ("out-of-memory", "MemoryError: no room")

    def test_task_error_shows_the_users_own(self) -> None:
        from ray.exceptions import RayTaskError

        error = RayTaskError("f", "Traceback ...", ValueError("bad row")).as_instanceof_cause()
        outcome = of_exception(error, never)
        assert (outcome.cause, outcome.exception) == ("user-error", "ValueError")
        assert outcome.message == "ValueError: bad row"

    @pytest.mark.parametrize("lost", [True, False])
    def test_a_dead_worker_is_judged_by_the_hosts(self, lost: bool) -> None:
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        for error in (ActorDiedError(), ActorUnavailableError("connection refused", None)):
            assert of_exception(error, lambda: lost).cause == ("infrastructure" if lost else "user-error")
