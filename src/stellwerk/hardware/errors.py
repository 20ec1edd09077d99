"""What can be wrong with a word about hardware, said so that the reader can mend it."""

from __future__ import annotations

from typing import ClassVar

_SHOWN = 12


class HardwareError(ValueError):
    """A wrong name, topology, machine or number.

    ``message`` says what was found and why it is wrong, ``allowed`` what would be right,
    ``suggestion`` the nearest right word (or None). ``str()`` joins the three in one line.
    """

    default_code: ClassVar[str] = "hardware"

    def __init__(
        self,
        message: str,
        *,
        found: str,
        allowed: tuple[str, ...] = (),
        suggestion: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.found = found
        self.allowed = allowed
        self.suggestion = suggestion
        self.code = code or self.default_code

    def __str__(self) -> str:
        parts = [self.message]
        if self.allowed:
            more = len(self.allowed) - _SHOWN
            tail = f" and {more} more" if more > 0 else ""
            parts.append("allowed: " + ", ".join(self.allowed[:_SHOWN]) + tail)
        if self.suggestion is not None:
            parts.append(f"did you mean {self.suggestion}?")
        return "; ".join(parts)


class UnknownAccelerator(HardwareError):
    """A name that stands for no accelerator, or for several."""

    default_code = "unknown-accelerator"


class IllegalTopology(HardwareError):
    """A topology that the accelerator, or the machine, does not come in."""

    default_code = "illegal-topology"


class AmbiguousTopology(HardwareError):
    """A topology with several layouts of hosts; ``allowed`` names the machines that decide it."""

    default_code = "ambiguous-topology"


class UnknownMachine(HardwareError):
    """A machine type that the accelerator does not come on."""

    default_code = "unknown-machine"
