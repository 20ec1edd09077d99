"""One vocabulary in: every spelling in use stands for one accelerator, and near misses get a hint.

Google, GKE, Ray, JAX and NVML each have their own words for the same chip. Case, spaces, hyphens and
underscores carry no meaning, so names are compared without them.
"""

from __future__ import annotations

import re
from functools import cache

from stellwerk.hardware.catalog import load
from stellwerk.hardware.errors import HardwareError, UnknownAccelerator
from stellwerk.hardware.files import entries, read
from stellwerk.hardware.model import Accelerator

_SIZED = re.compile(r"(?P<head>.*?)[-_\s]+(?P<size>[0-9]{1,9})\s*", re.DOTALL)
_SHORTEST_FAMILY = 2
_MOST_CANDIDATES = 3
_SHOWN_LENGTH = 60


def accelerator(name: str) -> Accelerator:
    """The accelerator that ``name`` stands for, in any spelling and case.

    Raises UnknownAccelerator: unknown, ambiguous (``A100``), not covered, a machine type (``ct6e``), or a
    slice size (``v6e-16``; see ``parse_name``), each with the nearest right name.
    """
    found = _lookup(name)
    if found is not None:
        return load(found)
    head = _sized_tpu(name)
    if head is not None:
        raise UnknownAccelerator(
            f"{_quote(name)} is the name of a slice size, not of an accelerator",
            found=name,
            allowed=tuple(entries()),
            suggestion=head[0],
        )
    raise _unknown(name)


def parse_name(text: str) -> tuple[Accelerator, int | None]:
    """An accelerator name with or without a slice size: ``v6e-16`` is (tpu-v6e, 16 chips).

    The size counts TensorCores for v2, v3, v4, v5p and v7x, so ``v4-32`` is 16 chips; it counts chips for v5e
    and v6e. Whether a topology of that size exists is for ``shapes_of_chips``. Raises UnknownAccelerator, or
    HardwareError with code ``illegal-size`` for a size of no whole chip.
    """
    found = _lookup(text)
    if found is not None:
        return load(found), None
    sized = _sized_tpu(text)
    if sized is None:
        raise _unknown(text)
    chip = load(sized[0])
    return chip, _chips(chip, sized[1], text)


def _chips(chip: Accelerator, size: int, text: str) -> int:
    cores = (chip.cores_per_chip or 1) if chip.suffix_counts == "tensorcores" else 1
    if size > 0 and size % cores == 0:
        return size // cores
    unit = "TensorCores, two to a chip" if cores > 1 else "chips"
    raise HardwareError(
        f"{_quote(text)}: the number of a {chip.name} slice counts {unit}; {size} is no whole chip",
        found=text,
        suggestion=chip.name,
        code="illegal-size",
    )


def key_of(text: str) -> str:
    """A name reduced to its letters and digits, in lower case."""
    return "".join(char for char in text.casefold() if char.isalnum())


@cache
def _spellings() -> dict[str, str]:
    """Reduced spelling -> shown name."""
    return {key_of(spelling): name for name, (_, raw) in entries().items() for spelling in (name, *raw["spellings"])}


@cache
def _machine_keys() -> tuple[tuple[str, str], ...]:
    """(reduced machine type, shown name of its accelerator) of every machine."""
    return tuple(
        (key_of(machine["name"]), name) for name, (_, raw) in entries().items() for machine in raw.get("machines", ())
    )


def _lookup(text: str) -> str | None:
    return _spellings().get(key_of(text))


def _sized_tpu(text: str) -> tuple[str, int] | None:
    """(shown name, number) of a TPU name with a number behind it."""
    match = _SIZED.fullmatch(text)
    if match is None:
        return None
    name = _lookup(match["head"])
    return (name, int(match["size"])) if name is not None and entries()[name][0] == "tpu" else None


def _unknown(text: str) -> UnknownAccelerator:
    """The most helpful thing to say about a name that stands for nothing."""
    match = _SIZED.fullmatch(text)
    words = (text,) if match is None else (text, match["head"])
    for explain in (_ambiguous, _not_covered, _counted, _of_machine):
        for word in words:
            error = explain(text, word)
            if error is not None:
                return error
    return UnknownAccelerator(
        f"{_quote(text)} is no accelerator",
        found=text,
        allowed=tuple(entries()),
        suggestion=_nearest(words),
    )


def _ambiguous(text: str, word: str) -> UnknownAccelerator | None:
    names = _reduced("ambiguous").get(key_of(word))
    if not names:
        return None
    return UnknownAccelerator(
        f"{_quote(text)} can be {' or '.join(names)}",
        found=text,
        allowed=tuple(names),
        code="ambiguous-accelerator",
    )


@cache
def _reduced(table: str) -> dict[str, list[str]]:
    """A table of the data files with its keys reduced."""
    merged = {**read("tpu").get(table, {}), **read("gpu").get(table, {})}
    return {key_of(key): value if isinstance(value, list) else [value] for key, value in merged.items()}


def _not_covered(text: str, word: str) -> UnknownAccelerator | None:
    key = key_of(word)
    why = _reduced("not_covered")
    for prefix in ("", "nvidia", "nvidiatesla", "tesla", "tpu"):
        short = key.removeprefix(prefix)
        if short in why:
            return UnknownAccelerator(
                f"{_quote(text)} is not covered: {why[short][0]}; it can be declared in the fleet",
                found=text,
                allowed=tuple(entries()),
                code="accelerator-not-covered",
            )
    return None


def _counted(text: str, word: str) -> UnknownAccelerator | None:
    """``h100-8``: a known GPU with a number that is no part of its name."""
    name = _lookup(word)
    if name is None or word == text:
        return None
    return UnknownAccelerator(
        f"{_quote(text)} is no accelerator; a number of chips stands behind a colon ({name}:N)",
        found=text,
        allowed=tuple(entries()),
        suggestion=name,
    )


def _of_machine(text: str, word: str) -> UnknownAccelerator | None:
    """``ct6e`` or ``ct6e-standard-4t``: a machine family or type in the place of an accelerator."""
    key = key_of(word)
    if len(key) < _SHORTEST_FAMILY:
        return None
    hits = [name for machine, name in _machine_keys() if machine.startswith(key) or key.startswith(machine)]
    names = tuple(dict.fromkeys(hits))
    if not 1 <= len(names) <= _MOST_CANDIDATES:
        return None
    return UnknownAccelerator(
        f"{_quote(text)} names machines, not an accelerator; they carry {' or '.join(names)}",
        found=text,
        allowed=names,
        suggestion=names[0],
    )


def _nearest(words: tuple[str, ...]) -> str | None:
    from difflib import get_close_matches

    for word in words:
        close = get_close_matches(key_of(word)[:_SHOWN_LENGTH], _spellings(), n=1, cutoff=0.6)
        if close:
            return _spellings()[close[0]]
    return None


def _quote(text: str) -> str:
    """The text on one line, cut where it is absurdly long."""
    shown = text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."
    return repr(shown)
