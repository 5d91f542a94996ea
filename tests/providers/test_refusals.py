"""Optional fields that a server refuses: found by its words, left out once and for all, and nothing else is."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from app.domain.errors import ProviderError
from app.domain.messages import Message
from app.domain.tools import ToolSpec
from app.providers.base import Finish, ModelRequest, TextPiece
from app.providers.calls import HttpPolicy
from app.providers.compat import ChatCompat
from app.providers.dialect import Dialect
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider
from app.providers.refusals import refused_fields, without
from tests.providers import anthropic_wire, gemini_wire
from tests.providers.reading import chunk, collect, stream, text_of, tool_delta

CHAT, RESPONSES, ANTHROPIC, GEMINI = ChatDialect(ChatCompat()), ResponsesDialect(), AnthropicDialect(), GeminiDialect()
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
PLAIN = ModelRequest("m", (Message("user", "hi"),), temperature=0.1, max_tokens=100)
URL = "https://models.example.org"


@pytest.mark.parametrize(
    ("dialect", "message", "fields"),
    [
        (CHAT, "Unrecognized request argument supplied: stream_options", ("stream_options",)),
        (CHAT, "extra fields: include_usage", ("stream_options",)),
        (CHAT, "Unrecognized request argument supplied: reasoning_effort", ("reasoning_effort",)),
        (CHAT, "Unsupported value: 'temperature' does not support 0.3 with this model.", ("temperature",)),
        (CHAT, "Unsupported parameter: 'temperature' is not supported with this model.", ("temperature",)),
        (CHAT, "temperature must be between 0 and 2", ()),
        (CHAT, "no such model", ()),
        (CHAT, "model m is not supported", ()),
        (RESPONSES, "Encrypted content: 'reasoning.encrypted_content' is not supported", ("include",)),
        (RESPONSES, "Unsupported parameter: 'reasoning.effort' is not supported", ("reasoning",)),
        (RESPONSES, "Unsupported value: 'minimal' is not supported (reasoning.effort)", ("reasoning",)),
        (RESPONSES, "Unsupported parameter: 'top_p' is not supported with this model.", ("top_p",)),
        (ANTHROPIC, "`temperature` is deprecated for this model.", ("temperature",)),
        (ANTHROPIC, "`temperature` and `top_p` cannot both be specified for this model.", ("top_p",)),
        (ANTHROPIC, "This model does not support the effort parameter.", ("output_config.effort",)),
        (ANTHROPIC, "output_config.effort: Extra inputs are not permitted", ("output_config.effort",)),
        (
            ANTHROPIC,
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" instead.',
            ("thinking",),
        ),
        (ANTHROPIC, "Thinking may not be enabled when tool_choice forces tool use.", ()),
        (ANTHROPIC, "output_config.format: no such field", ("output_config.format",)),
        (
            ANTHROPIC,
            "tools.0.custom.eager_input_streaming: Extra inputs are not permitted",
            ("tools.eager_input_streaming",),
        ),
        (RESPONSES, "Unknown parameter: 'prompt_cache_key'.", ("prompt_cache_key",)),
        (GEMINI, "Thinking level MEDIUM is not supported for this model.", ("generationConfig.thinkingConfig",)),
        (GEMINI, "thinking_config is not supported.", ("generationConfig.thinkingConfig",)),
        (
            GEMINI,
            "Function calling with a response mime type: 'application/json' is unsupported",
            ("generationConfig.responseMimeType", "generationConfig.responseJsonSchema"),
        ),
    ],
)
def test_the_fields_that_a_refusal_is_about_are_found(dialect: Dialect, message: str, fields: tuple[str, ...]) -> None:
    assert refused_fields(dialect.refusals, message) == fields


def test_a_field_is_taken_out_at_any_depth_and_nothing_that_was_given_changes() -> None:
    body = {"a": {"b": 1, "c": 2}, "d": {"e": 1}}

    assert without(without(body, "a.b"), "d.e") == {"a": {"c": 2}}
    tools: dict[str, list[dict[str, Any]]] = {"tools": [{"name": "f", "eager": True}, {"name": "g"}]}
    assert without(tools, "tools.eager") == {"tools": [{"name": "f"}, {"name": "g"}]}
    assert tools["tools"][0]["eager"]
    assert without(body, "a.x") == without(body, "x") == body == {"a": {"b": 1, "c": 2}, "d": {"e": 1}}


class Server:
    """A server that refuses once, or twice, and the bodies that it was sent."""

    def __init__(
        self, router: respx.MockRouter, dialect: Dialect, refusal: Any, answer: bytes, then: Any = None
    ) -> None:
        refusals = [refusal] if then is None else [refusal, then]
        events = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=answer)
        self._route = router.post(url__startswith=URL).mock(
            side_effect=[*(httpx.Response(400, json=each) for each in refusals), *[events] * 3]
        )
        self._http = ModelHttp(HttpPolicy(transport="httpx"))
        self.provider = HttpProvider("house", URL, "k", self._http, dialect=dialect)

    async def ask(self, request: ModelRequest) -> str:
        return text_of(await collect(self.provider.stream(request)))

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(call.request.content) for call in self._route.calls]

    async def aclose(self) -> None:
        await self._http.aclose()


CHAT_ANSWER = stream(chunk({"content": "a"}, "stop"))


async def test_a_model_is_never_asked_again_with_what_it_refused_and_others_are(respx_mock: respx.MockRouter) -> None:
    refusal = {"error": {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}}
    server = Server(respx_mock, CHAT, refusal, CHAT_ANSWER)

    said = [await server.ask(replace(PLAIN, model=model)) for model in ("one", "one", "two")]
    await server.aclose()

    assert said == ["a", "a", "a"]
    assert [(body["model"], "temperature" in body) for body in server.bodies] == [
        ("one", True),
        ("one", False),
        ("one", False),
        ("two", True),
    ]


async def test_claude_is_asked_again_without_its_effort_and_keeps_the_form(respx_mock: respx.MockRouter) -> None:
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": "effort is not supported here"}}
    answer = anthropic_wire.wire(
        anthropic_wire.start(), anthropic_wire.delta(0, "text_delta", text="a"), anthropic_wire.ending("end_turn")
    )
    server = Server(respx_mock, ANTHROPIC, refusal, answer)

    assert await server.ask(replace(PLAIN, reasoning_effort="low", response_format=SCHEMA)) == "a"
    await server.aclose()

    assert [sorted(body["output_config"]) for body in server.bodies] == [["effort", "format"], ["format"]]


async def test_gemini_is_asked_again_without_a_level_that_it_does_not_know(respx_mock: respx.MockRouter) -> None:
    refusal = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Thinking level LOW is not supported"}}
    answer = stream(gemini_wire.part({"text": "a"}), gemini_wire.part(finish="STOP"), done=False)
    server = Server(respx_mock, GEMINI, refusal, answer)

    assert await server.ask(replace(PLAIN, model="gemini-3-x", reasoning_effort="low")) == "a"
    await server.aclose()

    assert ["thinkingConfig" in body["generationConfig"] for body in server.bodies] == [True, False]
    assert server.bodies[1]["generationConfig"]["maxOutputTokens"] == 100


@pytest.mark.parametrize("optional", [True, False])
async def test_the_form_of_an_answer_is_left_out_only_where_the_request_can_do_without(
    respx_mock: respx.MockRouter, *, optional: bool
) -> None:
    server = Server(respx_mock, CHAT, {"error": {"message": "response_format is not supported"}}, CHAT_ANSWER)
    request = replace(PLAIN, response_format=SCHEMA, format_is_optional=optional)

    if optional:
        assert [await server.ask(request), await server.ask(request)] == ["a", "a"]
        assert ["response_format" in body for body in server.bodies] == [True, False, True]
    else:
        with pytest.raises(ProviderError, match="response_format is not supported"):
            await server.ask(request)
    await server.aclose()


VALUE = {"type": "json_schema", "json_schema": {"name": "n", "description": "A city.", "schema": {"type": "object"}}}
NO_FORM = {"error": {"message": "response_format is not supported"}}


async def answered(server: Server, request: ModelRequest) -> tuple[str, Finish]:
    """Ask, and give the text and how the answer ended; whoever reads it sees no call."""
    events = await collect(server.provider.stream(request))
    assert {type(event) for event in events} <= {TextPiece, Finish}
    assert isinstance(events[-1], Finish)
    return text_of(events), events[-1]


async def test_a_server_without_schemas_is_asked_for_a_call_whose_arguments_are_the_reply(
    respx_mock: respx.MockRouter,
) -> None:
    answer = stream(
        chunk({"content": "Gladly."}),
        tool_delta(index=0, id="a", name="give_reply", arguments='{"city": "Kö'),
        tool_delta(index=0, arguments='ln"}'),
        tool_delta(index=1, id="b", name="give_reply", arguments="{}"),
        chunk({}, "tool_calls"),
    )
    server = Server(respx_mock, CHAT, NO_FORM, answer)

    text, finish = await answered(server, replace(PLAIN, response_format=VALUE, format_is_optional=True))
    await server.aclose()

    assert (text, finish.reason, finish.form) == ('{"city": "Köln"}', "stop", "forced_tool")
    body = server.bodies[1]
    assert ("response_format" in body, body["tool_choice"]) == (False, "required")
    assert body["tools"][0]["function"] == {
        "name": "give_reply",
        "description": "A city.",
        "parameters": {"type": "object"},
    }


async def test_what_a_model_says_is_its_reply_where_it_makes_no_call_all_the_same(respx_mock: respx.MockRouter) -> None:
    server = Server(respx_mock, CHAT, NO_FORM, CHAT_ANSWER)

    text, finish = await answered(server, replace(PLAIN, response_format=VALUE, format_is_optional=True))
    await server.aclose()

    assert (text, finish.reason, finish.form) == ("a", "stop", "forced_tool")


async def test_a_server_without_tools_either_is_asked_in_words(respx_mock: respx.MockRouter) -> None:
    no_tools = {"error": {"message": "m does not support tools"}}
    server = Server(respx_mock, CHAT, NO_FORM, CHAT_ANSWER, then=no_tools)

    text, finish = await answered(server, replace(PLAIN, response_format=VALUE, format_is_optional=True))
    await server.aclose()

    assert (text, finish.form) == ("a", "prompt_only")
    assert [sorted({"response_format", "tools"} & body.keys()) for body in server.bodies] == [
        ["response_format"], ["tools"], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "tools"),
    [({"type": "array"}, ()), ({}, ()), ({"type": "object"}, (ToolSpec("f", "does"),))],
    ids=["a list", "anything", "tools of its own"],
)
async def test_a_value_that_can_not_be_arguments_and_a_model_with_tools_are_asked_in_words(
    respx_mock: respx.MockRouter, schema: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> None:
    server = Server(respx_mock, CHAT, NO_FORM, CHAT_ANSWER)
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    request = replace(PLAIN, response_format=wanted, format_is_optional=True, tools=tools)

    text, finish = await answered(server, request)
    await server.aclose()

    assert (text, finish.form, len(server.bodies[1].get("tools", ()))) == ("a", "prompt_only", len(tools))


async def test_a_value_out_of_bounds_is_told_and_not_asked_again(respx_mock: respx.MockRouter) -> None:
    server = Server(respx_mock, CHAT, {"error": {"message": "temperature must be at most 2"}}, CHAT_ANSWER)

    with pytest.raises(ProviderError, match="temperature must be at most 2"):
        await server.ask(PLAIN)
    await server.aclose()

    assert len(server.bodies) == 1
