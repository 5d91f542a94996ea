"""Values as a JSON Schema means them: what is left out has its default, and what came as text is what it says.

Models leave optional arguments out, put numbers in quotes, and write an object as the text of one. Only the outermost
properties are looked at, and a text that a schema takes as text stays one.
"""

import math
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from app.domain.jsontext import loads

_WHOLE: Final = re.compile(r"-?\d{1,18}")
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,18})?([eE][+-]?\d{1,3})?")


def with_defaults(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments with the schema's defaults, and with numbers, truths, lists and objects for their texts."""
    properties = _properties(schema)
    defaults = {name: deepcopy(about["default"]) for name, about in properties.items() if "default" in about}
    return {**defaults, **{name: _meant(value, properties.get(name, {})) for name, value in arguments.items()}}


def with_containers(value: Any, schema: Mapping[str, Any]) -> Any:
    """Give the value with lists and objects for their texts; anything else is as it came."""
    if not isinstance(value, dict):
        return value
    properties = _properties(schema)
    return {name: _container(entry, _types(properties.get(name, {}))) for name, entry in value.items()}


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    found = schema.get("properties")
    return {name: about for name, about in found.items() if isinstance(about, Mapping)} if found else {}


def _types(about: Mapping[str, Any]) -> frozenset[str]:
    told = about.get("type")
    return frozenset(told if isinstance(told, list) else [told] if isinstance(told, str) else ())


def _meant(value: Any, about: Mapping[str, Any]) -> Any:
    types = _types(about)
    if not isinstance(value, str) or "string" in types:
        return value
    if "integer" in types and _WHOLE.fullmatch(value):
        return int(value)
    if "number" in types and _NUMBER.fullmatch(value) and math.isfinite(float(value)):
        return float(value)
    if "boolean" in types and value in {"true", "false"}:
        return value == "true"
    return _container(value, types)


def _container(value: Any, types: frozenset[str]) -> Any:
    if not isinstance(value, str) or "string" in types or not types & {"array", "object"}:
        return value
    try:
        read = loads(value)
    except ValueError:
        return value
    fits = (isinstance(read, list) and "array" in types) or (isinstance(read, dict) and "object" in types)
    return read if fits else value
