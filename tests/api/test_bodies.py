"""Bad input: each kind is refused with a status, a code and a sentence, and nothing behind the door hears of it."""

import json
from typing import Any

import pytest

from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolResult, ToolSpec
from app.domain.turn import Caller, ResultsInput, TurnInput, TurnOptions
from app.domain.views import Cursor
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of

JSON = {"Content-Type": "application/json"}
TURNS = "/v1/conversations/chat-1/turns"
RESULTS = "/v1/streams/st_1/tool-results"
RESULT = {"tool_call_id": "call_1", "output": 21}


async def post(
    runtime: FakeRuntime, path: str, body: Any = None, content: bytes | None = None
) -> tuple[int, dict[str, Any]]:
    async with client_of(application(runtime, max_body_bytes=4096), Accept="application/json") as client:
        if content is None:
            response = await client.post(path, json=body)
        else:
            response = await client.post(path, content=content, headers=JSON)
    return response.status_code, response.json()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"{nope", "line 1, column 2"),
        (b"hello", "not JSON"),
        (b'{"input": "a",}', "not JSON"),
        (b'{"input": "\xff"}', "not UTF-8 (byte 11"),
        (b'{"input": "a", "user_context": {"x": NaN}}', "NaN"),
        (b'{"input": "a", "user_context": {"x": -Infinity}}', "-Infinity"),
        (b'{"input": "a", "user_context": {"x": 1e999}}', "too large"),
        (b'{"input": "a", "user_context": {"x": ' + b"9" * 4000 + b"e" + b"9" * 20 + b"}}", "too large"),
    ],
)
async def test_a_body_that_is_not_json_is_a_400(content: bytes, words: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(TURNS, content=content, headers=JSON)

    assert response.status_code == 400
    assert response.json()["code"] == "SYS_PARSING_ERROR"
    assert words in response.json()["detail"]
    assert runtime.asked == []


async def test_a_number_of_thousands_of_digits_is_a_400(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(
            TURNS, content=b'{"input": "a", "user_context": {"x": ' + b"9" * 5000 + b"}}", headers=JSON
        )

    assert response.status_code == 400
    assert "too many digits" in response.json()["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_does_not_call_itself_json_is_a_400(content_type: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(TURNS, content=b'{"input": "a"}', headers={"Content-Type": content_type})

    assert response.status_code == 400
    assert "Content-Type: application/json" in response.json()["detail"]
    assert runtime.asked == []


@pytest.mark.parametrize("depth", [129, 2_000, 100_000])
async def test_a_body_that_nests_too_deep_is_a_422(depth: int, runtime: FakeRuntime) -> None:
    content = b'{"input": "a", "user_context": {"x": ' + b"[" * depth + b"]" * depth + b"}}"
    async with client_of(application(runtime)) as client:
        response = await client.post(TURNS, content=content, headers=JSON)

    assert response.status_code == 422
    assert "nests deeper than 128" in response.json()["detail"]


async def test_a_body_may_nest_as_deep_as_real_ones_do(runtime: FakeRuntime) -> None:
    depth = 120
    content = b'{"input": "a", "user_context": {"x": ' + b"[" * depth + b"]" * depth + b"}}"
    status, _ = await post(runtime, "/v1/turns", content=content)

    assert status == 200


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ([], "body", "dictionary"),
        ("text", "body", "dictionary"),
        ({}, "input", "missing"),
        ({"input": None}, "input", "string"),
        ({"input": 5}, "input", "string"),
        ({"input": ""}, "input", "blank"),
        ({"input": "  \n"}, "input", "blank"),
        ({"input": []}, "input", "at least 1"),
        ({"input": [{"type": "text", "text": " "}]}, "input[0].text", "blank"),
        ({"input": [{"type": "text"}]}, "input[0].text", "missing"),
        ({"input": [{"type": "video", "url": "x"}]}, "input[0]", "must be one of"),
        ({"input": [{"text": "x"}]}, "input[0]", "type is missing"),
        ({"input": [{"type": "image", "data": "%%%"}]}, "input[0].data", "base64"),
        ({"input": [{"type": "image_url", "url": "file:///etc/passwd"}]}, "input[0].url", "pattern"),
        ({"input": "a", "colour": "red"}, "colour", "not known here"),
        ({"input": "a", "options": {"temprature": 1}}, "options.temprature", "not known here"),
        ({"input": "a", "options": {"temperature": "hot"}}, "options.temperature", "valid number"),
        ({"input": "a", "options": {"temperature": 3}}, "options.temperature", "less than or equal to 2"),
        ({"input": "a", "options": {"max_tokens": True}}, "options.max_tokens", "integer"),
        ({"input": "a", "options": {"model": "gpt"}}, "options.model", "pattern"),
        ({"input": "a", "options": {"model": "gpt 5", "provider": "openai"}}, "options.model", "pattern"),
        ({"input": "a", "options": {"provider": "openai"}}, "options.model", "name the model"),
        ({"input": "a", "options": {"provider": "open:ai", "model": "a:b"}}, "options.provider", "pattern"),
        ({"input": "a", "user_id": "  "}, "user_id", "blank"),
        ({"input": "a", "user_id": 7}, "user_id", "string"),
        ({"input": "a", "on_pause": "ignore"}, "on_pause", "'end' or 'reject'"),
        ({"input": "a", "on_busy": "queue"}, "on_busy", "'rollback'"),
        ({"input": "a", "pause_ttl_seconds": 0}, "pause_ttl_seconds", "greater than 0"),
        ({"input": "a", "on_expiry": "forget"}, "on_expiry", "'close' or 'continue'"),
        ({"input": "a", "tools": {}}, "tools", "list"),
        ({"input": "a", "tools": [{"name": "has space"}]}, "tools[0].name", "pattern"),
        ({"input": "a", "tools": [{"name": "n" * 65}]}, "tools[0].name", "pattern"),
        ({"input": "a", "tools": [{"name": "a"}, {"name": "a"}]}, "tools", "may come once"),
        (
            {"input": "a", "tools": [{"name": "a", "input_schema": {"type": "string"}}]},
            "tools[0].input_schema",
            "object",
        ),
        ({"input": "a", "provider_api_keys": {"openai": ""}}, "provider_api_keys.openai", "blank"),
    ],
)
async def test_a_turn_that_is_not_valid_is_a_422_that_names_the_field(
    body: Any, field: str, words: str, runtime: FakeRuntime
) -> None:
    status, problem = await post(runtime, TURNS, body)

    assert status == 422
    assert problem["code"] == "SYS_VALIDATION_ERROR"
    assert problem["errors"][0]["field"] == field
    assert words in problem["errors"][0]["message"]
    assert runtime.asked == []


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"results": []}, "results", "at least 1"),
        ({"results": [RESULT, RESULT]}, "results", "may come once"),
        ({"results": [{"tool_call_id": "call_1"}]}, "results[0]", "output is missing"),
        ({"results": [{"output": 1}]}, "results[0].tool_call_id", "missing"),
        ({"results": [{**RESULT, "error_message": "x"}]}, "results[0]", "is_error: true"),
        ({"results": [{**RESULT, "is_error": "yes"}]}, "results[0].is_error", "boolean"),
        ({"results": [{**RESULT, "colour": 1}]}, "results[0].colour", "not known here"),
        ({"results": RESULT}, "results", "list"),
        ({"results": [RESULT], "pause_id": ""}, "pause_id", "at least 1"),
    ],
)
async def test_results_that_are_not_valid_are_a_422_that_names_the_field(
    body: Any, field: str, words: str, runtime: FakeRuntime
) -> None:
    status, problem = await post(runtime, RESULTS, body)

    assert status == 422
    assert problem["errors"][0]["field"] == field
    assert words in problem["errors"][0]["message"]
    assert runtime.asked == []


