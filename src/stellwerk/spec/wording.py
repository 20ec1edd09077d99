"""Validation errors of pydantic in plain words: what was found, what is allowed, what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from stellwerk.hardware import HardwareError
from stellwerk.spec.plain import is_mapping
from stellwerk.spec.problems import Flaw, Flaws, Path, allowed, dotted, nearest, shown

_ELSEWHERE = {
    "accelerators": "accelerator", "gpu": "accelerator", "tpu": "accelerator", "gpus": "count",
    "chip": "chips",
    "command": "entrypoint", "cmd": "entrypoint", "script": "entrypoint", "main": "entrypoint",
    "hardware": "options", "resources": "options", "environment": "env", "env_vars": "env", "envs": "env",
    "workdir": "working_dir", "directory": "working_dir", "max_retries": "retries", "tenant": "queue",
    "timeout": "limits", "duration": "runtime", "spot": "market", "num_slices": "slices", "shape": "topology",
    "num_hosts": "hosts", "num_of_hosts": "hosts", "type": "kind", "machine_type": "machine",
    "quotas": "quota", "preemption": "preempt", "group": "cohort",
    "replicas": "units", "num_workers": "hosts", "instance_type": "machine", "max": "units", "min": "units",
}  # fmt: skip
_MOST_LISTED = 12
_Model = TypeVar("_Model", bound=BaseModel)


class Declared(BaseModel):
    """The common ground of declarations: frozen, no unknown keys, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


def declared(model: type[_Model], raw: Any, context: Mapping[str, Any] | None = None) -> _Model:
    """A declaration of this model. Raises `Flaws`, which know every finding by its path."""
    try:
        return model.model_validate(raw, context=dict(context or {}))
    except ValidationError as error:
        raise Flaws(flaws_of(error, model)) from None


def flaws_of(error: ValidationError, model: type[BaseModel]) -> list[Flaw]:
    """Every finding of a validation error, as flaws."""
    return [flaw for details in error.errors(include_url=False) for flaw in _flaws(details, model)]


def hardware_flaw(error: HardwareError, *path: str) -> Flaw:
    """An error of the hardware catalogue as a flaw at `path`."""
    message = error.message
    if error.allowed and not any(word in message for word in error.allowed):
        words = [*error.allowed[:_MOST_LISTED], "others"] if len(error.allowed) > _MOST_LISTED else error.allowed
        message += f"; {allowed(words)}"
    mend = f"did you mean {error.suggestion}?" if error.suggestion else None
    return Flaw(error.code, message, mend, path=path)


def _flaws(details: ErrorDetails, model: type[BaseModel]) -> list[Flaw]:
    path = tuple(part for part in details["loc"] if part != "[key]")
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, Flaws):
        return [flaw.under(*path) for flaw in cause.flaws]
    if isinstance(cause, HardwareError):
        return [hardware_flaw(cause).under(*path)]
    if isinstance(cause, Flaw):
        flaw = _about_env(cause.under(*path)) if cause.code == "env" else _about(cause.under(*path))
        flaw.of_key = flaw.of_key or details["loc"][-1:] == ("[key]",)
        return [flaw]
    return [_plain(details, path, model)]


def _about(flaw: Flaw) -> Flaw:
    """The flaw with the key in front of its message, unless the message speaks of a key already."""
    key = dotted(flaw.path[-1:]) if flaw.path and isinstance(flaw.path[-1], str) else dotted(flaw.path[-2:])
    if not key or "`" in flaw.message:
        return flaw
    return Flaw(
        flaw.code,
        f"`{key}`: {flaw.message}",
        flaw.mend,
        path=flaw.path,
        offset=flaw.offset,
        of_key=flaw.of_key,
    )


def _about_env(flaw: Flaw) -> Flaw:
    return Flaw(flaw.code, f"`{dotted(flaw.path[-2:])}`: {flaw.message}", flaw.mend, path=flaw.path)


