"""One machine plays the fleet: every attempt gets its own small Ray cluster, whose nodes look like the real hosts.

`LocalBackend` is imported when it is first used, so that the small processes of this package (the keeper of an
attempt, the starter of its Ray nodes) stay small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stellwerk.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]


def __getattr__(name: str) -> Any:
    """Import `LocalBackend` from its module on first use."""
    if name != "LocalBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stellwerk.backends.local.backend import LocalBackend

    globals()[name] = LocalBackend
    return LocalBackend
