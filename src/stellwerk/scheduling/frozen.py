"""Making frozen records fast.

A frozen dataclass pays for its constructor with a call for every field. `twin` gives a plain class of the same layout:
a record is filled as a plain one and frozen by naming its class, which costs a quarter. For the few kinds of record
that are made for every event.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")


def twin(kind: type[T]) -> type[T]:
    """A class with the constructor and the layout of the frozen, slotted dataclass `kind`; not frozen."""
    plain: list[Any] = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING:
            plain.append((field.name, field.type))
        else:
            plain.append((field.name, field.type, dataclasses.field(default=field.default)))
    return dataclasses.make_dataclass(kind.__name__, plain, slots=True)
