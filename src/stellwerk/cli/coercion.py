"""Commands whose plain parameters are taken as they are.

Typer makes a pydantic adapter for every parameter, `--help` included. A listing that has two flags would spend more
time on importing pydantic than on everything else, so strings and flags do without; numbers are left to Typer.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

try:
    from typer._coercion import (  # pyright: ignore[reportPrivateUsage]
        RuntimeParam,
        build_runtime_param,
    )
except ImportError:  # a Typer that converts in another way, and needs no help
    RuntimeParam = build_runtime_param = None


class PlainCommand(TyperCommand):
    """A command with plain parameters."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, the plain ones without an adapter."""
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group with plain parameters; its commands must be plain by themselves."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, the plain ones without an adapter."""
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    if RuntimeParam is not None:
        for parameter in parameters:
            parameter._runtime_param = _Plain(parameter.type_descriptor)
    return parameters


if RuntimeParam is not None and build_runtime_param is not None:
    _build = build_runtime_param

    class _Plain(RuntimeParam):
        """Takes strings, flags and defaults as they are."""

        def __init__(self, descriptor: Any) -> None:
            super().__init__(descriptor.parameter_info, descriptor.annotation)
            object.__setattr__(self, "descriptor", descriptor)

        def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
            if self.annotation == list[str]:
                return list(value)
            if self.annotation in (str, bool) or value is param.default:
                return value
            descriptor: Any = object.__getattribute__(self, "descriptor")
            return _build(descriptor).coerce(value, param, ctx)
