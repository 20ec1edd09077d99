"""Whose fault it was, for the errors of Ray Train, which wrap those of the workers."""

from __future__ import annotations

import importlib

import pytest

from stellwerk.runtime.outcome import of_exception

pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def _quiet_import() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("ray.train")


def user(error: Exception) -> Exception:
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

    return UserExceptionWithTraceback(error, f"Traceback ...\n{type(error).__name__}: {error}")


def group(**failures: Exception) -> Exception:
    from ray.train import WorkerGroupError

    return WorkerGroupError("some text", dict(enumerate(failures.values())))


def test_the_users_error_is_found_below_the_wrappers() -> None:
    outcome = of_exception(group(a=user(ValueError("bad batch"))))
    assert (outcome.cause, outcome.message) == ("user-error", "ValueError: bad batch")


def test_one_workers_memory_is_graver_than_anothers_error() -> None:
    assert of_exception(group(a=user(ValueError()), b=user(MemoryError()))).cause == "out-of-memory"


def test_a_dead_node_is_graver_than_the_errors_of_the_others() -> None:
    from ray.exceptions import NodeDiedError
    from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

    dead = WorkerHealthCheckFailedError("A worker health check failed.", NodeDiedError("gone"))
    outcome = of_exception(group(a=user(RuntimeError("Gloo: connection closed")), b=dead))
    assert (outcome.cause, outcome.exception) == ("infrastructure", "NodeDiedError")


def test_a_gang_that_cannot_start() -> None:
    from ray.train import ControllerError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    assert of_exception(ControllerError(WorkerGroupStartupTimeoutError(4))).cause == "infrastructure"
