from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.spec import parse_duration, parse_memory, parse_money
from stellwerk.spec.problems import Flaw, dotted, listed, nearest, shown
from stellwerk.spec.values import LONGEST_NAME, parse_name, parse_priority, sanitised


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2h", 7200),
        ("20m", 1200),
        ("1d", 86400),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (" 1h 30m ", 5400),
        ("500ms", 0.5),
        ("1w", 604800),
        (45, 45),
        ("45", 45),
        (0, 0),
    ],
)
def test_durations(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "h", "2x", "-1h", "1h-2m", None, True, [], "nan", "1e3h", -1, 1e12, "9999999d"]
)
def test_no_durations(written: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(written)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.floats() | st.integers() | st.text())
def test_a_duration_is_a_number_of_seconds_or_refused(written: object) -> None:
    try:
        seconds = parse_duration(written)  # type: ignore[arg-type]
    except Flaw:
        return
    assert seconds >= 0
    assert parse_duration(seconds) == seconds


@pytest.mark.parametrize(("written", "dollars"), [("300 USD", 300), ("$300", 300), ("1.5usd", 1.5), (2, 2), ("7", 7)])
def test_money(written: str | float, dollars: float) -> None:
    assert parse_money(written) == dollars


def test_money_is_in_dollars() -> None:
    with pytest.raises(Flaw, match=r"EUR; only USD is known; write for example 300 USD"):
        parse_money("300 EUR")
    with pytest.raises(Flaw, match="not an amount"):
        parse_money(float("inf"))


@pytest.mark.parametrize(
    ("written", "size"),
    [("16GiB", 16 << 30), ("80 GB", 80 * 10**9), ("1.5gib", 3 << 29), (1024, 1024), ("512B", 512)],
)
def test_memory(written: str | float, size: int) -> None:
    assert parse_memory(written) == size


def test_memory_with_an_unknown_unit() -> None:
    with pytest.raises(Flaw, match="did you mean GiB"):
        parse_memory("16Gibt")
    for wrong in ("much", 0, -1, None):
        with pytest.raises(Flaw, match="not an amount of memory"):
            parse_memory(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("written", "number"), [("low", -100), ("normal", 0), ("high", 100), ("HIGH", 100), (7, 7)])
def test_priorities(written: str | int, number: int) -> None:
    assert parse_priority(written) == number


@settings(deadline=None)
@given(st.text())
def test_a_mended_name_is_a_name(text: str) -> None:
    mended = sanitised(text)
    if mended:
        assert parse_name(mended) == mended
        assert len(mended) <= LONGEST_NAME


@settings(deadline=None)
@given(st.text())
def test_what_is_echoed_is_printable_and_short(text: str) -> None:
    echo = shown(text)
    assert echo.isprintable()
    assert len(echo) < 70


def test_words() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b or c"
    assert dotted(("options", 0, "topology")) == "options[0].topology"
    assert nearest("Entry-Point", ["entrypoint", "env"]) == "entrypoint"
    assert nearest("xyzzy", ["entrypoint", "env"]) is None
