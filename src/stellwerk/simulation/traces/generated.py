"""Generated demand: a YAML file with the key `generate` (`stellwerk.simulation.mix`), of which a seed makes a trace."""

from __future__ import annotations

import re

from stellwerk.simulation.traces.model import Trace

_LOOKED_AT = 65536
_ABOVE = ("#", "%", "---")
_MAPPING = re.compile(r"""\{|["']?[\w-]+["']?\s*:(?:\s|$)""")


def fits(text: str) -> bool:
    """Whether a text begins as a mapping in YAML, which is neither the header of a table nor a line of SWF.

    It need not have the right keys: a mistyped one is told with its place and the right one.
    """
    lines = (line for line in text[:_LOOKED_AT].splitlines() if line.strip() and not line.startswith(_ABOVE))
    return _MAPPING.match(next(lines, "")) is not None


def read(
    file: str, data: bytes, name: str, accelerator: str | None, extra: frozenset[str] = frozenset(), seed: int = 0
) -> Trace:
    """The demand that a file declares, drawn by `seed`. Raises `SpecError` with the places of all that is wrong.

    `extra` are accelerators that only a fleet declares.
    """
    # These load pydantic, a YAML parser and numpy, which the other formats do without.
    from stellwerk.simulation.generate import generate
    from stellwerk.simulation.mix import mix_of
    from stellwerk.spec.document import parse

    mix = mix_of(parse(data, file), extra)
    return generate(mix.model_copy(update={"accelerator": mix.accelerator or accelerator}), seed, name)
