"""The corners of a turn's life: odd outputs, odd inputs, hosts that leave, and what is and is not stored then."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.chunks import FinalResponseMarker, GmiChunk, GmiError, GmiOutput, TextDelta
from app.domain.turn import Caller, TurnOptions
from app.providers.scripted import Hold
from app.streaming.outlet import CutError
from app.turn.gmi.base import GmiTurnInput
from tests.gmi.rig import broken
from tests.guardrails.leaks import tables
from tests.requirements import requirement
from tests.stage import ADA, CHAT, Stage, one, running_stage, types
from tests.turn.playing import Playing, end

KEY = "sk-one-turn-only-7731"


class Raising(Playing):
    """A host's GMI that raises in mid-answer, in place of saying that it failed."""

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        del turn
        yield TextDelta("So far ")
        message = "the floor is gone"
        raise RuntimeError(message)


async def test_the_reply_is_the_output_and_what_follows_the_marker_is_read(shared_database: str) -> None:
    gmi = Playing(
        [TextDelta("A preview."), FinalResponseMarker(), GmiOutput(is_final=True, response_text="The reply.")]
    )
    async with running_stage(shared_database, gmis=gmi) as stage:
        chunks = await stage.play("Hi.")
        assert one(chunks, "final_response")["final_response_text"] == "The reply."
        assert await stage.said() == [("user", "Hi."), ("assistant", "The reply.")]


@requirement("R43")
@pytest.mark.parametrize("text", [None, "", "   \n "])
async def test_a_reply_that_says_nothing_is_not_stored_and_still_ends_with_a_final_response(
    shared_database: str, text: str | None
) -> None:
    gmi = Playing([FinalResponseMarker(), GmiOutput(is_final=True, response_text=text)])
    async with running_stage(shared_database, gmis=gmi) as stage:
        chunks = await stage.play("Hi.")
        response = one(chunks, "final_response")
        assert response["final_response_text"] == text
        assert response["final_response_text_plain"] == (None if text is None else "")
        assert await stage.said() == [("user", "Hi.")]


@requirement("R300", "R302", "R303", "R305")
async def test_a_gmi_that_raises_in_mid_answer_ends_its_turn_with_an_error_of_the_services_own(
    shared_database: str,
) -> None:
    async with running_stage(shared_database, gmis=Raising()) as stage:
        chunks = await stage.play("Hi.")
        said = one(chunks, "error")
        assert said["is_final"] is True
        assert "floor" not in said["message"]
        (state,) = [await stage.runtime.stream_state(ADA, chunks[-1]["stream_id"])]
        assert state.status.value == "failed"
        assert "So far" not in str(await stage.messages())


@pytest.mark.parametrize("odd", ["text", {"type": "text_delta"}, None, 7])
async def test_what_is_no_chunk_ends_the_turn_with_an_error_and_what_came_before_it_was_sent(
    shared_database: str, odd: Any
) -> None:
    async with running_stage(shared_database, gmis=Playing([TextDelta("So far"), odd, end("Done.")])) as stage:
        chunks = await stage.play("Hi.")
        assert [chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta"] == ["So far"]
        assert one(chunks, "error")["code"] == "SYS_INTERNAL_SERVER_ERROR"
        assert str(odd) not in one(chunks, "error")["message"]
        assert "Done." not in str(await stage.messages())


async def test_the_same_words_twice_are_two_messages_in_the_history(stage: Stage) -> None:
    stage.provider.add("One.", "Two.")
    await stage.play("Again.")
    await stage.play("Again.")
    told = [message.content for message in stage.provider.requests[-1].messages][1:]
    assert told == ["Again.", "One.", "Again."]


async def test_a_turns_options_arrive_whole_and_those_that_are_not_set_are_not_sent(shared_database: str) -> None:
    given: list[TurnOptions] = []

    class Keeping(Playing):
        async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
            given.append(turn.options)
            async for item in super().process_turn_stream(turn):
                yield item

    options = TurnOptions(temperature=0.1, top_p=0.5, max_tokens=9, mode="m", custom_flags={"a": [1, {"b": None}]})
    async with running_stage(shared_database, gmis=Keeping([end()], [end()])) as stage:
        await stage.play("Hi.", options=options)
        await stage.play("Hi.")
    assert given == [options, TurnOptions()]


async def test_a_turns_provider_keys_reach_the_provider_and_no_table(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.", provider_api_keys={"scripted": KEY})
    assert KEY not in await tables(stage.database)
    assert KEY not in str(await stage.messages())


async def test_in_a_service_of_one_organization_a_call_that_names_none_is_of_the_default_one(
    shared_database: str,
) -> None:
    single: dict[str, Any] = {"tenant_mode": "single_tenant", "default_organization_id": " acme "}
    async with running_stage(shared_database, **single) as stage:
        stage.provider.add("Hello.")
        chunks = await stage.play("Hi.")
        (routing,) = [c["updates"] for c in chunks if "organization_id" in c.get("updates", {})]
        assert routing["organization_id"] == "acme"
        assert routing["tenant_routing"] == {
            "mode": "single_tenant",
            "strict_organization_isolation": False,
            "default_organization_id": "acme",
        }
        assert (await stage.runtime.get_conversation(Caller("ada", "acme"), CHAT)).conversation_id == CHAT


async def test_an_error_of_a_provider_has_its_own_code_and_words_on_both_last_chunks(stage: Stage) -> None:
    stage.provider.add(["Well, ", broken(message="It s3 broke.")])
    chunks = await stage.play("Hi.")
    failed, response = one(chunks, "error"), one(chunks, "final_response")
    assert types(chunks).index("error") < types(chunks).index("final_response")
    assert (response["error"]["code"], response["error"]["message"]) == (failed["code"], failed["message"])
    assert failed["persona_id"] == "demo"
    assert await stage.said() == [("user", "Hi.")]


async def test_an_error_chunk_of_a_host_gmi_keeps_its_code(shared_database: str) -> None:
    failure = GmiError("SHOP_CLOSED", "The shop is closed.", {"until": "nine"})
    gmi = Playing([failure, FinalResponseMarker(), GmiOutput(is_final=True, error=failure)])
    async with running_stage(shared_database, gmis=gmi) as stage:
        chunks = await stage.play("Hi.")
        assert (one(chunks, "error")["code"], one(chunks, "error")["details"]) == ("SHOP_CLOSED", {"until": "nine"})
        assert one(chunks, "final_response")["error"]["code"] == "SHOP_CLOSED"


async def test_a_host_that_stops_reading_leaves_no_reader_behind_and_the_turn_ends(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add(["One ", hold, "two."])
    turn = stage.turn("Hi.")
    first = await anext(turn)
    await turn.aclose()  # type: ignore[attr-defined]
    hold.release()
    frames = await stage.runtime.open_events(ADA, first["stream_id"], None, follow=False)
    assert frames is not None
    async for _ in frames:
        pass
    assert await stage.said() == [("user", "Hi."), ("assistant", "One two.")]


async def test_at_a_drain_a_reader_in_the_process_is_cut_since_its_turn_goes_on_elsewhere(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        hold = Hold()
        stage.provider.add(["One ", hold, "two."])
        playing = asyncio.create_task(stage.play("Hi."))
        await asyncio.wait_for(hold.reached.wait(), 20)
        await stage.runtime.drain()
        with pytest.raises(CutError):
            await playing


async def test_the_parser_of_replies_is_ready_before_one_needs_it(stage: Stage) -> None:
    async with asyncio.timeout(30):
        while "_parser" not in vars(stage.runtime._services.plain_text):  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.01)
