"""Facts the core is told, in the past tense, each with its time.

Everything the scheduler knows it learnt from these: its state is a fold over the log of events. They are frozen
(`AttemptEnded`, of which there is one for every workload, is not held to it) and serialise as they are. An event about
an attempt carries the workload's key and the attempt's number, and one about a unit carries its incarnation, so that
late news of something already replaced is told apart and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from stellwerk.scheduling.model import Cause, Demand, Fleet, Outcome


@dataclass(frozen=True, slots=True)
class Submitted:
    """A workload was declared."""

    at: float
    demand: Demand


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A person asked that a workload end; `grace` seconds are left to its code to save what it has."""

    at: float
    workload: str
    grace: float = 10.0


@dataclass(frozen=True, slots=True)
class FleetChanged:
    """The fleet was declared anew; pools that are gone from it are drained, nothing running is stopped."""

    at: float
    fleet: Fleet


@dataclass(frozen=True, slots=True)
class UnitAppeared:
    """A unit is whole and ready under a new incarnation."""

    at: float
    pool: str
    unit: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class HostChanged:
    """A host of a unit was lost or came back. `host` counts from 0 within the unit."""

    at: float
    unit: str
    incarnation: int
    host: int
    up: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class UnitGone:
    """A unit no longer exists (released, preempted or lost as a whole)."""

    at: float
    unit: str
    incarnation: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProvisionRefused:
    """The provider did not give a unit: `code` is `quota` or `stock-out`."""

    at: float
    pool: str
    unit: str
    incarnation: int
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """Every host of an attempt is up and its entrypoint has begun."""

    at: float
    workload: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckpointReported:
    """An attempt has saved its state where the next attempt can find it."""

    at: float
    workload: str
    attempt: int
    uri: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class LoadReported:
    """A serving workload told its load: requests in flight or waiting, over what one group is to carry of them."""

    at: float
    workload: str
    load: float


@dataclass(frozen=True, slots=True)
class DrainNoticed:
    """The provider will take a unit away at `deadline` (spot preemption, maintenance)."""

    at: float
    unit: str
    incarnation: int
    deadline: float


@dataclass(slots=True, unsafe_hash=True)
class AttemptEnded:
    """An attempt is over and everything it ran is gone.

    `cause` is None for success; `message` is one line for people; `exit_code` is the entrypoint's own, if it had one.
    """

    at: float
    workload: str
    attempt: int
    outcome: Outcome
    cause: Cause | None = None
    message: str = ""
    exit_code: int | None = None


def success(at: float, workload: str, attempt: int) -> AttemptEnded:
    """The end of an attempt that succeeded, in fewer steps than by the constructor."""
    made = AttemptEnded.__new__(AttemptEnded)
    made.at, made.workload, made.attempt, made.outcome = at, workload, attempt, "succeeded"
    made.cause = made.exit_code = None
    made.message = ""
    return made


@dataclass(frozen=True, slots=True)
class AttemptResized:
    """An attempt stands on the grants of its `resize`-th `ResizeAttempt` and has left all others."""

    at: float
    workload: str
    attempt: int
    resize: int


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that an earlier `WakeAt` asked for has come."""

    at: float


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state before this event was taken as a snapshot.

    What has ended is written down elsewhere by now and leaves the state, and all indexes are made anew from it. So a
    scheduler that starts from the snapshot decides from here on as one that has folded every event.
    """

    at: float


Event = (
    Submitted
    | StopRequested
    | FleetChanged
    | UnitAppeared
    | HostChanged
    | UnitGone
    | ProvisionRefused
    | AttemptStarted
    | CheckpointReported
    | LoadReported
    | DrainNoticed
    | AttemptEnded
    | AttemptResized
    | Woke
    | SnapshotTaken
)