async def test_a_resume_must_name_its_pause(runtime: FakeRuntime) -> None:
    status, problem = await post(runtime, "/v1/conversations/chat-1/resume", {"results": [RESULT]})

    assert status == 422
    assert problem["errors"] == [{"field": "pause_id", "message": "this field is missing; add it."}]


@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "a" * 129, "a%00b"])
async def test_a_conversation_id_of_other_characters_never_gets_in(name: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(f"/v1/conversations/{name}/turns", json={"input": "a"})

    assert response.status_code in {404, 422}
    assert runtime.asked == []


async def test_keys_of_providers_appear_in_no_refusal(runtime: FakeRuntime) -> None:
    _, problem = await post(runtime, TURNS, {"input": 5, "provider_api_keys": {"openai": "sk-secret", "x": 1}})

    assert "sk-secret" not in json.dumps(problem)


async def test_text_that_can_not_be_stored_is_replaced_and_told_of(runtime: FakeRuntime) -> None:
    content = rb'{"input": "a\u0000b\ud800c\ud83d\ude00 \\u0416", "user_context": {"k\u0000": "v"}}'
    async with client_of(application(runtime)) as client:
        response = await client.post(TURNS, content=content, headers=JSON)

    (turn,) = (asked for asked in runtime.asked if isinstance(asked, TurnInput))
    assert turn.input == "a\ufffdb\ufffdc\U0001f600 \\u0416"
    assert turn.user_context == {"k\ufffd": "v"}
    assert response.headers["X-Text-Replaced"] == "true"


async def test_text_that_can_be_stored_is_passed_on_as_it_is(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(TURNS, json={"input": " \u0416 \U0001f600\r\n"})

    assert runtime.asked[0].input == " \u0416 \U0001f600\r\n"
    assert "X-Text-Replaced" not in response.headers


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({"provider": "openai", "model": "gpt-4o"}, "openai:gpt-4o"),
        ({"provider": "openai", "model": "openai:gpt-4o"}, "openai:gpt-4o"),
        ({"provider": "ollama", "model": "llama3:8b"}, "ollama:llama3:8b"),
        ({"provider": None, "model": "ollama:llama3:8b"}, "ollama:llama3:8b"),
        ({}, None),
    ],
)
async def test_a_model_may_be_named_with_its_provider_beside_it(
    options: dict[str, Any], model: str | None, runtime: FakeRuntime
) -> None:
    await post(runtime, TURNS, {"input": "look", "options": options})
    assert runtime.asked[0].options == TurnOptions(model=model)


