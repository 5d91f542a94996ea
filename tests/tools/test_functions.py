"""Python functions as tools, and the packages that offer them."""

import threading
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from app.domain.errors import ConfigurationError
from app.tools.base import ToolContext, ToolError, ToolRules
from app.tools.functions import FunctionTool, as_tools, installed_tools, tool
from tests.tools.running import fault, run


class Address(BaseModel):
    street: str
    city: str = "Berlin"


class Receipt(BaseModel):
    number: int
    note: str | None = None


async def send_parcel(
    order_id: str,
    address: Address,
    context: ToolContext,
    weight: Annotated[float, Field(gt=0, description="In kilograms.")] = 1.0,
    speed: Literal["slow", "fast"] = "slow",
) -> Receipt:
    """Sends an order to an address."""
    if order_id == "none":
        message = "There is no such order."
        raise ToolError(message)
    return Receipt(number=len(order_id), note=f"{context.caller.user_id} {address.city} {weight} {speed}")


@tool(timeout=3, max_output_bytes=99, requires_approval=True)
def which_thread() -> int:
    """Tells its thread."""
    return threading.get_ident()


def test_the_schema_comes_from_the_types_and_leaves_the_context_out() -> None:
    spec = FunctionTool(send_parcel).spec

    assert (spec.name, spec.description) == ("send_parcel", "Sends an order to an address.")
    assert sorted(spec.input_schema["properties"]) == ["address", "order_id", "speed", "weight"]
    assert spec.input_schema["required"] == ["order_id", "address"]
    assert spec.input_schema["properties"]["weight"]["description"] == "In kilograms."
    assert spec.input_schema["additionalProperties"] is False


async def test_it_is_called_with_typed_arguments_and_its_model_becomes_json() -> None:
    result = await run(FunctionTool(send_parcel), {"order_id": "abc", "address": {"street": "Weg 1"}, "weight": 2})

    assert result.output == {"number": 3, "note": "ada Berlin 2.0 slow"}


async def test_arguments_that_do_not_fit_and_errors_of_its_own_are_told() -> None:
    parcel = FunctionTool(send_parcel)

    assert fault(await run(parcel, {"order_id": "a", "address": {"street": 1}}))[0] == "TOOL_ARGUMENTS_INVALID"
    assert fault(await run(parcel, {"order_id": "none", "address": {"street": "x"}})) == (
        "TOOL_EXECUTION_FAILED",
        "There is no such order.",
    )


async def test_a_function_that_is_not_async_runs_in_another_thread_with_its_rules() -> None:
    made = FunctionTool(which_thread)

    assert made.rules == ToolRules(3, 99, requires_approval=True)
    assert (await run(made)).output != threading.get_ident()


def untyped(a) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return int(a)


def starred(*values: int) -> int:
    return sum(values)


def unspeakable(lock: threading.Event) -> None: ...


@pytest.mark.parametrize("function", [untyped, starred, unspeakable])
def test_a_function_that_can_not_be_described_is_refused_by_name(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=function.__name__):
        FunctionTool(function)


TOOLS = [send_parcel, which_thread]


class Plain:
    spec = FunctionTool(which_thread).spec

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002 - needs none
        return 1


def entry(value: str) -> EntryPoint:
    return EntryPoint("shop", value, "fermata.tools")


def test_installed_packages_offer_functions_tools_and_lists_of_them() -> None:
    found = installed_tools([entry(f"{__name__}:TOOLS"), entry(f"{__name__}:which_thread")])

    assert [one.spec.name for one in found] == ["send_parcel", "which_thread", "which_thread"]
    assert as_tools(Plain(), "x")[0].spec.name == "which_thread"
    assert installed_tools() == []


@pytest.mark.parametrize("value", ["no.such.module:TOOLS", f"{__name__}:nothing", f"{__name__}:__name__"])
def test_an_entry_that_is_no_tool_is_refused_by_name(value: str) -> None:
    with pytest.raises(ConfigurationError, match="shop"):
        installed_tools([entry(value)])
