"""Telling plain data apart, in a way that a type checker can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping; declarations have text keys only."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list or tuple."""
    return isinstance(value, list | tuple)
