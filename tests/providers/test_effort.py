"""Reasoning effort in each dialect's words, and what is passed through as it is."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from app.domain.messages import Message
from app.providers.base import ModelRequest
from app.providers.calls import HttpPolicy
from app.providers.compat import ChatCompat
from app.providers.dialect import Dialect
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider
from tests.providers.reading import chunk, collect, stream, text_of

PLAIN = ModelRequest("m", (Message("user", "hi"),), temperature=0.5, max_tokens=100)
URL = "https://models.example.org/v1"


CASES: list[tuple[Dialect, str, Any]] = [
    (ChatDialect(ChatCompat()), "reasoning_effort", "low"),
    (ResponsesDialect(), "reasoning", {"effort": "low"}),
    (AnthropicDialect(), "output_config", {"effort": "low"}),
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
    old = replace(PLAIN, model="claude-opus-4-1")
    body: Any = AnthropicDialect().body(replace(old, reasoning_effort="high"))

    assert body["max_tokens"] == 100 + body["thinking"]["budget_tokens"]
    assert "temperature" not in body
    assert "thinking" not in AnthropicDialect().body(replace(old, reasoning_effort="none"))


@pytest.mark.parametrize(
    ("model", "takes_a_budget"),
    [
        ("claude-3-5-sonnet-20241022", True),
        ("claude-3-7-sonnet-latest", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-opus-4-1", True),
        ("claude-haiku-4-5-20251001", True),
        ("claude-opus-4-6", False),
        ("claude-opus-4-10-20270101", False),
        ("claude-sonnet-5", False),
        ("claude-fable-5", False),
    ],
)
def test_a_claude_is_told_a_budget_up_to_version_4_5_and_an_effort_later(model: str, *, takes_a_budget: bool) -> None:
    body: Any = AnthropicDialect().body(replace(PLAIN, model=model, reasoning_effort="medium"))

    budget = {"thinking": {"type": "enabled", "budget_tokens": 8192}}
    effort = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}
    told = {name: body[name] for name in ("thinking", "output_config") if name in body}
    assert told == (budget if takes_a_budget else effort)
    assert body["max_tokens"] == 100 + 8192


def test_a_claude_that_thinks_by_itself_is_told_not_to_and_keeps_the_form_of_its_answer() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    request = replace(PLAIN, model="claude-sonnet-5", response_format=schema)

    quiet: Any = AnthropicDialect().body(replace(request, reasoning_effort="none"))
    loud: Any = AnthropicDialect().body(replace(request, reasoning_effort="minimal"))

    assert (quiet["thinking"], quiet["max_tokens"]) == ({"type": "disabled"}, 100)
    assert loud["output_config"] == {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"}


@pytest.mark.parametrize("model", ["gemini-3-pro-preview", "gemini-3.8-flash", "gemini-10-pro", "gemini-flash-latest"])
def test_gemini_is_told_a_level_from_its_third_generation_on(model: str) -> None:
    for effort, level in (("none", "low"), ("minimal", "low"), ("medium", "medium"), ("high", "high")):
        body: Any = GeminiDialect().body(replace(PLAIN, model=model, reasoning_effort=effort))  # type: ignore[arg-type]
        assert body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": level}


def test_gemini_is_told_a_budget_before_that_and_zero_for_none() -> None:
    for effort, budget in (("none", 0), ("medium", 8192)):
        body: Any = GeminiDialect().body(replace(PLAIN, model="gemini-2.5-pro", reasoning_effort=effort))  # type: ignore[arg-type]
        assert body["generationConfig"]["thinkingConfig"] == {"thinkingBudget": budget}


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
