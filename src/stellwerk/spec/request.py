"""One acceptable hardware choice: `tpu-v6e:4x4*2@spot`, `tpu-v6e:4x4*1..4`, `h100:16`, `cpu:2`, or as a mapping."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema

from stellwerk import hardware
from stellwerk.hardware import HardwareError, Shape
from stellwerk.spec.plain import is_mapping
from stellwerk.spec.problems import Flaw, Flaws, allowed, did_you_mean, listed, shown
from stellwerk.spec.shapes import assumed, check_machine, machine_chips, readings, resolved
from stellwerk.spec.slices import MOST_SLICES, SliceRange, Slices, parse_slices
from stellwerk.spec.values import Duration, Text, Whole
from stellwerk.spec.wording import Declared, flaws_of, hardware_flaw

Market = Literal["on-demand", "spot", "reserved", "flex-start"]
MARKETS: tuple[str, ...] = ("on-demand", "spot", "reserved", "flex-start")
SHORT_FORM = (
    r"^\s*[A-Za-z0-9][A-Za-z0-9._ -]*:\s*[0-9]+(\s*[xX]\s*[0-9]+){0,2}(\s*\*\s*[0-9]+(\s*\.\.\s*[0-9]+)?)?"
    r"\s*(@\s*(on-demand|spot|reserved|flex-start)\s*)?$"
)

_LARGEST = MOST_SLICES
_TOPOLOGY = re.compile(r"[0-9]+(?:x[0-9]+){1,2}")
_NO_CONTEXT: Mapping[str, Any] = {}


class Option(Declared):
    """One acceptable hardware choice; the same hardware is always the same Option, however it was spelt."""

    accelerator: Text = Field(
        description="A class of chip in any spelling in use, or a whole short form.",
        examples=["tpu-v6e", "h100"],
    )
    topology: Text | None = Field(None, description="The shape of one TPU slice.", examples=["4x4"])
    slices: Slices | None = Field(
        None,
        description="How many TPU slices, 1 unless said; {min: 1, max: 4} for as many as are free.",
        examples=[2],
    )
    count: Whole | None = Field(None, ge=1, le=_LARGEST, description="How many GPUs, or CPUs, in all.", examples=[16])
    machine: Text | None = Field(None, description="A machine type, where it matters.", examples=["ct6e-standard-4t"])
    market: Market | None = Field(
        None, description="Only capacity of this market; any market unless said.", examples=["spot"]
    )
    declared_hosts: Whole | None = Field(
        None,
        alias="hosts",
        ge=1,
        le=_LARGEST,
        exclude=True,
        repr=False,
        description="Hosts of one slice; checked against the topology.",
        examples=[4],
    )
    chips_per_host: Whole | None = Field(
        None,
        ge=1,
        le=_LARGEST,
        exclude=True,
        repr=False,
        description="Chips on each host of a slice; tells readings of a topology apart.",
        examples=[4],
    )
    runtime: Duration | None = Field(
        None, description="Estimated run time on this option; the workload's unless said.", examples=["3h"]
    )
    patience: Duration | None = Field(
        None,
        description="How long to wait for this option before the next is tried; the policy's unless said.",
        examples=["10m"],
    )

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, raw: Any, handler: ModelWrapValidatorHandler[Option], info: ValidationInfo) -> Option:
        if isinstance(raw, Option):
            return raw
        own: frozenset[str] = frozenset((info.context or _NO_CONTEXT).get("extra_accelerators", ()))

        def make(fields: Any) -> Option:
            return _resolved(handler(fields), own)

        if isinstance(raw, str):
            return _with_offsets(make, *split_option(raw))
        if is_mapping(raw) and ":" in str(raw.get("accelerator", "")):
            return _with_offsets(make, *_unpacked(raw), path=("accelerator",))
        return make(raw)

    @property
    def kind(self) -> str:
        """`tpu`, `gpu` or `cpu`; hardware that only the fleet declares counts as `gpu`."""
        return kind_of(self.accelerator)

    @property
    def short(self) -> str:
        """The short form, in the one spelling that is shown everywhere."""
        size = self.topology or str(self.count)
        if self.elastic or self.fewest > 1:
            size = f"{size}*{self.slices}"
        return f"{self.accelerator}:{size}" + (f"@{self.market}" if self.market else "")

    @property
    def elastic(self) -> SliceRange | None:
        """The range of slices of an elastic option; None for one that has a fixed number."""
        return self.slices if isinstance(self.slices, SliceRange) else None

    @property
    def fewest(self) -> int:
        """Slices that the option needs to start; 1 where there are no slices."""
        return self.slices.min if isinstance(self.slices, SliceRange) else self.slices or 1

    @property
    def readings(self) -> tuple[Shape, ...]:
        """The ways to build one slice: several while an ambiguous topology has no machine; () unless TPU."""
        return readings(self.accelerator, self.topology, self.machine) if self.topology else ()

    @property
    def shape(self) -> Shape | None:
        """One slice; of an ambiguous topology the reading that Ray assumes. None unless TPU."""
        return assumed(self.readings) if self.topology else None

    @property
    def chips(self) -> int:
        """All chips of the option: over all slices (of an elastic one the fewest), or the count."""
        shape = self.shape
        return shape.chips * self.fewest if shape else self.count or 0

    @property
    def hosts(self) -> int | None:
        """All hosts of the option; None for a count of chips on no named machine, where the pool decides."""
        shape = self.shape
        if shape:
            return shape.hosts * self.fewest
        each = machine_chips(self.accelerator, self.machine)
        return math.ceil(self.chips / each) if each else None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The mapping, or the short form."""
        full = handler.resolve_ref_schema(handler(schema))
        text = {
            "type": "string",
            "pattern": SHORT_FORM,
            "examples": ["tpu-v6e:4x4", "tpu-v6e:2x4*2@spot", "tpu-v6e:4x4*1..4", "h100:16", "cpu:2"],
        }
        words = (
            "ACCELERATOR:TOPOLOGY[*SLICES][@MARKET] for TPUs (SLICES: N or MIN..MAX), ACCELERATOR:COUNT[@MARKET] else."
        )
        text["description"] = words
        title, description = full.pop("title", "Option"), full.pop("description", "")
        return {"title": title, "description": description, "anyOf": [text, full]}


