"""Events, commands and state as JSON, and back.

The log stores an event as the name of its class and its fields; field names are therefore part of the log's format
and are only ever added, with defaults. pydantic reads them back, so a record that does not fit is refused, not
guessed.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from stellwerk.scheduling import events, model, state
from stellwerk.scheduling.compiled import complete
from stellwerk.scheduling.events import Event
from stellwerk.scheduling.state import State

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
_NEEDED = object()
for _module in (model, events, state):
    complete(_module)
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


def dump(record: Any) -> str:
    """A record as one line of JSON that is short, and keeps the order of everything in it.

    Fields at their defaults are left out. Unlike `canonical` it tells states apart that differ in an order alone, so
    what `load` makes of it is the same in every respect.
    """
    return json.dumps(record, default=_lean, separators=(",", ":"), allow_nan=False)


def load(kind: type[T], text: str | bytes) -> T:
    """A record of class `kind` written by `dump`; ValueError when it does not fit."""
    record: T = _adapter(kind).validate_json(text)
    return record


def _lean(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields: dict[str, Any] = {}
        for name, default in _defaults(type(value)):
            content = getattr(value, name)
            if content is not default and content != default:
                fields[name] = content
        return fields
    return _plain(value)


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass, each with what it is when nobody says anything; with `_NEEDED` where somebody must."""
    return tuple((field.name, _default(field)) for field in dataclasses.fields(kind))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NEEDED if field.default is dataclasses.MISSING else field.default


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
