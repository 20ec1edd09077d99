"""Events, commands and state as JSON, and back.

The log stores an event as the name of its class and its fields; field names are therefore part of the log's format
and are only ever added, with defaults. pydantic reads them back, so a record that does not fit is refused, not
guessed.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from stellwerk.scheduling.events import Event
from stellwerk.scheduling.state import State

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


def encode(record: Any) -> dict[str, Any]:
    """The fields of an event, a command or another dataclass of the core as plain JSON values."""
    plain: dict[str, Any] = json.loads(canonical(record))
    return plain


def decode_event(kind: str, fields: dict[str, Any]) -> Event:
    """The event of class `kind` with these fields; ValueError when they do not fit."""
    if kind not in _EVENTS:
        raise ValueError(f"the log has an event of the unknown kind {kind!r}")
    event: Event = _adapter(_EVENTS[kind]).validate_python(fields)
    return event


def decode_state(fields: dict[str, Any]) -> State:
    """A state written by `canonical`."""
    state: State = _adapter(State).validate_python(fields)
    return state


def canonical(record: Any) -> str:
    """One line of JSON that is the same, byte for byte, for equal records."""
    return json.dumps(record, default=_plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError(f"{type(value).__name__} is not part of the core's vocabulary")


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
