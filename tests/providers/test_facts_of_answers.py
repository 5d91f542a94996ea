"""What providers tell of an answer beside its content: model, id, tier, and what became of the prompt cache."""

from typing import Any

import pytest

from app.providers.base import Finish
from app.providers.compat import ChatCompat
from app.providers.dialects.anthropic.decoder import AnthropicDecoder
from app.providers.dialects.chat.decoder import ChatDecoder
from app.providers.dialects.gemini.decoder import GeminiDecoder
from app.providers.dialects.responses.decoder import ResponsesDecoder
from tests.providers import anthropic_wire as anthropic
from tests.providers import responses_wire as responses
from tests.providers.gemini_wire import part
from tests.providers.reading import chunk, read, stream

MISS = {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}}


def opened(**message: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"model": "claude-x", **message}}


@pytest.mark.parametrize(
    ("decoder", "wire", "told"),
    [
        (
            ChatDecoder("openai", ChatCompat()),
            stream(chunk({"content": "a"}), chunk({}, "stop", service_tier="flex")),
            Finish("stop", "stop", "m-1", "c1", "flex"),
        ),
        (
            ChatDecoder("openai", ChatCompat()),
            stream({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "id": None, "service_tier": 0}),
            Finish("stop", "stop"),
        ),
        (
            ResponsesDecoder("openai"),
            responses.wire(responses.said("a"), responses.completed(id="resp_1", service_tier="priority")),
            Finish("stop", "completed", "gpt-x", "resp_1", "priority"),
        ),
        (
            AnthropicDecoder("anthropic"),
            anthropic.wire(
                opened(id="msg_1", usage={"input_tokens": 9, "service_tier": "standard"}, diagnostics=MISS),
                anthropic.delta(0, "text_delta", text="a"),
                anthropic.ending("end_turn"),
            ),
            Finish("stop", "end_turn", "claude-x", "msg_1", "standard", MISS),
        ),
        (
            AnthropicDecoder("anthropic"),
            anthropic.wire(
                opened(id="", diagnostics=None),
                anthropic.delta(0, "text_delta", text="a"),
                anthropic.ending("end_turn"),
            ),
            Finish("stop", "end_turn", "claude-x"),
        ),
        (
            GeminiDecoder("gemini"),
            stream(part({"text": "a"}, finish="STOP", responseId="r-1"), done=False),
            Finish("stop", "STOP", "gemini-x", "r-1"),
        ),
    ],
)
def test_what_a_provider_tells_of_its_answer_comes_with_the_end(decoder: Any, wire: bytes, told: Finish) -> None:
    events, error = read(decoder, wire)

    assert (events[-1], error) == (told, None)
