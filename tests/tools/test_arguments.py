"""What models mean by the arguments that they send: defaults, and values that come as texts."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.tools import ToolSpec
from app.tools.arguments import with_containers, with_defaults
from app.tools.base import ToolContext
from tests.tools.running import fault, run

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "default": "Graz"},
        "days": {"type": "integer", "default": 3, "minimum": 1},
        "share": {"type": "number"},
        "again": {"type": "boolean"},
        "tags": {"type": "array"},
        "about": {"type": ["object", "null"]},
        "either": {"type": ["string", "integer"]},
        "free": {},
        "odd": True,
    },
}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, {"city": "Graz", "days": 3}),
        ({"city": "Linz", "days": 0}, {"city": "Linz", "days": 0}),
        ({"days": "7", "share": "-1.5e2", "again": "true"}, {"days": 7, "share": -150.0, "again": True}),
        ({"tags": '["a"]', "about": '{"a": 1}'}, {"tags": ["a"], "about": {"a": 1}}),
        ({"tags": '{"a": 1}', "about": "[1]"}, {"tags": '{"a": 1}', "about": "[1]"}),
        ({"days": "seven", "share": "1e999", "again": "yes"}, {"days": "seven", "share": "1e999", "again": "yes"}),
        ({"city": "7", "either": "7", "free": "7", "odd": "7"}, {"city": "7", "either": "7", "free": "7", "odd": "7"}),
        ({"other": "1", "tags": "[", "days": None}, {"other": "1", "tags": "[", "days": None}),
    ],
)
def test_what_is_left_out_has_its_default_and_a_text_is_what_it_says(
    given: dict[str, Any], meant: dict[str, Any]
) -> None:
    assert with_defaults(given, SCHEMA) == {"city": "Graz", "days": 3, **meant}
    assert with_defaults(given, {"type": "object"}) == given


@pytest.mark.parametrize("value", [[1], "7", None, {"days": "7"}])
def test_of_a_reply_only_containers_are_read(value: Any) -> None:
    assert with_containers(value, SCHEMA) == value
    assert with_containers({"tags": "[1]"}, SCHEMA) == {"tags": [1]}


class Forecast:
    """A tool that gives back what it is called with."""

    spec = ToolSpec("forecast", "Tells the weather", SCHEMA)

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002 - needs none
        return dict(arguments)


async def test_a_tool_is_called_with_what_was_meant_and_the_bounds_hold_for_that() -> None:
    assert (await run(Forecast(), {"days": "2"})).output == {"city": "Graz", "days": 2}
    assert fault(await run(Forecast(), {"days": "0"})) == (
        "TOOL_ARGUMENTS_INVALID",
        "At $.days: 0 is less than the minimum of 1",
    )


def test_a_default_is_nobodys_to_change() -> None:
    schema: dict[str, Any] = {"properties": {"tags": {"default": []}}}
    with_defaults({}, schema)["tags"].append("a")

    assert with_defaults({}, schema) == {"tags": []}