def _plain(details: ErrorDetails, path: Path, model: type[BaseModel]) -> Flaw:
    kind = details["type"]
    key = dotted(path[-1:]) if path and isinstance(path[-1], str) else dotted(path[-2:]) or "the document"
    if kind == "extra_forbidden":
        return _unknown_key(path, model)
    if kind == "missing":
        return Flaw("missing-key", f"`{key}` is missing", _example_of(path, model), path=path)
    found, context = details["input"], details.get("ctx", {})
    if found is None:
        return Flaw("no-value", f"`{key}` has no value", "give it one, or leave the key out", path=path)
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        guess = nearest(found, choices) if isinstance(found, str) else None
        mend = f"did you mean {guess}?" if guess else None
        return Flaw("not-allowed", f"`{key}` is {shown(found)}; {allowed(choices)}", mend, path=path)
    wanted, mend = _wanted(kind, context, found)
    return Flaw(
        "wrong-type" if kind.endswith("_type") else "wrong-value",
        f"`{key}` is {shown(found)}; {wanted}",
        mend,
        path=path,
    )


def _wanted(kind: str, context: dict[str, Any], found: Any) -> tuple[str, str | None]:
    unquote = "write it without quotes" if isinstance(found, str) and found.strip().lstrip("-").isdigit() else None
    quote = f'write it in quotes, as in "{found}"' if isinstance(found, int | float) else None
    words: dict[str, tuple[str, str | None]] = {
        "int_type": ("it must be a whole number", unquote),
        "int_from_float": ("it must be a whole number", None),
        "int_parsing_size": ("it is too large", None),
        "float_type": ("it must be a number", unquote),
        "float_parsing": ("it must be a number", unquote),
        "bool_type": ("it must be true or false", None),
        "string_type": ("it must be text", quote),
        "string_too_short": ("it must not be empty", None),
        "string_too_long": (f"it must have at most {context.get('max_length')} characters", None),
        "dict_type": ("it must be a mapping", None),
        "model_type": ("it must be a mapping", None),
        "model_attributes_type": ("it must be a mapping", None),
        "list_type": ("it must be a list", None),
        "tuple_type": ("it must be a list", None),
        "too_short": (f"it must have at least {context.get('min_length')} entries", None),
        "too_long": (f"it must have at most {context.get('max_length')} entries", None),
        "finite_number": ("it must be a finite number", None),
        "string_unicode": ("it is not valid text", None),
    }
    for name, sign in (
        ("greater_than", "gt"),
        ("greater_than_equal", "ge"),
        ("less_than", "lt"),
        ("less_than_equal", "le"),
    ):
        relation = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}[sign]
        words[name] = (f"it must be {relation} {context.get(sign)}", None)
    return words.get(kind, ("it is not allowed here", None))


def _unknown_key(path: Path, model: type[BaseModel]) -> Flaw:
    key, owner = str(path[-1]), model_at(model, path[:-1])
    known = keys_of(owner) if owner else []
    elsewhere = _ELSEWHERE.get(key.lower().replace("-", "_"))
    guess = elsewhere if elsewhere in known else nearest(key, known)
    where = f" in `{dotted(path[:-1])}`" if len(path) > 1 else ""
    others = "" if guess and len(known) > _MOST_LISTED else f"; {allowed(known)}"
    message = f"unknown key {shown(key)}{where}{others}"
    return Flaw("unknown-key", message, f"did you mean {guess}?" if guess else None, path=path, of_key=True)


def _example_of(path: Path, model: type[BaseModel]) -> str | None:
    owner = model_at(model, path[:-1])
    for name, info in owner.model_fields.items() if owner else ():
        if (info.alias or name) == path[-1] and info.examples:
            return f"write for example `{path[-1]}: {info.examples[0]}`"
    return None


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys that a declaration may have, in their order."""
    return [info.alias or name for name, info in model.model_fields.items()]


def model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model that describes the mapping at `path`."""
    current: Any = model
    for part in path:
        owner = _model_in(current)
        if current is owner and owner is not None:
            fields = {info.alias or name: info.annotation for name, info in owner.model_fields.items()}
            current = fields.get(str(part))
        else:
            current = owner
    return _model_in(current)


def with_names(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings by name, each with its key as its `name`. Raises `Flaws` where it has another one."""
    others = [name for name, entry in entries.items() if is_mapping(entry) and entry.get("name", name) != name]
    if others:
        raise Flaw("name", f"{shown(entries[others[0]]['name'])} is not the key, {others[0]}", "leave `name` out")
    return {name: {"name": name, **entry} if is_mapping(entry) else entry for name, entry in entries.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)
