"""What listings look like, from objects as the API gives them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.cli import formats
from stellwerk.cli.cost import moment, print_bill
from stellwerk.cli.errors import CliError
from stellwerk.cli.plan import print_plan, summary
from stellwerk.cli.run import outcome_line
from stellwerk.cli.workloads import print_attempts

Golden = Callable[[str, str], None]

ATTEMPT = {
    "number": 1, "option": "tpu-v6e:4x4", "units": ["v6e-0"], "state": "ended", "outcome": "failed",
    "cause": "infrastructure", "started": "2026-01-02T03:04:05Z", "finished": "2026-01-02T04:04:05Z",
    "chip_hours": 16.5, "cost": 44.55, "emulated": True,
}  # fmt: skip
WORKLOAD = {
    "name": "tiny", "state": "ended", "outcome": "succeeded", "cause": None, "message": "", "attempt": 2,
    "submitted": "2026-01-02T03:04:00Z", "started": "2026-01-02T03:04:05Z", "finished": "2026-01-02T05:04:05Z",
    "emulated": True, "attempts": [ATTEMPT, ATTEMPT | {"number": 2, "outcome": "succeeded", "cause": None}],
}  # fmt: skip
NONE = {"p50": None, "p90": None}
PLAN: dict[str, Any] = {
    "name": "tiny", "chosen": 1, "options": [
        {"option": "tpu-v6e:4x4", "units": 1, "hosts": 4, "chips": 16, "price_per_hour": 43.2, "start": NONE,
         "finish": NONE, "cost": NONE, "verdict": "later", "emulated": True,
         "reasons": [{"code": "capacity", "message": "0 of 1 units free"}]},
        {"option": "cpu:2", "units": 1, "hosts": 1, "chips": 2, "price_per_hour": None, "start": NONE,
         "finish": NONE, "cost": {"p50": 1.5, "p90": 2}, "verdict": "now", "reasons": [], "emulated": False},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def plain(environment: None) -> None:
    """No terminal, no colours."""


def test_plan(capsys: Any, golden: Golden) -> None:
    print_plan(PLAN)
    golden("plan.txt", capsys.readouterr().out)


def test_plan_in_one_line() -> None:
    assert summary(PLAN) == "tiny: cpu:2, 1 unit, 1 host, 2 chips, starts now, costs $1.50 ($2.00)"
    assert summary(PLAN | {"chosen": None}) == "tiny: no option can start now"


def test_attempts(capsys: Any, golden: Golden) -> None:
    print_attempts(WORKLOAD)
    golden("attempts.txt", capsys.readouterr().out)


def test_bill_says_that_emulated_hardware_is_not_charged(capsys: Any, golden: Golden) -> None:
    row = {
        "key": "tiny/1", "busy_s": 3600.0, "starting_s": 30.0, "idle_s": 0.0, "draining_s": 1.0, "broken_s": 0.0,
        "provisioning_s": 0.0, "chip_hours": 16.1, "cost": 43.47, "emulated": True,
    }  # fmt: skip
    print_bill([row, row | {"key": "tiny/2", "cost": 0.05}], "attempt")
    golden("bill.txt", capsys.readouterr().out)


def test_outcome_in_one_line() -> None:
    assert outcome_line(WORKLOAD) == "succeeded after 2h 00m, 2 attempts, would cost $89.10"
    failed = WORKLOAD | {"outcome": "failed", "cause": "user-error", "message": "exit code 7", "emulated": False}
    assert outcome_line(failed).startswith("failed: user-error (exit code 7) after 2h 00m, 2 attempts, cost $")


@pytest.mark.parametrize(("since", "time"), [
    ("2h", "2026-01-02T01:00:00Z"), ("7d", "2025-12-26T03:00:00Z"), ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
])  # fmt: skip
def test_since(since: str, time: str) -> None:
    assert moment(since, datetime(2026, 1, 2, 3, tzinfo=UTC)) == time


@given(st.text(max_size=20))
def test_since_is_a_time_or_told(text: str) -> None:
    try:
        assert moment(text, datetime(2026, 1, 2, tzinfo=UTC)).endswith("Z")
    except CliError as told:
        assert "neither a time" in str(told)


@pytest.mark.parametrize(("seconds", "text"), [
    (None, "-"), (0, "0s"), (59.6, "1m 00s"), (61, "1m 01s"), (3600, "1h 00m"), (90_000, "1d 1h"),
])  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


@pytest.mark.parametrize(("dollars", "text"), [(None, "-"), (0, "$0.00"), (0.01234, "$0.0123"), (1234.5, "$1,234.50")])
def test_money(dollars: float | None, text: str) -> None:
    assert formats.money(dollars) == text


def test_ls_says_when_those_who_wait_are_expected_to_start(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from stellwerk.cli import workloads

    later = {"p50": "2999-01-02T03:04:05Z", "p90": None}
    row = {
        "name": "a", "kind": "job", "queue": "default", "state": "waiting", "attempt": None, "option": "h100:8",
        "units": [], "hosts": 1, "chips": 8, "submitted": None, "started": None, "start": later,
        "reasons": [{"message": "none free", "option": 0}],
    }  # fmt: skip
    rows = [row, row | {"name": "b", "state": "running"}, row | {"name": "c", "start": NONE}]
    monkeypatch.setattr(workloads, "connected", lambda: Answers(rows))
    workloads.ls(json=False)
    head, a, b, c = capsys.readouterr().out.splitlines()
    titles = head.lower()
    column = slice(titles.index("starts"), titles.index("reason"))
    assert [line[column].strip()[:3] for line in (a, b, c)] == ["in ", "", "-"]


def test_why_says_when_and_what_would_help(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from stellwerk.cli import workloads

    told = {
        "name": "a", "state": "waiting", "options": [{"option": "h100:8", "reasons": [{"message": "none free"}]}],
        "earliest": {"p50": "2999-01-02T03:04:05Z", "p90": None},
        "finish": {"p50": "2999-01-03T03:04:05Z", "p90": None},
        "cheapest_change": {"message": "one more unit of h100s", "price_per_hour": 16.0, "option": "h100:8"},
    }  # fmt: skip
    monkeypatch.setattr(workloads, "connected", lambda: Answers(told))
    workloads.why("a", json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["a is waiting", "  h100:8: none free"]
    assert [line.split(": ")[0] for line in lines[2:]] == ["expected start", "expected finish", "would start now with"]
    assert lines[-1].endswith("one more unit of h100s")
    monkeypatch.setattr(workloads, "connected", lambda: Answers(told | {"earliest": NONE, "cheapest_change": None}))
    workloads.why("a", json=False)
    assert "too far ahead to tell" in capsys.readouterr().out.splitlines()[-1]


class Answers:
    """What a controller says, whatever it is asked."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def workloads(self, ended: bool = False, name: str | None = None) -> Any:
        return self.told

    def why(self, name: str) -> Any:
        return self.told
