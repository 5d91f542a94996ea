"""Bodies: output without defaults, input without room for anything unknown, host tools with honest schemas."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from app.api import schemas
from app.api.schemas.base import Input, Output
from app.api.schemas.json_schema import check_object_schema


def models(base: type) -> Iterator[type[Any]]:
    for found in pkgutil.iter_modules(schemas.__path__, f"{schemas.__name__}."):
        import_module(found.name)
    waiting = [base]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.__subclasses__()


def test_no_output_has_a_field_that_may_be_missing() -> None:
    missing = [
        f"{model.__name__}.{name}"
        for model in models(Output)
        for name, field in model.model_fields.items()
        if not field.is_required()
    ]

    assert missing == []


def test_every_input_refuses_what_it_does_not_know_and_turns_no_value_into_another() -> None:
    assert {(model.model_config["extra"], model.model_config["strict"]) for model in models(Input)} == {
        ("forbid", True)
    }


def test_every_field_of_every_input_is_documented() -> None:
    silent = [
        f"{model.__name__}.{name}"
        for model in models(Input)
        for name, field in model.model_fields.items()
        if not field.description and name != "type"
    ]

    assert silent == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": True, "b": {"type": ["string", "null"], "pattern": "^a(?:b)$"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "array", "items": {}}]}}},
        {"type": "object", "$defs": {"x": {"enum": [1, "two", None]}}, "additionalProperties": False, "x-own": 1},
        {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1.5, "maxLength": 3}}, "required": ["n"]},
        {"type": "object", "properties": {"type": {"type": "string"}, "required": {"type": "boolean"}}},
    ],
)
def test_a_schema_of_an_object_is_taken(schema: dict[str, Any]) -> None:
    check_object_schema(schema)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, '"type": "object"'),
        ({"type": "string"}, '"type": "object"'),
        ({"type": ["object"]}, '"type": "object"'),
        ({"type": "object", "properties": []}, "/properties must be an object"),
        ({"type": "object", "properties": {"a": 1}}, "/properties/a must be a schema"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "/properties/a/type must be one of"),
        ({"type": "object", "properties": {"a": {"type": []}}}, "/properties/a/type must be one of"),
        ({"type": "object", "required": "a"}, "/required must be a list"),
        ({"type": "object", "required": [1]}, "/required must be a list"),
        ({"type": "object", "properties": {"a": {"enum": []}}}, "/properties/a/enum must be a list"),
        ({"type": "object", "properties": {"a": {"items": 3}}}, "/properties/a/items must be a schema"),
        ({"type": "object", "anyOf": []}, "/anyOf must be a list of schemas"),
        ({"type": "object", "allOf": [{"type": 1}]}, "/allOf/0/type must be one of"),
        ({"type": "object", "properties": {"a": {"minLength": -1}}}, "/properties/a/minLength must be a whole number"),
        ({"type": "object", "properties": {"a": {"minLength": 1.5}}}, "/properties/a/minLength must be a whole number"),
        ({"type": "object", "properties": {"a": {"maximum": "9"}}}, "/properties/a/maximum must be a number"),
        ({"type": "object", "properties": {"a": {"maximum": True}}}, "/properties/a/maximum must be a number"),
        ({"type": "object", "description": 3}, "/description must be a string"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "/properties/a/pattern is not a regular"),
    ],
)
def test_a_schema_that_no_provider_would_take_is_refused_by_its_place(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"must|is not") as caught:
        check_object_schema(schema)

    assert words in str(caught.value)
