"""JSON schemas of workload and fleet files, for editors (yaml-language-server) and other tools."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stellwerk.spec.fleet import Fleet
from stellwerk.spec.request import Option
from stellwerk.spec.roles import HARDWARE_KEYS
from stellwerk.spec.wording import keys_of
from stellwerk.spec.workload import Workload

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAMED_BY_KEY = ("Workload", "Step", "Queue")


def workload_schema() -> dict[str, Any]:
    """The JSON schema of a workload file, short forms included."""
    definitions = _definitions(Workload, Option)
    definitions.pop("Part")
    option = definitions["Option"]["anyOf"][1]["properties"]
    definitions["Choice"] = _choice(option)
    definitions["Role"]["properties"] |= {key: option[key] for key in HARDWARE_KEYS}
    return _document(definitions, Workload, "Stellwerk workload")


def fleet_schema() -> dict[str, Any]:
    """The JSON schema of a fleet file, short forms included."""
    return _document(_definitions(Fleet), Fleet, "Stellwerk fleet")


def _definitions(*models: type[BaseModel]) -> dict[str, Any]:
    """The schemas of models and what they hold; names that are taken from a key or file are not required."""
    definitions = models_json_schema([(model, "validation") for model in models])[1]["$defs"]
    for name in _NAMED_BY_KEY:
        if name in definitions:
            definitions[name]["required"] = [key for key in definitions[name].get("required", []) if key != "name"]
    return definitions


def _choice(option: dict[str, Any]) -> dict[str, Any]:
    """An option, or a mapping from role to option with `runtime` and `patience` of its own."""
    own = {key: option[key] for key in ("runtime", "patience")}
    no_role: dict[str, Any] = {key: False for key in keys_of(Option) if key not in own}
    roles = {
        "type": "object",
        "description": "Hardware for every role of `roles`.",
        "properties": no_role | own,
        "additionalProperties": {"$ref": "#/$defs/Option"},
    }
    return {"description": "One acceptable choice of hardware.", "anyOf": [{"$ref": "#/$defs/Option"}, roles]}


def _document(definitions: dict[str, Any], model: type[BaseModel], title: str) -> dict[str, Any]:
    root = definitions[model.__name__]
    return {"$schema": _DIALECT, **root, "title": title, "$defs": definitions}
