"""Times as listings show them, and back."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: float | None) -> str | None:
    """Seconds since the epoch as RFC 3339 in UTC, with a fraction where there is one; None stays None."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; one without an offset is in UTC. ValueError for other texts."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
