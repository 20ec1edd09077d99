"""The options of a workload: ordered choices, each naming hardware for every role.

Most workloads have one role, which nobody names; then a choice is one option. With `roles:` a choice is a
mapping from role to option, and may carry `runtime` and `patience` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError, model_serializer

from stellwerk.spec.plain import is_list, is_mapping
from stellwerk.spec.problems import Collected, Flaw, Flaws, did_you_mean, listed, shown
from stellwerk.spec.request import Option
from stellwerk.spec.values import Duration, Whole
from stellwerk.spec.wording import Declared, declared, flaws_of, keys_of

MAIN_ROLE = "main"
MOST_OPTIONS = 32
MOST_OF_A_ROLE = 100_000
HARDWARE_KEYS = tuple(key for key in keys_of(Option) if key not in ("count", "runtime", "patience"))
_OWN_KEYS = ("runtime", "patience")
_Context = Mapping[str, Any] | None


class Role(Declared):
    """A part of a workload with its own hardware."""

    count: Whole = Field(
        1,
        ge=1,
        le=MOST_OF_A_ROLE,
        description="How many of this role; each has its own hardware.",
        examples=[4],
    )


class Part(Declared):
    """What one role gets in one choice: `count` times the option."""

    role: str
    count: int
    option: Option


class Choice(Declared):
    """One acceptable choice of hardware for the whole workload, over all roles."""

    parts: tuple[Part, ...]
    runtime: Duration | None = None
    patience: Duration | None = None

    @property
    def named(self) -> bool:
        """Whether the workload has named roles."""
        return self.parts[0].role != MAIN_ROLE

    @property
    def short(self) -> str:
        """`tpu-v6e:4x4`, or for several roles `learner=tpu-v6e:4x4 generator=4x(tpu-v6e:2x4)`."""
        return " ".join(_short(part) for part in self.parts)

    @property
    def chips(self) -> int:
        """All chips of the choice, over all roles."""
        return sum(part.count * part.option.chips for part in self.parts)

    @model_serializer(mode="plain")
    def _as_written(self) -> dict[str, Any]:
        if not self.named:
            return _written(self.parts[0].option)
        own = {"runtime": self.runtime, "patience": self.patience}
        roles = {part.role: _written(part.option) for part in self.parts}
        return roles | {key: value for key, value in own.items() if value is not None}


def read_choices(raw: Any, roles: Mapping[str, Role] | None, context: _Context) -> tuple[Choice, ...]:
    """The choices of `options:`. Raises `Flaws` with paths below `options`."""
    if isinstance(raw, str) or is_mapping(raw):
        raise Flaw(
            "wrong-type",
            f"`options` is {shown(raw)}; it must be a list",
            "write it as a list, as in `options: [tpu-v6e:4x4]`",
        )
    if not is_list(raw):
        raise Flaw("wrong-type", f"`options` is {shown(raw)}; it must be a list")
    if not 1 <= len(raw) <= MOST_OPTIONS:
        raise Flaw("options", f"`options` has {len(raw)} entries; allowed are 1 to {MOST_OPTIONS}")
    found = Collected()
    choices = [found.take(lambda entry=entry: _choice(entry, roles, context), index) for index, entry in enumerate(raw)]
    found.refuse()
    return tuple(choice for choice in choices if choice is not None)


def _choice(raw: Any, roles: Mapping[str, Role] | None, context: _Context) -> Choice:
    if isinstance(raw, Choice):
        return raw
    if not roles:
        option = _option(raw, context)
        return Choice(
            parts=(Part(role=MAIN_ROLE, count=1, option=option),),
            runtime=option.runtime,
            patience=option.patience,
        )
    if not is_mapping(raw):
        names = ", ".join(f"{role}: ..." for role in roles)
        raise Flaw(
            "roles",
            f"{shown(raw)} names no role; with `roles` an option names every role",
            f"write {{{names}}}",
        )
    found = Collected()
    _check_names(raw, roles, found)
    parts = [
        Part.model_construct(role=role, count=roles[role].count, option=option)
        for role in roles
        if role in raw and (option := found.take(lambda role=role: _role_option(raw[role], context), role))
    ]
    own = {key: found.take(lambda key=key: _duration(raw[key]), key) for key in _OWN_KEYS if key in raw}
    found.refuse()
    return Choice(parts=tuple(parts), **own)


def _check_names(raw: Mapping[str, Any], roles: Mapping[str, Role], found: Collected) -> None:
    for key in raw:
        if key not in roles and key not in _OWN_KEYS:
            message = f"{shown(key)} is not a role; this workload has {listed(roles)}"
            found.flaws.append(Flaw("unknown-role", message, did_you_mean(key, roles), path=(key,), of_key=True))
    missing = [role for role in roles if role not in raw]
    if missing:
        found.flaws.append(Flaw("missing-role", f"no hardware for {listed(missing)}; an option names every role"))


def _option(raw: Any, context: _Context) -> Option:
    if not isinstance(raw, str | Option) and not is_mapping(raw):
        raise Flaw("wrong-type", f"{shown(raw)} is not an option", "write for example tpu-v6e:4x4 or h100:8")
    return declared(Option, raw, context)


def _role_option(raw: Any, context: _Context) -> Option:
    option = _option(raw, context)
    if option.elastic:
        message = f"{option.elastic} slices are for a workload without roles; roles start together, at one size"
        raise Flaw("elastic", message, f"write for example slices: {option.fewest}", path=("slices",))
    for key in _OWN_KEYS:
        if getattr(option, key) is not None:
            raise Flaw(
                "misplaced-key",
                f"`{key}` belongs beside the roles, since they start together",
                path=(key,),
                of_key=True,
            )
    return option


def _duration(raw: Any) -> float | None:
    try:
        return TypeAdapter(Duration | None).validate_python(raw)
    except ValidationError as error:
        raise Flaws([Flaw(flaw.code, flaw.message, flaw.mend) for flaw in flaws_of(error, Choice)]) from None


def _short(part: Part) -> str:
    times = f"{part.count}x({part.option.short})" if part.count > 1 else part.option.short
    return times if part.role == MAIN_ROLE else f"{part.role}={times}"


def _written(option: Option) -> dict[str, Any]:
    return option.model_dump(mode="json", exclude_none=True)
