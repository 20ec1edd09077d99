"""Orders the core gives. A backend carries each out idempotently and answers with events.

`StartAttempt` is answered by `AttemptStarted` and one `AttemptEnded`; `StopAttempt` by `AttemptEnded`; `ResizeAttempt`
by `AttemptResized`; `ProvisionUnit` and `RecycleUnit` by `UnitAppeared` or `ProvisionRefused`; `ReleaseUnit` by
`UnitGone`. `WakeAt` is for the driver of the core itself, which answers with `Woke`; a later `WakeAt` replaces an
earlier one. They are frozen; `StartAttempt`, of which there is one for every workload, is not held to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stellwerk.scheduling.model import Cause, Grant


@dataclass(init=False, slots=True, unsafe_hash=True)
class StartAttempt:
    """Run attempt `attempt` of a workload, with option number `option`, on exactly these grants."""

    workload: str
    attempt: int
    option: int
    grants: tuple[Grant, ...]

    def __init__(self, workload: str, attempt: int, option: int, grants: tuple[Grant, ...]) -> None:
        self.workload, self.attempt, self.option, self.grants = workload, attempt, option, grants


@dataclass(frozen=True, slots=True)
class ResizeAttempt:
    """Let an attempt stand on exactly these grants; `resize` counts the orders of this kind to the attempt.

    `grace` is how many seconds its code has before grants are left.
    """

    workload: str
    attempt: int
    resize: int
    grants: tuple[Grant, ...]
    grace: float = 30.0


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End an attempt: tell its code, wait up to `grace` seconds for it to save its state, then end it by force."""

    workload: str
    attempt: int
    cause: Cause
    grace: float


@dataclass(frozen=True, slots=True)
class ProvisionUnit:
    """Make a unit of a pool, under this name and incarnation."""

    pool: str
    unit: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReleaseUnit:
    """Give a unit back."""

    unit: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class RecycleUnit:
    """Rebuild a broken unit under the same name; `incarnation` is the new one."""

    pool: str
    unit: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Hand in `Woke` at this time, unless a later order says otherwise."""

    at: float


Command = StartAttempt | ResizeAttempt | StopAttempt | ProvisionUnit | ReleaseUnit | RecycleUnit | WakeAt
