"""Calls that a person must agree to: approved, changed, denied, left alone, over a restart, and who it was."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import InvalidStateError, ValidationError
from app.domain.tools import Decision, ToolResult, ToolSpec
from app.domain.turn import Caller, ResultsInput
from app.providers.scripted import ScriptedProvider, call
from app.tools.base import ToolContext, ToolRules
from tests.databases import rows
from tests.gmi.rig import broken
from tests.stage import ADA, CHAT, WEATHER, Stage, one, result, running_stage, types

PERSONA = """
id: cashier
name: Cashier
system_prompt: Pay back what is due.
tools: [pay_back, current_time]
"""


@dataclass(slots=True)
class PayBack:
    """A tool that nobody wants to run unasked."""

    rules: ToolRules = field(default_factory=lambda: ToolRules(requires_approval=True))
    spec: ToolSpec = field(
        default_factory=lambda: ToolSpec(
            "pay_back",
            "Pays money back",
            {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
        )
    )
    paid: list[int] = field(default_factory=list)
    fails: bool = False

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002 - needs none
        self.paid.append(arguments["cents"])
        if self.fails:
            message = "the till is empty"
            raise RuntimeError(message)
        return {"paid": arguments["cents"]}


@asynccontextmanager
async def till(
    database: str, folder: Path, tool: PayBack, provider: ScriptedProvider | None = None
) -> AsyncIterator[Stage]:
    (folder / "cashier.yaml").write_text(PERSONA, encoding="utf-8")
    async with running_stage(
        database, provider, tools=[tool], personas_dir=folder, default_persona_id="cashier"
    ) as stage:
        yield stage


def says(call_id: str, *, approved: bool = True, **more: Any) -> ToolResult:
    return ToolResult(call_id, "pay_back", decision=Decision(approved, **more))


async def asked(stage: Stage, *calls: Any, **more: Any) -> dict[str, Any]:
    stage.provider.add([*calls] or [call("pay_back", {"cents": 500}, id="c1")])
    chunks = await stage.play("Pay Ann back.", **more)
    return one([chunk for chunk in chunks if chunk.get("requires_external_tool_result")], "tool_call_request")


def last_tool_messages(stage: Stage) -> dict[str | None, Any]:
    return {m.tool_call_id: m.content for m in stage.provider.requests[-1].messages if m.role == "tool"}


async def test_the_turn_pauses_and_says_that_a_person_must_agree(shared_database: str, tmp_path: Path) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        pause = await stage.pending()

    told = {"id": "c1", "name": "pay_back", "arguments": {"cents": 500}, "kind": "approval"}
    assert (request["tool_calls"], request["requires_external_tool_result"]) == ([told], True)
    assert pause is not None
    assert list(pause.tool_calls) == [told]
    assert tool.paid == []


async def test_an_approved_call_is_run_by_the_runtime_before_the_model_goes_on(
    shared_database: str, tmp_path: Path
) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        stage.provider.add("Paid.")
        chunks = await stage.pass_results(request["stream_id"], says("c1", by="Grace"))
        kept = await stage.messages()

    assert tool.paid == [500]
    assert types(chunks)[-1] == "final_response"
    assert one(chunks, "final_response")["final_tool_calls"] == [
        {"id": "c1", "name": "pay_back", "arguments": {"cents": 500}}
    ]
    assert one(chunks, "tool_result_emission")["tool_result"] == {"approved": True, "by": "Grace"}
    assert last_tool_messages(stage) == {"c1": '{"paid":500}'}
    assert [(message.role, message.content) for message in kept] == [
        ("user", "Pay Ann back."),
        ("assistant", None),
        ("tool", '{"paid":500}'),
        ("assistant", "Paid."),
    ]
    assert kept[2].metadata == {"approval": {"approved": True, "by": "Grace"}}


async def test_the_arguments_may_be_changed_and_the_model_is_told(shared_database: str, tmp_path: Path) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        stage.provider.add("Paid half.")
        await stage.pass_results(request["stream_id"], says("c1", arguments={"cents": 250}))
        (answer,) = last_tool_messages(stage).values()

    assert tool.paid == [250]
    assert json.loads(answer) == {"changed_by_a_person": {"arguments": {"cents": 250}}, "output": {"paid": 250}}


async def test_calls_are_run_and_told_in_their_order_whatever_order_the_decisions_came_in(
    shared_database: str, tmp_path: Path
) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage, *(call("pay_back", {"cents": cents}, id=f"c{cents}") for cents in (1, 2, 3)))
        stage.provider.add("Done.")
        await stage.pass_results(request["stream_id"], says("c3"), says("c2", approved=False), says("c1"))
        assert tool.paid == [1, 3]
        assert list(last_tool_messages(stage)) == ["c1", "c2", "c3"]


async def test_a_denied_call_is_not_run_and_the_model_reads_why(shared_database: str, tmp_path: Path) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        stage.provider.add("I may not.")
        chunks = await stage.pass_results(request["stream_id"], says("c1", approved=False, reason="Too much."))
        kept = await stage.messages()

    assert tool.paid == []
    assert one(chunks, "tool_result_emission")["is_success"] is False
    assert "A person refused this call: Too much." in str(last_tool_messages(stage)["c1"])
    assert kept[2].is_error
    assert kept[2].metadata == {"approval": {"approved": False, "reason": "Too much.", "by": "ada"}}


async def test_host_calls_and_approvals_of_one_step_are_one_pause_told_in_call_order(
    shared_database: str, tmp_path: Path
) -> None:
    tool = PayBack()
    calls = [
        call("pay_back", {"cents": 1}, id="c1"),
        call("get_weather", {"city": "Bonn"}, id="c2"),
        call("current_time", id="c3"),
        call("pay_back", {"cents": 2}, id="c4"),
    ]
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage, *calls, tools=[WEATHER])
        assert [(entry["id"], entry["kind"]) for entry in request["tool_calls"]] == [
            ("c1", "approval"), ("c2", "tool"), ("c4", "approval"),
        ]  # fmt: skip
        stage.provider.add("Done.")
        await stage.pass_results(request["stream_id"], result("c2"), says("c4", approved=False), says("c1"))
        told = last_tool_messages(stage)

    assert list(told) == ["c1", "c2", "c3", "c4"]
    assert (told["c1"], told["c2"]) == ('{"paid":1}', "21 degrees")
    assert tool.paid == [1]


async def test_only_a_decision_answers_a_call_that_needs_one_and_nothing_else_does(
    shared_database: str, tmp_path: Path
) -> None:
    async with till(shared_database, tmp_path, PayBack()) as stage:
        request = await asked(
            stage, call("pay_back", {"cents": 1}, id="c1"), call("get_weather", id="c2"), tools=[WEATHER]
        )
        for wrong in (result("c1"), ToolResult("c2", "get_weather", decision=Decision(approved=True))):
            with pytest.raises(InvalidStateError, match="none of the results was taken"):
                await stage.runtime.pass_results(ResultsInput(ADA, (wrong,), stream_id=request["stream_id"]))
        changed = says("c1", arguments={"cents": "many"})
        with pytest.raises(ValidationError, match="don't fit the tool pay_back"):
            await stage.runtime.pass_results(ResultsInput(ADA, (changed,), stream_id=request["stream_id"]))
        assert await stage.pending() is not None


async def test_arguments_that_do_not_fit_are_told_to_the_model_without_asking_anybody(
    shared_database: str, tmp_path: Path
) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        stage.provider.add([call("pay_back", {"cents": "x"}, id="c1")], "Sorry.")
        chunks = await stage.play("Pay Ann back.")

    assert types(chunks)[-1] == "final_response"
    assert tool.paid == []


async def test_a_decision_may_come_in_parts_and_one_that_is_not_reached_runs_nothing(
    shared_database: str, tmp_path: Path
) -> None:
    tool = PayBack()
    two = [call("pay_back", {"cents": 1}, id="c1"), call("pay_back", {"cents": 2}, id="c2")]
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage, *two)
        first = ResultsInput(ADA, (says("c1"),), stream_id=request["stream_id"], partial=True)
        await stage.runtime.pass_results(first)
        stage.provider.add("Hello.")
        await stage.play("Never mind.")
        kept = await stage.messages()

    assert tool.paid == []
    answers = {message.tool_call_id: message for message in kept if message.role == "tool"}
    assert all("EXTERNAL_TOOL_NOT_RUN" in str(answer.content) for answer in answers.values())
    assert answers["c1"].metadata == {"approval": {"approved": True, "by": "ada"}}


async def test_a_pause_is_approved_on_another_process_after_a_restart(database: str, tmp_path: Path) -> None:
    async with till(database, tmp_path, PayBack()) as stage:
        request = await asked(stage)
    tool = PayBack()
    async with till(database, tmp_path, tool, ScriptedProvider(["Paid."])) as stage:
        chunks = await stage.pass_results(request["stream_id"], says("c1"))

    assert (tool.paid, one(chunks, "final_response")["final_response_text"]) == ([500], "Paid.")


async def test_an_approved_tool_that_fails_is_told_and_stored(shared_database: str, tmp_path: Path) -> None:
    tool = PayBack(fails=True)
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        stage.provider.add("It failed.")
        await stage.pass_results(request["stream_id"], says("c1"))
        kept = await stage.messages()

    assert "TOOL_EXECUTION_FAILED" in str(last_tool_messages(stage)["c1"])
    assert kept[2].is_error


async def test_a_continuation_that_fails_after_the_tool_has_run_keeps_what_it_gave(
    shared_database: str, tmp_path: Path
) -> None:
    async with till(shared_database, tmp_path, PayBack()) as stage:
        request = await asked(stage)
        stage.provider.add([broken()])
        chunks = await stage.pass_results(request["stream_id"], says("c1"))
        kept = await stage.messages()
        stage.provider.add("Still here.")
        await stage.play("And now?")

    assert one(chunks, "error")["code"] == "LLM_PROVIDER_ERROR"
    assert kept[-1].content == '{"paid":500}'


async def test_a_second_pause_in_the_same_turn_keeps_the_answers_of_the_first(
    shared_database: str, tmp_path: Path
) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        stage.provider.add([call("pay_back", {"cents": 7}, id="c2")])
        again = one(await stage.pass_results(request["stream_id"], says("c1")), "tool_call_request")
        stage.provider.add("Both paid.")
        await stage.pass_results(again["stream_id"], says("c2"))
        kept = await stage.messages()

    assert tool.paid == [500, 7]
    assert [message.tool_call_id for message in kept if message.role == "tool"] == ["c1", "c2"]


async def test_who_decided_stays_with_the_pause(shared_database: str, tmp_path: Path) -> None:
    async with till(shared_database, tmp_path, PayBack()) as stage:
        request = await asked(stage)
        stage.provider.add("Paid.")
        await stage.pass_results(request["stream_id"], says("c1", by="Grace", reason="It is due."))
        (found,) = await rows(stage.database, "SELECT results FROM pending_external_tool_requests")

    assert json.loads(found["results"])[0]["decision"] == {"approved": True, "reason": "It is due.", "by": "Grace"}


async def test_another_user_can_not_approve(shared_database: str, tmp_path: Path) -> None:
    tool = PayBack()
    async with till(shared_database, tmp_path, tool) as stage:
        request = await asked(stage)
        chunks = await stage.pass_results(request["stream_id"], says("c1"), caller=Caller("mallory"))
        assert await stage.pending(CHAT) is not None

    assert one(chunks, "error")["code"] == "SYS_RESOURCE_NOT_FOUND"
    assert tool.paid == []
