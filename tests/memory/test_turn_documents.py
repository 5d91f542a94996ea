"""Turns that become documents: what is kept of them, who finds it, and that no failure of it fails a turn."""

from pathlib import Path
from typing import Any

import pytest

from app.domain.turn import Caller
from app.providers.errors import failure
from app.providers.scripted import call
from tests.databases import rows
from tests.guardrails.leaks import tables
from tests.memory.test_turns import knowing, told
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, result, types

WHOLE: dict[str, Any] = {"retrieval": {"keeps_turns": "whole"}}
SUMMARY: dict[str, Any] = {"retrieval": {"keeps_turns": "summary"}}


async def kept(stage: Stage) -> list[tuple[str, ...]]:
    """Wait until all is kept, and give scope, collection and text of the documents."""
    await stage.runtime._services.background.settled()
    query = """SELECT scope, collection, content FROM documents JOIN document_chunks
        USING (organization_id, document_id) ORDER BY documents.created_at, number"""
    return [tuple(row) for row in await rows(stage.database, query)]


@requirement("R262")
async def test_what_was_asked_and_answered_is_found_by_the_user_in_another_conversation(
    shared_database: str, tmp_path: Path
) -> None:
    async with knowing(shared_database, tmp_path, WHOLE) as stage:
        stage.provider.add("Zanzibar it is.", "Zanzibar.", "I don't know.", "Nor I.")
        await stage.play("Where shall I go in May?", conversation="one")
        assert "<retrieved>" not in told(stage)
        text = "User: Where shall I go in May?\n\nAssistant: Zanzibar it is."
        assert await kept(stage) == [("user", "turns", text)]
        chunks = await stage.play("What did I say of May?", conversation="two")
        assert text in told(stage)
        (sources,) = [chunk["updates"]["rag_sources"] for chunk in chunks if "rag_sources" in chunk.get("updates", {})]
        assert sources[0]["metadata"]["type"] == "conversation_turn_summary"
        assert sources[0]["data_source_id"] == "turns"
        await stage.play("What did I say of May?", conversation="three", caller=Caller("bob"))
        assert "Zanzibar" not in told(stage)
        await stage.play("What did I say of May?", conversation="two", caller=Caller("ada", "acme"))
        assert "Zanzibar" not in told(stage)


async def test_a_turn_is_kept_as_a_summary_and_paid_for(shared_database: str, tmp_path: Path) -> None:
    async with knowing(shared_database, tmp_path, SUMMARY, utility_model="scripted:tiny") as stage:
        stage.provider.add("Zanzibar it is.", "Ada goes to Zanzibar in May.")
        await stage.play("Where shall I go in May?")
        assert await kept(stage) == [("user", "turns", "Ada goes to Zanzibar in May.")]
        asked = stage.provider.requests[-1]
        assert asked.model == "tiny"
        assert asked.messages[-1].content == "User: Where shall I go in May?\n\nAssistant: Zanzibar it is."
        paid = await rows(stage.database, "SELECT purpose FROM usage_ledger ORDER BY n")
        assert [row[0] for row in paid] == ["turn", "summary"]


async def test_a_summary_that_fails_fails_no_turn_and_stands_in_the_trace(shared_database: str, tmp_path: Path) -> None:
    async with knowing(shared_database, tmp_path, SUMMARY) as stage:
        stage.provider.add("Zanzibar it is.", [failure("auth", "scripted", "no")])
        assert "final_response" in types(await stage.play("Where shall I go in May?"))
        assert await kept(stage) == []
        noted = await rows(stage.database, "SELECT details::text FROM reasoning_traces WHERE type = 'error'")
        assert ["RAG_INGESTION_FAILED" in row[0] for row in noted] == [True]


@pytest.mark.parametrize("retrieval", [{}, {"keeps_turns": "whole", "enabled": False}])
async def test_no_turn_is_kept_unless_the_persona_says_so(
    shared_database: str, tmp_path: Path, retrieval: dict[str, Any]
) -> None:
    async with knowing(shared_database, tmp_path, {"retrieval": retrieval}) as stage:
        stage.provider.add("Fine.")
        await stage.play("Hello.")
        assert await kept(stage) == []


async def test_a_turn_that_failed_or_keeps_nothing_leaves_no_document(shared_database: str, tmp_path: Path) -> None:
    async with knowing(shared_database, tmp_path, WHOLE) as stage:
        stage.provider.add([failure("auth", "scripted", "no")])
        assert "error" in types(await stage.play("Hello."))
        assert await kept(stage) == []
    async with knowing(shared_database, tmp_path, WHOLE, enable_conversational_persistence=False) as stage:
        stage.provider.add("Fine.")
        await stage.play("Hello.", conversation="two")
        assert await kept(stage) == []


async def test_a_turn_that_paused_is_kept_once_with_its_question_when_it_is_answered(
    shared_database: str, tmp_path: Path
) -> None:
    persona: dict[str, Any] = {"retrieval": {**WHOLE["retrieval"], "turns_scope": "conversation"}}
    async with knowing(shared_database, tmp_path, persona) as stage:
        stage.provider.add([call(WEATHER.name, {"city": "Berlin"}, id="call_1")], "It is sunny.")
        await stage.play("How is the weather?", tools=[WEATHER])
        assert await kept(stage) == []
        pause = await stage.pending()
        assert pause is not None
        await stage.pass_results(pause.stream_id, result("call_1"))
        assert await kept(stage) == [("conversation", "turns", "User: How is the weather?\n\nAssistant: It is sunny.")]


@pytest.mark.parametrize("whose", ["conversation", "user"])
async def test_what_was_kept_goes_with_its_conversation_and_with_its_user(
    shared_database: str, tmp_path: Path, whose: str
) -> None:
    async with knowing(shared_database, tmp_path, WHOLE) as stage:
        stage.provider.add("It is striped.")
        await stage.play("What is a quagga?", conversation="c")
        assert len(await kept(stage)) == 1
        if whose == "user":
            await stage.runtime.users.erase(ADA)
        else:
            await stage.runtime.delete_conversation(ADA, "c")
        assert "quagga" not in await tables(stage.database)
