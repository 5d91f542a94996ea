"""A check of JSON Schemas as hosts send them: an object schema whose keywords have the right shape.

It does not judge what a schema means; it refuses what a model provider would refuse later, when nobody can tell why.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_SCHEMAS_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS: Final = (
    "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TEXTS: Final = ("$ref", "$id", "$schema", "$anchor", "title", "description", "format", "$comment")


def check_object_schema(schema: Mapping[str, Any]) -> None:
    """Accept a schema whose root is an object; ValueError says which keyword is wrong, and where."""
    if schema.get("type") != "object":
        message = 'must be a JSON Schema of an object: give it "type": "object"'
        raise ValueError(message)
    _check(schema, "")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Accept any schema; ValueError says which keyword is wrong, and where."""
    _check(schema, "")


def _check(schema: Any, place: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        _refuse(place, "must be a schema, that is, an object or a boolean")
    for keyword, value in schema.items():
        check = _CHECKS.get(keyword)
        if check is not None:
            check(value, f"{place}/{keyword}")


def _check_type(value: Any, place: str) -> None:
    names = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(name, str) or name not in _TYPES for name in names):
        _refuse(place, f"must be one of {', '.join(sorted(_TYPES))}, or a list of them")


def _check_named(value: Any, place: str) -> None:
    if not isinstance(value, Mapping):
        _refuse(place, "must be an object whose values are schemas")
    for name, schema in value.items():
        _check(schema, f"{place}/{name}")


def _check_list(value: Any, place: str) -> None:
    if not isinstance(value, list) or not value:
        _refuse(place, "must be a list of schemas that is not empty")
    for index, schema in enumerate(value):
        _check(schema, f"{place}/{index}")


def _check_required(value: Any, place: str) -> None:
    if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
        _refuse(place, "must be a list of property names")


def _check_enum(value: Any, place: str) -> None:
    if not isinstance(value, list) or not value:
        _refuse(place, "must be a list of values that is not empty")


def _check_count(value: Any, place: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        _refuse(place, "must be a whole number that is not negative")


def _check_number(value: Any, place: str) -> None:
    if not _is_number(value):
        _refuse(place, "must be a number")


def _check_text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        _refuse(place, "must be a string")


def _check_pattern(value: Any, place: str) -> None:
    _check_text(value, place)
    try:
        re.compile(value)
    except (re.error, RecursionError):
        # ECMA patterns differ from Python's; only what is broken in both is refused.
        if value.count("(") != value.count(")"):
            _refuse(place, "is not a regular expression")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(place: str, sentence: str) -> None:
    message = f"{place or '/'} {sentence}"
    raise ValueError(message)


_CHECKS: Final[dict[str, Callable[[Any, str], None]]] = {
    "type": _check_type,
    "required": _check_required,
    "enum": _check_enum,
    "pattern": _check_pattern,
    **dict.fromkeys(_SCHEMAS_BY_NAME, _check_named),
    **dict.fromkeys(_SCHEMA_LISTS, _check_list),
    **dict.fromkeys(_SCHEMAS, _check),
    **dict.fromkeys(_COUNTS, _check_count),
    **dict.fromkeys(_NUMBERS, _check_number),
    **dict.fromkeys(_TEXTS, _check_text),
}