async def test_a_turn_reaches_the_facade_as_it_was_sent(runtime: FakeRuntime) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = {
        "input": [{"type": "text", "text": "look"}, {"type": "image_url", "url": "https://a.example/i.png"}],
        "user_id": "ada",
        "organization_id": "acme",
        "session_id": "s",
        "persona_id": "demo",
        "tools": [{"name": "get_weather", "description": "d", "input_schema": schema}],
        "options": {"model": "openai:m", "temperature": 1, "max_tool_iterations": 3, "custom_flags": {"mode": "x"}},
        "user_context": {"level": 1},
        "language_hint": "de",
        "target_language": "en",
        "provider_api_keys": {"openai": "k"},
        "on_pause": "reject",
        "on_busy": "wait",
        "pause_ttl_seconds": 60,
        "on_expiry": "continue",
    }
    await post(runtime, TURNS, body)

    assert runtime.asked[0] == TurnInput(
        caller=Caller("ada", "acme"),
        conversation_id="chat-1",
        session_id="s",
        input=[{"type": "text", "text": "look"}, {"type": "image_url", "url": "https://a.example/i.png"}],
        persona_id="demo",
        tools=(ToolSpec("get_weather", "d", schema),),
        options=TurnOptions(model="openai:m", temperature=1, max_tool_iterations=3, custom_flags={"mode": "x"}),
        user_context={"level": 1},
        language_hint="de",
        target_language="en",
        provider_api_keys={"openai": "k"},
        on_pause="reject",
        on_busy="wait",
        pause_ttl_seconds=60,
        on_expiry="continue",
    )


async def test_the_session_is_the_conversation_when_none_is_named(runtime: FakeRuntime) -> None:
    await post(runtime, TURNS, {"input": "a"})

    assert runtime.asked[0].session_id == "chat-1"


async def test_a_turn_without_a_conversation_gets_a_fresh_one(runtime: FakeRuntime) -> None:
    await post(runtime, "/v1/turns", {"input": "a"})
    await post(runtime, "/v1/turns", {"input": "a"})

    names = [asked.conversation_id for asked in runtime.asked if isinstance(asked, TurnInput)]
    assert len(set(names)) == 2


