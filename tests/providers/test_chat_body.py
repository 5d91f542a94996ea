"""The body of a Chat Completions request: messages, parts, tools, options, quirks."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolSpec
from app.providers.base import ModelRequest
from app.providers.compat import PRESETS, ChatCompat, compat_for
from app.providers.dialects.chat.body import call_id, chat_body
from app.providers.dialects.responses.body import responses_body
from tests.oracle import check_request

ROUND = (
    Message("system", "be kind"),
    Message("user", "weather?"),
    Message("assistant", tool_calls=(ToolCall("a", "get_weather", {"city": "Köln", "days": 2}), ToolCall("b", "f"))),
    Message("tool", "mild", tool_call_id="a", name="get_weather"),
    Message("tool", '{"code":"X","message":"no"}', tool_call_id="b", is_error=True),
    Message("assistant", "It is mild."),
)
PLAIN = ModelRequest("m-1", (Message("user", "hi"),))
WEATHER = ToolSpec("get_weather", "tells the weather", {"type": "object", "properties": {"city": {"type": "string"}}})


def messages_of(*messages: Message, compat: ChatCompat | None = None) -> Any:
    return chat_body(ModelRequest("m", messages), compat or ChatCompat())["messages"]


def test_a_plain_request_sends_nothing_that_was_not_set() -> None:
    assert chat_body(PLAIN, ChatCompat()) == {
        "model": "m-1",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_tool_round_is_sent_as_the_dialect_wants_it() -> None:
    sent = messages_of(*ROUND)

    assert sent[2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Köln","days":2}'},
                },
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "mild"},
        {"role": "tool", "tool_call_id": "b", "content": '{"code":"X","message":"no"}'},
        {"role": "assistant", "content": "It is mild."},
    ]
    assert check_request(sent) == []


def test_a_summary_is_told_as_a_system_message() -> None:
    assert messages_of(Message("summary", "before"), Message("user", "hi"))[0] == {
        "role": "system",
        "content": "before",
    }


def test_messages_that_say_nothing_to_a_model_are_left_out() -> None:
    sent = messages_of(
        Message("user", "hi"),
        Message("assistant", ""),
        Message("error", "x"),
        Message("thought", "y"),
        Message("user", "on"),
    )

    assert sent == [{"role": "user", "content": "hi"}, {"role": "user", "content": "on"}]


def test_parts_become_the_parts_of_the_dialect() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "url": "https://example.org/a.png", "detail": "low"},
        {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
        {"type": "image", "data": "AAAA", "mime_type": "image/jpeg"},
        {"type": "audio", "data": "BBBB", "mime_type": "audio/mpeg"},
        {"type": "unheard_of"},
    ]

    assert messages_of(Message("user", parts))[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}},
    ]


def test_the_text_of_an_invalid_call_is_never_sent() -> None:
    sent = messages_of(Message("user", "x"), Message("assistant", tool_calls=(ToolCall("a", "f", invalid='{"x'),)))

    assert sent[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_options_are_sent_when_they_are_set() -> None:
    request = replace(
        PLAIN,
        temperature=0.0,
        top_p=0.5,
        max_tokens=7,
        user="u",
        response_format={"type": "json_object"},
        extra_body={"seed": 1, "stream": False, "messages": []},
    )

    body = chat_body(request, ChatCompat())

    assert {name: body[name] for name in body.keys() - {"model", "messages", "stream_options"}} == {
        "stream": True,
        "temperature": 0.0,
        "top_p": 0.5,
        "max_tokens": 7,
        "user": "u",
        "response_format": {"type": "json_object"},
        "seed": 1,
    }
    assert body["messages"] == [{"role": "user", "content": "hi"}]


def test_tools_are_sent_with_their_schema_and_a_choice_only_when_it_says_something() -> None:
    body = chat_body(replace(PLAIN, tools=(WEATHER,)), ChatCompat())

    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "tells the weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
    assert "tool_choice" not in body
    assert chat_body(replace(PLAIN, tools=(WEATHER,), tool_choice="none"), ChatCompat())["tool_choice"] == "none"
    assert "tool_choice" not in chat_body(replace(PLAIN, tool_choice="required"), ChatCompat())


def test_a_server_without_tool_choice_gets_no_tools_when_none_may_be_called() -> None:
    body = chat_body(replace(PLAIN, tools=(WEATHER,), tool_choice="none"), PRESETS["ollama"])

    assert not body.keys() & {"tools", "tool_choice"}


def test_quirks_change_the_names_of_fields() -> None:
    request = replace(PLAIN, max_tokens=7, user="u", messages=(Message("system", "s"), *PLAIN.messages))

    body = chat_body(request, ChatCompat(False, "max_completion_tokens", "developer", user_field=False))

    assert body == {
        "model": "m-1",
        "messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "max_completion_tokens": 7,
    }


def test_mistral_gets_ids_of_nine_letters_and_digits_that_agree() -> None:
    sent = messages_of(*ROUND, compat=PRESETS["mistral"])
    ids = [call["id"] for call in sent[2]["tool_calls"]]

    assert all(len(name) == 9 and name.isalnum() for name in ids)
    assert len(set(ids)) == 2
    assert [message["tool_call_id"] for message in sent[3:5]] == ids
    assert sent[2]["content"] == ""
    assert call_id("abcDEF123", PRESETS["mistral"]) == "abcDEF123"


def test_reasoning_goes_back_in_tool_rounds_where_the_server_wants_it() -> None:
    thought = {"reasoning": [{"text": "hm, "}, {"text": "rain"}]}
    messages = (
        Message("user", "x"),
        Message("assistant", tool_calls=(ToolCall("a", "f"),), metadata=thought),
        Message("tool", "y", tool_call_id="a"),
        Message("assistant", "done", metadata=thought),
    )

    sent = messages_of(*messages, compat=PRESETS["deepseek"])

    assert sent[1]["reasoning_content"] == "hm, rain"
    assert "reasoning_content" not in sent[3]
    assert "reasoning_content" not in messages_of(*messages)[1]


def test_signatures_of_calls_go_back_where_the_server_wants_them() -> None:
    made = ToolCall("a", "f", extra={"extra_content": {"google": {"thought_signature": "abc"}}})
    messages = (Message("user", "x"), Message("assistant", tool_calls=(made,)))

    assert "extra_content" in messages_of(*messages, compat=PRESETS["gemini"])[1]["tool_calls"][0]
    assert "extra_content" not in messages_of(*messages)[1]["tool_calls"][0]


@pytest.mark.parametrize(
    ("url", "preset"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://me.openai.azure.com/openai/v1", "azure"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://localhost:8000/v1", "generic"),
        ("https://notapi.openai.com.example.org/v1", "generic"),
    ],
)
def test_quirks_are_guessed_from_the_address(url: str, preset: str) -> None:
    assert compat_for(url) is PRESETS[preset]


def test_a_cache_key_is_sent_where_the_server_knows_it() -> None:
    request = ModelRequest("m", (Message("user", "hi"),), cache_key="c1")

    assert chat_body(request, PRESETS["openai"])["prompt_cache_key"] == "c1"
    assert "prompt_cache_key" not in chat_body(request, PRESETS["generic"])
    assert responses_body(request)["prompt_cache_key"] == "c1"
