"""Values as people read them; the way back from `values`, without its libraries."""

from __future__ import annotations

UNKNOWN = "-"
_SHORT = 9.95
_LEAST = 0.001


def duration(seconds: float | None) -> str:
    """The two largest parts of a duration: `2d 3h`, `1h 05m`, `4m 20s`, `17s`; below 10 s two digits, `2.4s`."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {rest:02d}s"
    return f"{seconds:.2g}s" if _LEAST <= seconds < _SHORT else f"{rest}s"
