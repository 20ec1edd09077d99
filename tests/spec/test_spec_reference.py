"""The reference pages name every key, and their examples load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stellwerk.spec import (
    CustomAccelerator,
    Fleet,
    Limits,
    Option,
    Pool,
    Queue,
    Role,
    SliceRange,
    UnitRange,
    Workload,
    check,
)
from stellwerk.spec.wording import Declared, keys_of

DOCS = Path(__file__).parents[2] / "docs"


def examples() -> list[str]:
    pages = (DOCS / "reference-workload.md", DOCS / "reference-fleet.md")
    return [found for page in pages for found in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("text", examples())
def test_examples_load_without_a_warning(text: str, tmp_path: Path) -> None:
    (tmp_path / "example.yaml").write_text(text)
    assert check([tmp_path / "example.yaml"]) == []


@pytest.mark.parametrize(
    ("page", "models"),
    [
        ("reference-workload.md", (Workload, Limits, Option, Role, SliceRange)),
        ("reference-fleet.md", (Fleet, Pool, UnitRange, Queue, CustomAccelerator)),
    ],
)
def test_every_key_has_a_row(page: str, models: tuple[type[Declared], ...]) -> None:
    rows = [line.split("|")[1] for line in (DOCS / page).read_text().splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`([a-z_]+)`", " ".join(rows)))
    for model in models:
        assert set(keys_of(model)) - {"name"} <= named, model.__name__
