"""A held pause whose snapshot is gone: its turn goes on with what the conversation keeps, or is refused whole."""

import pytest

from tests.databases import rows
from tests.requirements import requirement
from tests.stage import result
from tests.turn.pausing import Answer, by_results, by_resume, codes, held, paused, scripted, told, until

GONE = "UPDATE pending_external_tool_requests SET snapshot = NULL"
WAYS = pytest.mark.parametrize("way", [by_results, by_resume])


@requirement("R186", "R187")
@WAYS
async def test_the_stored_history_takes_its_place_and_there_are_no_sources(shared_database: str, way: Answer) -> None:
    async with scripted(shared_database, "Hello.") as stage:
        await stage.play("Hi.")
        pause = await paused(stage, "c1", "c2")
    await rows(shared_database, GONE)
    async with scripted(shared_database, "Mild.", "Fine.") as other:
        pause = await held(other)
        done = await way(other, pause, result("c2", "22"))

        assert (done[-1]["final_response_text"], done[-1]["rag_sources"]) == ("Mild.", None)
        request = other.provider.requests[-1]
        assert [(message["role"], message["content"]) for message in told(request)[:4]] == [
            ("user", "Hi."),
            ("assistant", "Hello."),
            ("user", "What is the weather?"),
            ("assistant", None),
        ]
        assert [message["tool_call_id"] for message in told(request)[4:]] == ["c1", "c2"]
        assert "get_weather" in [tool.name for tool in request.tools]
        assert await other.pending() is None
        assert (await other.play("And now?"))[-1]["final_response_text"] == "Fine."


@WAYS
async def test_where_the_conversation_keeps_nothing_the_results_are_refused_and_the_pause_stays(
    shared_database: str, way: Answer
) -> None:
    async with scripted(shared_database, enable_conversational_persistence=False) as stage:
        pause = await paused(stage, "c1")
        await rows(shared_database, GONE)
        assert codes(await way(stage, pause, result("c1"))) == ["SYS_INVALID_STATE"]
        assert await held(stage) == pause
        stage.provider.add("Bye.")
        assert (await stage.play("Something else."))[-1]["final_response_text"] == "Bye."


async def test_such_a_pause_can_run_out_too(shared_database: str) -> None:
    async with scripted(shared_database) as stage:
        await paused(stage, "c1", pause_ttl_seconds=3600, on_expiry="continue")
        stage.provider.add("Nobody told me.")
        await rows(shared_database, f"{GONE}, expires_at = now() - interval '1 second'")

        async def over() -> bool:
            return (await stage.said())[-1] == ("assistant", "Nobody told me.")

        await until(over)
