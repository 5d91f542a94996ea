"""Reasoning effort in each dialect's words, and what is passed through as it is."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from app.domain.messages import Message
from app.providers.base import ModelRequest
from app.providers.compat import ChatCompat
from app.providers.dialect import Dialect
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from app.providers.http import HttpPolicy, ModelHttp
from app.providers.provider import HttpProvider
from tests.providers.reading import chunk, collect, stream, text_of

PLAIN = ModelRequest("m", (Message("user", "hi"),), temperature=0.5, max_tokens=100)
URL = "https://models.example.org/v1"


CASES: list[tuple[Dialect, str, Any]] = [
    (ChatDialect(ChatCompat()), "reasoning_effort", "low"),
    (ResponsesDialect(), "reasoning", {"effort": "low"}),
    (AnthropicDialect(), "thinking", {"type": "enabled", "budget_tokens": 2048}),
]


@pytest.mark.parametrize(
    ("dialect", "name", "sent"),
    CASES,
)
def test_an_effort_is_sent_in_the_dialects_words_and_nothing_without_one(
    dialect: Dialect, name: str, sent: Any
) -> None:
    assert dialect.body(replace(PLAIN, reasoning_effort="low"))[name] == sent
    assert name not in dialect.body(PLAIN)


def test_anthropic_leaves_room_for_the_answer_beside_the_thoughts_and_sends_no_temperature() -> None:
    body: Any = AnthropicDialect().body(replace(PLAIN, reasoning_effort="high"))

    assert body["max_tokens"] == 100 + body["thinking"]["budget_tokens"]
    assert "temperature" not in body
    assert "thinking" not in AnthropicDialect().body(replace(PLAIN, reasoning_effort="none"))


def test_gemini_is_told_a_budget_and_zero_for_none() -> None:
    for effort, budget in (("none", 0), ("medium", 8192)):
        body: Any = GeminiDialect().body(replace(PLAIN, reasoning_effort=effort))  # type: ignore[arg-type]
        assert body["generationConfig"]["thinkingConfig"] == {"thinkingBudget": budget}


@pytest.mark.parametrize(
    ("dialect", "message", "field"),
    [
        (ChatDialect(ChatCompat()), "Unrecognized request argument supplied: reasoning_effort", "reasoning_effort"),
        (ResponsesDialect(), "Unsupported parameter: 'reasoning.effort' is not supported", "reasoning"),
    ],
)
def test_a_server_that_knows_no_effort_is_asked_without(dialect: Dialect, message: str, field: str) -> None:
    assert dialect.refused_field(message) == field


@respx.mock
async def test_extra_headers_go_out_and_are_hidden_in_errors() -> None:
    route = respx.post(f"{URL}/chat/completions")
    route.side_effect = [
        httpx.Response(
            200, headers={"content-type": "text/event-stream"}, content=stream(chunk({"content": "a"}, "stop"))
        ),
        httpx.Response(400, json={"error": {"message": "no team-secret-1 here"}}),
    ]
    http = ModelHttp(HttpPolicy(transport="httpx"))
    provider = HttpProvider("house", URL, "k", http, dialect=ChatDialect(ChatCompat()))
    request = replace(PLAIN, extra_headers={"x-team": "team-secret-1"})
    try:
        assert text_of(await collect(provider.stream(request))) == "a"
        with pytest.raises(Exception, match="HTTP 400") as caught:
            await collect(provider.stream(request))
    finally:
        await http.aclose()

    assert route.calls[0].request.headers["x-team"] == "team-secret-1"
    assert "team-secret-1" not in str(caught.value)
    assert "team-secret-1" not in repr(request)