async def test_results_reach_the_facade_as_they_were_sent(runtime: FakeRuntime) -> None:
    results = [
        {"tool_call_id": "c1", "tool_name": "t", "output": {"n": 2**70, "f": 0.1}},
        {"tool_call_id": "c2", "output": None},
        {"tool_call_id": "c3", "is_error": True, "error_message": "no net"},
        {"tool_call_id": "c4", "is_error": True},
    ]
    await post(runtime, RESULTS, {"results": results, "pause_id": "p"})

    assert runtime.asked[0] == ResultsInput(
        caller=Caller("local"),
        results=(
            ToolResult("c1", "t", {"n": 2**70, "f": 0.1}),
            ToolResult("c2", "", None),
            ToolResult("c3", "", None, True, {"code": "EXTERNAL_TOOL_ERROR", "message": "no net"}),
            ToolResult("c4", "", None, True),
        ),
        stream_id="st_1",
        pause_id="p",
    )


async def test_results_that_do_not_complete_the_set_are_answered_with_what_is_missing(runtime: FakeRuntime) -> None:
    status, answer = await post(runtime, RESULTS, {"results": [RESULT], "partial": True})

    assert status == 200
    assert answer == {"pause_id": "pause_1", "received": ["call_1"], "missing": ["call_2"]}
    assert runtime.asked[0].partial is True


@pytest.mark.parametrize("path", [TURNS, "/v1/turns", RESULTS, "/v1/conversations/chat-1/resume"])
async def test_an_idempotency_key_reaches_the_facade(path: str, runtime: FakeRuntime) -> None:
    body = {"input": "a"} if path.endswith("turns") else {"results": [RESULT], "pause_id": "p"}
    async with client_of(application(runtime)) as client:
        response = await client.post(path, json=body, headers={"Idempotency-Key": "k-1", "Last-Event-ID": "7-1"})

    assert response.status_code == 200
    assert runtime.asked[0].idempotency_key == "k-1"
    assert runtime.asked[1][1] == Cursor(7, 1)


async def test_a_turn_that_a_key_had_started_before_says_so(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        first = await client.post("/v1/turns", json={"input": "a"}, headers={"Idempotency-Key": "k"})
        runtime.replayed = True
        second = await client.post("/v1/turns", json={"input": "a"}, headers={"Idempotency-Key": "k"})

    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert first.headers["X-Conversation-Id"] == second.headers["X-Conversation-Id"]


@pytest.mark.parametrize("headers", [{"Idempotency-Key": " "}, {"Idempotency-Key": "k" * 256}, {"Last-Event-ID": "x"}])
async def test_a_bad_header_is_a_400(headers: dict[str, str], runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/turns", json={"input": "a"}, headers=headers)

    assert response.status_code == 400
    assert response.json()["code"] == "SYS_PARSING_ERROR"
    assert runtime.asked == []


async def test_a_conversation_can_begin_with_messages(runtime: FakeRuntime) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "t", "arguments": {"a": 1}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    status, _ = await post(runtime, "/v1/conversations", {"conversation_id": "x", "messages": messages})

    assert status == 201
    assert runtime.asked[0][5] == (
        Message("user", "hi"),
        Message("assistant", None, (ToolCall("c1", "t", {"a": 1}),)),
        Message("tool", "ok", tool_call_id="c1"),
    )


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "tool_calls": [{"id": "c1", "name": "t"}]}],
        [{"role": "assistant", "tool_calls": [{"id": "c1", "name": "t"}]}, {"role": "user", "content": "x"}],
        [{"role": "tool", "tool_call_id": "c1", "content": "x"}],
        [{"role": "tool", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": "x", "tool_calls": [{"id": "c1", "name": "t"}]}],
        [{"role": "summary", "content": "x"}],
    ],
)
async def test_messages_that_no_model_would_take_are_refused(messages: list[Any], runtime: FakeRuntime) -> None:
    status, problem = await post(runtime, "/v1/conversations", {"messages": messages})

    assert status == 422
    assert problem["errors"][0]["field"].startswith("messages")


async def test_a_change_that_changes_nothing_is_refused(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.patch("/v1/conversations/chat-1", json={"user_id": "ada"})

    assert response.status_code == 422
    assert "nothing to change" in response.json()["detail"]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "order=up"])
async def test_a_query_that_is_not_valid_is_a_422(query: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get(f"/v1/conversations/chat-1/messages?{query}")

    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == query.partition("=")[0]
