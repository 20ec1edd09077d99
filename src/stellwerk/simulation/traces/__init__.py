"""Demand of the past: what was asked for, when and for how long, read from the formats in use."""

from __future__ import annotations

from stellwerk.simulation.traces.model import Job, Trace
from stellwerk.simulation.traces.reading import FORMATS, read

__all__ = ["FORMATS", "Job", "Trace", "read"]
