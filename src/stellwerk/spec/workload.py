"""What a user declares: kind, entrypoint, options or roles, queue, priority, limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from stellwerk.spec.plain import is_list, is_mapping
from stellwerk.spec.problems import Flaw, Flaws, Path, Problem, did_you_mean, dotted, shown
from stellwerk.spec.roles import HARDWARE_KEYS, MAIN_ROLE, Choice, Role, read_choices
from stellwerk.spec.shapes import ambiguity, assumed
from stellwerk.spec.values import Duration, EnvName, EnvValue, Money, Name, Priority, Text, Whole
from stellwerk.spec.wording import Declared, with_names

Kind = Literal["job", "train", "batch", "serve", "tune", "rl", "cluster", "pipeline"]
KINDS: tuple[str, ...] = ("job", "train", "batch", "serve", "tune", "rl", "cluster", "pipeline")
KIND_OF_KEY = {
    "framework": ("train",), "input": ("batch",), "output": ("batch",), "space": ("tune",),
    "trials": ("tune",),
    "idle": ("cluster",), "cluster": ("job", "train", "batch", "tune"), "steps": ("pipeline",),
}  # fmt: skip
_WITHOUT_ENTRYPOINT = ("cluster", "pipeline")


class Limits(Declared):
    """What a workload may use at most; a limit that is reached ends it with a cause of its own."""

    wait: Duration | None = Field(None, description="Longest wait for hardware.", examples=["1d"])
    start: Duration | None = Field(None, description="Longest time from allocation to running.", examples=["20m"])
    run: Duration | None = Field(None, description="Longest run of one attempt.", examples=["6h"])
    cost: Money | None = Field(None, description="Most money for all attempts, in US dollars.", examples=["300 USD"])


def _one_line(entrypoint: Any) -> Any:
    if isinstance(entrypoint, str):
        return _argument(entrypoint)
    if not is_list(entrypoint) or not entrypoint:
        raise Flaw(
            "wrong-type",
            f"`entrypoint` is {shown(entrypoint)}; it must be text or a list of arguments",
            "write for example `entrypoint: train.py`",
        )
    return tuple(_argument(part) for part in entrypoint)


def _argument(part: Any) -> str:
    if not isinstance(part, str):
        raise Flaw(
            "wrong-type",
            f"`entrypoint` holds {shown(part)}; every argument is text",
            f'write it in quotes, as in "{part}"' if isinstance(part, int | float) else None,
        )
    if not part.strip() or "\0" in part:
        raise Flaw(
            "wrong-value",
            "`entrypoint` must not be empty or hold a NUL character",
            "write for example `entrypoint: train.py`",
        )
    return part


class Workload(Declared):
    """A unit of intent: what to run, and every choice of hardware that is acceptable for it, in order."""

    model_config = ConfigDict(defer_build=True)  # built once, when `Step` exists

    kind: Kind = Field(description="How the workload runs.", examples=["train"])
    name: Name = Field(description="Its name; the file's name unless said.", examples=["tiny-lm"])
    entrypoint: str | tuple[str, ...] | None = Field(
        None,
        validate_default=True,
        description="A script, `module:function`, or a list of arguments.",
        examples=["train.py"],
    )
    args: tuple[Annotated[str, Field(strict=True)], ...] = Field(
        (), description="Arguments for the entrypoint.", examples=[["--steps", "100"]]
    )
    cluster: Name | None = Field(None, description="Run on this workload of kind cluster instead of own hardware.")
    roles: dict[Name, Role] = Field({}, description="Parts with their own hardware; an option then names every role.")
    options: tuple[Choice, ...] = Field(
        (),
        validate_default=True,
        description="Acceptable hardware, the preferred first.",
        examples=[["tpu-v6e:4x4", "h100:16@spot"]],
    )
    queue: Name = Field("default", description="The tenant whose share is used.", examples=["research"])
    priority: Priority = Field(0, description="low (-100), normal (0), high (100) or an integer.", examples=["normal"])
    runtime: Duration | None = Field(
        None,
        description="Estimated run time; used for backfill, start times and cost, never to kill.",
        examples=["2h"],
    )
    limits: Limits = Field(Limits.model_construct(), description="What the workload may use at most.")
    retries: Whole = Field(
        0,
        ge=0,
        le=1000,
        description="New attempts after the user's own failures; infrastructure failures do not count.",
        examples=[2],
    )
    env: dict[EnvName, EnvValue] = Field({}, description="Environment variables.", examples=[{"EPOCHS": "3"}])
    working_dir: Text = Field(".", description="The folder that is shipped, relative to the file.", examples=["."])
    framework: Literal["jax", "torch"] | None = Field(
        None, description="Kind train with `module:function`: which trainer runs the loop."
    )
    input: Text | None = Field(None, description="Kind batch: URI of the rows to read.")
    output: Text | None = Field(None, description="Kind batch: URI of the rows to write.")
    space: dict[str, Any] | None = Field(None, description="Kind tune: the search space.")
    trials: Whole | None = Field(None, ge=1, description="Kind tune: how many trials.")
    idle: Duration | None = Field(None, description="Kind cluster: stop after so long without work.", examples=["1h"])
    steps: dict[Name, Step] | None = Field(None, description="Kind pipeline: the workloads, by name.")

    @cached_property
    def warnings(self) -> tuple[Problem, ...]:
        """What is legal but doubtful; with places when the workload was loaded from a file."""
        return tuple(
            Problem(
                "workload",
                None,
                None,
                "warning",
                flaw.code,
                f"{dotted(flaw.path)}: {flaw.message}",
                flaw.mend,
            )
            for flaw in doubts(self)
        )

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, data: Any) -> Any:
        """Hardware inside roles becomes the one option that it stands for."""
        if not is_mapping(data):
            return data
        data = _named_steps(dict(data))
        roles = data.get("roles")
        if not is_mapping(roles):
            return data
        own = {
            role: [key for key in HARDWARE_KEYS if key in entry] for role, entry in roles.items() if is_mapping(entry)
        }
        if not any(own.values()):
            return data
        if data.get("options"):
            role, keys = next((role, keys) for role, keys in own.items() if keys)
            raise Flaw(
                "misplaced-key",
                f"`{keys[0]}` of a role belongs in `options` here, since `options` is given",
                path=("roles", role, keys[0]),
                of_key=True,
            )
        data["options"] = [{role: {key: roles[role][key] for key in keys} for role, keys in own.items() if keys}]
        data["roles"] = {role: _without(entry, own.get(role, ())) for role, entry in roles.items()}
        return data

    @field_validator("entrypoint", mode="wrap")
    @classmethod
    def _entrypoint(cls, raw: Any, _inner: Any, info: ValidationInfo) -> str | tuple[str, ...] | None:
        kind = info.data.get("kind")
        if kind in _WITHOUT_ENTRYPOINT and raw is not None:
            raise Flaw(
                "misplaced-key",
                f"`entrypoint` does not belong to kind {kind}, which runs none",
                "leave it out",
                of_key=True,
            )
        if raw is None and kind is not None and kind not in _WITHOUT_ENTRYPOINT:
            raise Flaw(
                "missing-key",
                f"`entrypoint` is missing; kind {kind} needs one",
                "write for example `entrypoint: train.py`",
            )
        return None if raw is None else _one_line(raw)

    @field_validator("roles")
    @classmethod
    def _roles(cls, roles: dict[str, Role]) -> dict[str, Role]:
        for role in (MAIN_ROLE, "runtime", "patience"):
            if role in roles:
                raise Flaw(
                    "role",
                    f"{shown(role)} cannot name a role; it has a meaning of its own",
                    path=(role,),
                    of_key=True,
                )
        return roles

    @field_validator("options", mode="wrap")
    @classmethod
    def _options(cls, raw: Any, _inner: Any, info: ValidationInfo) -> tuple[Choice, ...]:
        kind, elsewhere = info.data.get("kind"), info.data.get("roles")
        shared = kind in (None, "pipeline") or info.data.get("cluster") is not None
        if elsewhere is None or (raw in ((), []) and shared):
            return ()
        if raw in ((), []):
            mend = "write for example `options: [tpu-v6e:4x4]`"
            raise Flaw("missing-key", "`options` is missing; a workload says which hardware it accepts", mend)
        if info.data.get("cluster") is not None:
            raise Flaw(
                "misplaced-key", "`options` and `cluster` exclude each other; a cluster has its hardware", of_key=True
            )
        if kind == "pipeline":
            raise Flaw(
                "misplaced-key",
                "`options` does not belong to kind pipeline; its steps have their own",
                of_key=True,
            )
        return read_choices(raw, elsewhere, info.context)

    @field_validator(*KIND_OF_KEY)
    @classmethod
    def _of_kind(cls, value: Any, info: ValidationInfo) -> Any:
        kind, key = info.data.get("kind"), str(info.field_name)
        if value is not None and kind is not None and kind not in KIND_OF_KEY[key]:
            raise Flaw(
                "misplaced-key",
                f"`{key}` belongs to kind {' or '.join(KIND_OF_KEY[key])}; this is kind {kind}",
                of_key=True,
            )
        return value

    @field_validator("steps")
    @classmethod
    def _steps(cls, steps: dict[str, Step] | None) -> dict[str, Step] | None:
        if steps is not None:
            _check_order(steps)
        return steps


class Step(Workload):
    """A workload of a pipeline, and what it comes after."""

    after: tuple[Name, ...] = Field((), description="Names of the steps that must have succeeded before.")


Workload.model_rebuild()


def doubts(workload: Workload) -> list[Flaw]:
    """What is legal but doubtful: topologies with several readings and no machine."""
    flaws: list[Flaw] = []
    for index, choice in enumerate(workload.options):
        for part in choice.parts:
            path: Path = ("options", index, part.role) if choice.named else ("options", index)
            flaws += _ambiguous(part.option.readings, path)
    for name, step in (workload.steps or {}).items():
        flaws += [flaw.under("steps", name) for flaw in doubts(step)]
    return flaws


def _ambiguous(shapes: Any, path: Path) -> list[Flaw]:
    ways = ambiguity(shapes)
    if ways is None:
        return []
    reading = assumed(shapes)
    layout = f"{reading.hosts} x {reading.chips_per_host} chips"
    message = f"{ways}; the machine type of a pool decides, else {layout} is used, as Ray assumes"
    return [Flaw("ambiguous-topology", message, f"say which, as in `machine: {reading.machine}`", path=path)]


def _named_steps(data: dict[str, Any]) -> dict[str, Any]:
    steps = data.get("steps")
    if is_mapping(steps):
        inherited = {"working_dir": data["working_dir"]} if "working_dir" in data else {}
        named = with_names(steps)
        data["steps"] = {name: {**inherited, **step} if is_mapping(step) else step for name, step in named.items()}
    return data


def _check_order(steps: Mapping[str, Step]) -> None:
    """Every step comes after known steps, and none after itself over any way round."""
    flaws = [
        Flaw(
            "unknown-step",
            f"{shown(before)} is not a step of this pipeline",
            did_you_mean(before, steps),
            path=(name, "after", index),
        )
        for name, step in steps.items()
        for index, before in enumerate(step.after)
        if before not in steps
    ]
    waiting = {name: set(step.after) & set(steps) for name, step in steps.items()}
    while free := [name for name, before in waiting.items() if not before]:
        for name in free:
            del waiting[name]
        waiting = {name: before - set(free) for name, before in waiting.items()}
    flaws += [Flaw("circle", f"the step {name} comes after itself", path=(name, "after")) for name in list(waiting)[:1]]
    if flaws:
        raise Flaws(flaws)


def _without(entry: Any, keys: Any) -> Any:
    return {key: value for key, value in entry.items() if key not in keys} if is_mapping(entry) else entry
