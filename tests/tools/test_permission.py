"""Which tools a persona may use: those that nobody has switched off, and whose capabilities it has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.persona import Persona
from app.domain.tools import ToolSpec
from app.providers.scripted import call
from app.tools.base import Tool, ToolContext, ToolRules
from app.tools.executor import ToolExecutor
from app.tools.functions import FunctionTool, tool
from app.tools.registry import ToolRegistry
from tests.stage import running_stage
from tests.tools.running import CONTEXT


class Vault:
    """A tool that needs a capability, and gives a number."""

    rules = ToolRules(required_capabilities=frozenset({"money"}), output_schema={"type": "integer"})
    spec = ToolSpec("vault", "Opens the vault")

    def __init__(self, gives: Any = 7) -> None:
        self.gives = gives
        self.ran = 0

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        del arguments, context
        self.ran += 1
        return self.gives


def persona(*capabilities: str, tools: tuple[str, ...] = ("vault",)) -> Persona:
    return Persona("p", "P", "-", tools=tools, allowed_capabilities=capabilities)


def test_a_tool_is_offered_to_personas_that_have_what_it_needs_and_while_it_is_not_disabled() -> None:
    registry = ToolRegistry([Vault()])
    assert [spec.name for spec in registry.offered_to(persona("money", "more"))] == ["vault"]
    assert registry.offered_to(persona("more")) == ()
    assert registry.denied(persona("more")) == {"vault"}
    assert registry.denied(persona("money")) == frozenset()
    off = ToolRegistry([Vault()], disabled=["vault"])
    assert off.offered_to(persona("money")) == ()
    assert off.denied(persona("money")) == {"vault"}
    assert off.denied(persona("money", tools=("nonesuch",))) == frozenset()


def test_a_persona_whose_file_names_a_tool_that_it_may_not_use_is_refused() -> None:
    registry = ToolRegistry([Vault()])
    registry.check_persona(persona("money"))
    with pytest.raises(ConfigurationError, match="allowed_capabilities must have: money"):
        registry.check_persona(persona())


def test_a_function_can_need_capabilities() -> None:
    @tool(required_capabilities=["money"])
    def pay(amount: int) -> int:
        """Pay."""
        return amount

    assert FunctionTool(pay).rules.required_capabilities == {"money"}


@pytest.mark.parametrize(("gives", "code"), [(7, None), ("seven", "TOOL_OUTPUT_INVALID"), (7.5, "TOOL_OUTPUT_INVALID")])
async def test_what_a_tool_gives_has_to_fit_its_output_schema(gives: Any, code: str | None) -> None:
    vault: Tool = Vault(gives)
    result = await ToolExecutor(ToolRegistry([vault]), timeout=5).run(call("vault", id="c1"), CONTEXT)
    assert (result.error_details or {}).get("code") == code


async def test_a_call_of_a_tool_that_is_disabled_is_denied_and_not_run(tmp_path: Path, shared_database: str) -> None:
    (tmp_path / "demo.yaml").write_text(
        "{id: demo, name: D, system_prompt: Hi., tools: [vault], allowed_capabilities: [money]}"
    )
    vault = Vault()
    async with running_stage(
        shared_database, tools=[vault], personas_dir=tmp_path, disabled_tools=["vault"], personas_reload_seconds=0
    ) as stage:
        stage.provider.add([call("vault", id="c1")], "I may not.")
        chunks = await stage.play("Open it")
        assert chunks[-1]["final_response_text"] == "I may not."
        first, second = stage.provider.requests
        assert first.tools == ()
        assert "AUTH_PERMISSION_DENIED" in str(second.messages[-1].content)
        assert vault.ran == 0