def parse_option(text: str, *, extra_accelerators: frozenset[str] = frozenset()) -> Option:
    """Read a short form. Raises `Flaw`, a ValueError with code, message, mend and an offset into the text."""
    try:
        return Option.model_validate(text, context={"extra_accelerators": extra_accelerators})
    except ValidationError as error:
        raise flaws_of(error, Option)[0] from error.__cause__


def split_option(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The fields of a short form as they were written, and the offset of each. Raises `Flaw`."""
    fields: dict[str, Any] = {}
    offsets: dict[str, int] = {}

    def take(key: str, start: int, end: int) -> str:
        part = text[start:end]
        offsets[key] = start + len(part) - len(part.lstrip())
        fields[key] = part.strip()
        return fields[key]

    at = text.find("@") if "@" in text else len(text)
    colon = text.find(":", 0, at) if ":" in text[:at] else at
    if not take("accelerator", 0, colon):
        raise Flaw(
            "option",
            f"{shown(text)} names no accelerator",
            "write for example tpu-v6e:4x4 or h100:8",
            offset=0,
        )
    if at < len(text) and take("market", at + 1, len(text)) not in MARKETS:
        message = f"{shown(fields['market'])} is not a market; allowed are {listed(MARKETS)}"
        raise Flaw("market", message, did_you_mean(fields["market"], MARKETS), offset=offsets["market"])
    if colon < at:
        _split_size(text, colon + 1, at, fields, offsets, take)
    return fields, offsets


def _split_size(text: str, start: int, end: int, fields: dict[str, Any], offsets: dict[str, int], take: Any) -> None:
    star = text.find("*", start, end) if "*" in text[start:end] else end
    size = re.sub(r"\s*x\s*", "x", take("topology", start, star).lower())
    if star < end:
        try:
            fields["slices"] = parse_slices(take("slices", star + 1, end))
        except Flaw as flaw:
            raise Flaw(flaw.code, flaw.message, flaw.mend, offset=offsets["slices"]) from None
    if _digits(size):
        fields["count"], offsets["count"] = int(size), offsets.pop("topology")
        del fields["topology"]
    elif not _TOPOLOGY.fullmatch(size):
        message = f"{shown(size)} is neither a topology such as 4x4 nor a number of chips"
        raise Flaw("option", message, "write for example tpu-v6e:4x4 or h100:8", offset=offsets["topology"])
    else:
        fields["topology"] = size


def named(text: str, own: frozenset[str] = frozenset()) -> tuple[str, int | None]:
    """The one name of an accelerator, and the chips when the spelling counts them. Raises `Flaw`."""
    plain = text.strip().lower()
    if plain in own:
        return plain, None
    try:
        found, chips = hardware.parse_name(text)
    except HardwareError as error:
        flaw = hardware_flaw(error, "accelerator")
        flaw.mend = flaw.mend or did_you_mean(plain, own)
        raise flaw from error
    return found.name, chips


def kind_of(name: str, own: frozenset[str] = frozenset()) -> str:
    """`tpu`, `gpu` or `cpu` of a canonical name; unknown names belong to the fleet and count as `gpu`."""
    if name in own:
        return "gpu"
    try:
        return hardware.accelerator(name).kind
    except HardwareError:
        return "gpu"


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _with_offsets(
    make: Callable[[Any], Option],
    fields: dict[str, Any],
    offsets: dict[str, int],
    path: tuple[str, ...] = (),
) -> Option:
    """Validate the fields of a short form; flaws then point into its text."""
    try:
        return make(fields)
    except ValidationError as error:
        raise Flaws([_into_text(flaw, offsets, path) for flaw in flaws_of(error, Option)]) from None
    except Flaw as flaw:
        raise _into_text(flaw, offsets, path) from flaw.__cause__


def _into_text(flaw: Flaw, offsets: dict[str, int], path: tuple[str, ...]) -> Flaw:
    key = flaw.path[0] if flaw.path else None
    if key not in offsets and key is not None:
        return flaw
    offset = offsets.get(str(key), next(reversed(offsets.values()), 0))
    return Flaw(flaw.code, flaw.message, flaw.mend, path=path, offset=offset)


def _unpacked(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """A mapping whose `accelerator` is a whole short form, with the form's parts in their own keys."""
    try:
        fields, offsets = split_option(str(raw["accelerator"]))
    except Flaw as flaw:
        flaw.path = ("accelerator",)
        raise
    twice = [key for key in fields if key != "accelerator" and raw.get(key) is not None]
    if twice:
        message = f"`{twice[0]}` is given twice: here, and in `accelerator: {raw['accelerator']}`"
        raise Flaw("duplicate-key", message, "leave one of them out", path=(twice[0],), of_key=True)
    return {**raw, **fields}, offsets


def _resolved(option: Option, own: frozenset[str]) -> Option:
    """The option with its hardware under its one name, and nothing in it that could be said in two ways."""
    name, chips = named(option.accelerator, own)
    if kind_of(name, own) == "tpu":
        fields = _resolved_tpu(option, name, chips)
    else:
        fields = _resolved_count(option, name, chips, name in own)
    return option.model_copy(update={"accelerator": name, "declared_hosts": None, "chips_per_host": None, **fields})


def _resolved_tpu(option: Option, name: str, chips: int | None) -> dict[str, Any]:
    """The fields of a TPU option: a legal topology, and the machine where hosts told readings apart."""
    if option.topology is None:
        raise _shape_asked(name, option.count or chips, "count" if option.count else "accelerator")
    ways = readings(name, option.topology, option.machine)
    topology, each = ways[0].topology, ways[0].chips
    if option.count not in (None, each):
        message = f"`count` is {option.count}, but {name} {topology} has {each} chips"
        raise Flaw("count", message, "leave it out, or say `slices`", path=("count",))
    if chips not in (None, each):
        message = f"{shown(option.accelerator)} counts {chips} chips, but {topology} has {each}"
        raise Flaw("topology", message, f"did you mean {name}:{topology}?", path=("topology",))
    shape = resolved(name, topology, option.machine, option.declared_hosts, option.chips_per_host)
    machine = shape.machine if shape and (option.machine or len(ways) > 1) else None
    return {"topology": topology, "slices": option.slices or 1, "count": None, "machine": machine}


def _shape_asked(name: str, chips: int | None, key: str) -> Flaw:
    """A TPU option without a topology: name the shapes that have as many chips."""
    shapes = hardware.shapes_of_chips(name, chips) if chips else ()
    example = shapes[0] if shapes else "4x4"
    if chips and shapes:
        message = f"{name} with {chips} chips needs a topology; {allowed(shapes)}"
    elif chips:
        message = f"{name} has no slice of {chips} chips; say the topology"
    else:
        message = f"{name} needs a topology"
    return Flaw("missing-topology", message, f"write for example {name}:{example}", path=(key,))


def _counted(option: Option, size: int | None) -> int:
    """The chips that were probably meant by a topology or by slices of something that has neither."""
    sides = [int(side) for side in (option.topology or "").split("x") if _digits(side)]
    return (size or (math.prod(sides) if sides else 8)) * option.fewest


def _resolved_count(option: Option, name: str, chips: int | None, own: bool) -> dict[str, Any]:
    """The fields of a GPU or CPU option: chips are counted, and nothing of a slice is said."""
    size = option.count or chips
    for key, value in (
        ("topology", option.topology),
        ("slices", option.slices),
        ("hosts", option.declared_hosts),
        ("chips_per_host", option.chips_per_host),
    ):
        if value is not None:
            mend = f"write for example {name}:{_counted(option, size)}"
            raise Flaw("not-a-tpu", f"`{key}` is for TPUs; {name} is asked for by count", mend, path=(key,))
    if size is None:
        raise Flaw(
            "missing-count",
            f"{name} needs a count of chips",
            f"write for example {name}:8",
            path=("accelerator",),
        )
    if option.count is not None and chips is not None and option.count != chips:
        raise Flaw(
            "count",
            f"{shown(option.accelerator)} counts {chips}, but `count` is {option.count}",
            path=("count",),
        )
    machine = check_machine(name, option.machine) if option.machine and not own else option.machine
    return {"count": size, "machine": machine}
