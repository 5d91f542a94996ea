"""The token budget in whole turns: what is cut, what is refused before any model is asked, and how it is told."""

from typing import Any

import pytest

from app.conversation.budget import Room
from app.conversation.tokens import Estimate, message_tokens, tools_tokens
from app.conversation.windows import reserve_of, window_of
from app.domain.errors import TooLargeError
from app.domain.messages import Message, ToolCall
from app.domain.policy import HistoryPolicy
from app.domain.turn import TurnOptions
from app.providers.base import ModelRequest
from app.providers.scripted import Piece
from tests.conversation.talking import completed, has_said, last_told, routing, said, talking
from tests.stage import WEATHER, one, result, types

SMALL: dict[str, Any] = {"default_context_window": 2048}


async def test_history_is_cut_to_what_the_window_leaves_and_the_routing_block_says_so(shared_database: str) -> None:
    past = [Message("user" if n % 2 else "assistant", f"m{n} " + "word " * 100) for n in range(1, 21)]
    async with talking(shared_database, **SMALL) as stage:
        await has_said(stage, *past)
        chunks = await stage.play("And now?")
        assert completed(chunks)
        told = last_told(stage)
        assert [text.split()[0] for text in told] == [
            "m1",
            "m2",
            *[f"m{n}" for n in range(23 - len(told) + 1, 21)],
            "And",
        ]
        block = routing(chunks)["history"]
        assert block["cut_to_fit"] == 21 - len(told) > 0
        sizes = block["tokens"]
        assert sizes["estimated"] is True
        assert sizes["messages"] + sizes["system"] + sizes["tools"] + sizes["answer"] <= sizes["window"] == 2048


async def test_an_input_that_never_fits_is_refused_before_anything_is_stored_and_the_sizes_are_named(
    shared_database: str,
) -> None:
    async with talking(shared_database, **SMALL) as stage:
        await has_said(stage, *said(2))
        chunks = await stage.play("word " * 5000)
        error = one(chunks, "error")
        assert types(chunks)[-1] == "error"
        assert error["code"] == "SYS_PAYLOAD_TOO_LARGE"
        assert "window of scripted:small, which is 2048 tokens: it takes about 6255" in error["message"]
        assert error["details"]["window"] == 2048
        assert error["details"]["messages"] > 6000
        assert stage.provider.requests == []
        assert len(await stage.messages()) == 2
        assert completed(await stage.play("Shorter."))
        assert last_told(stage) == ["m1", "m2", "Shorter."]


async def test_a_continuation_whose_results_do_not_fit_fails_with_the_sizes_before_a_model_is_asked(
    shared_database: str,
) -> None:
    def answer(request: ModelRequest) -> list[Piece] | str:
        return [ToolCall("w1", "get_weather", {})] if request.tools and len(request.messages) == 2 else "Ok."

    async with talking(shared_database, answer, **SMALL) as stage:
        paused = await stage.play("weather", tools=[WEATHER])
        chunks = await stage.pass_results(paused[-1]["stream_id"], result("w1", "rain " * 5000))
        assert one(chunks, "error")["code"] == "SYS_PAYLOAD_TOO_LARGE"
        assert one(chunks, "final_response")["error"]["code"] == "SYS_PAYLOAD_TOO_LARGE"
        assert len(stage.provider.requests) == 1
        assert completed(await stage.play("Never mind."))
        assert last_told(stage)[-1] == "Never mind."


async def test_a_turn_may_bring_a_model_with_a_window_of_its_own(shared_database: str) -> None:
    given: dict[str, Any] = {**SMALL, "context_windows": {"scripted:large": 500_000}}
    async with talking(shared_database, **given) as stage:
        chunks = await stage.play("word " * 5000, options=TurnOptions(model="scripted:large"))
        assert completed(chunks)
        assert routing(chunks)["history"]["tokens"]["window"] == 500_000


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("openai:gpt-4o-mini-2024-07-18", 128_000),
        ("openai:gpt-4", 8_192),
        ("openai:gpt-4.1-nano", 1_047_576),
        ("openrouter:anthropic/claude-sonnet-4", 200_000),
        ("local:whatever", 64_000),
        ("local:mine", 4_096),
    ],
)
def test_a_window_is_as_set_else_as_known_else_the_default(model: str, window: int) -> None:
    policy = HistoryPolicy(context_windows={"local:mine": 4_096}, default_window=64_000)
    assert window_of(model, policy) == window


def test_what_is_kept_for_the_answer_follows_the_options_and_never_takes_all() -> None:
    assert [reserve_of(128_000, None), reserve_of(8_000, None)] == [4_096, 2_000]
    assert [reserve_of(128_000, 500), reserve_of(8_000, 100_000)] == [500, 4_000]


def test_an_estimate_counts_letters_of_larger_alphabets_and_digits_higher() -> None:
    counter = Estimate()
    assert counter.text("") == 0
    assert 20 <= counter.text("The quick brown fox jumps over the lazy dog, twice, and then once more again.") <= 22
    assert 24 <= counter.text("日本語" * 10) <= 28
    assert 40 <= counter.text("0123456789" * 10) <= 50
    assert counter.exact is False


def test_pictures_and_sound_are_not_counted_as_text() -> None:
    counter = Estimate()
    picture = {"type": "image", "data": "A" * 4_000_000, "mime_type": "image/png"}
    assert message_tokens(Message("user", [picture]), counter) == 1104
    assert message_tokens(Message("user", [{**picture, "detail": "low"}]), counter) == 89
    assert message_tokens(Message("user", [{"type": "audio", "data": "A" * 100_000}]), counter) == 105
    assert message_tokens(Message("user", [{"type": "text", "text": "Look."}]), counter) == 6
    assert message_tokens(Message("assistant", None, tool_calls=(ToolCall("c", "f", {"a": "b" * 40}),)), counter) > 20
    thought = {"reasoning": [{"text": "b" * 40, "signature": "s"}]}
    silent, thinking = Message("assistant", "Yes."), Message("assistant", "Yes.", metadata=thought)
    assert message_tokens(thinking, counter) == message_tokens(silent, counter) + counter.text("b" * 40)
    assert tools_tokens([WEATHER], counter) > 30


def test_a_room_without_any_place_says_so() -> None:
    room = Room("local:tiny", window=1000, system=900, tools=80, answer=100, counter=Estimate())
    with pytest.raises(TooLargeError) as refused:
        room.check([Message("user", "Hi")], "The input")
    assert refused.value.details == {
        "window": 1000,
        "messages": 5,
        "system": 900,
        "tools": 80,
        "answer": 100,
        "estimated": True,
    }
