"""What a tool gave besides text, in each dialect: sent where the dialect takes it, else the model is told of it."""

import base64
from typing import Any

import pytest

from app.domain.messages import Message, ToolCall
from app.providers.base import ModelRequest
from app.providers.compat import PRESETS, ChatCompat
from app.providers.dialects.anthropic.body import AnthropicOptions, anthropic_body
from app.providers.dialects.chat.body import chat_body
from app.providers.dialects.gemini.body import gemini_body
from app.providers.dialects.responses.body import responses_body
from tests.oracle import check_request

PIXEL = base64.b64encode(b"a png").decode()
PAGE = base64.b64encode(b"a pdf").decode()
NOTE = base64.b64encode("Grüße".encode()).decode()
TEXT = {"type": "text", "text": "Two files."}
IMAGE = {"type": "image", "data": PIXEL, "mime_type": "image/png"}
LINK = {"type": "image_url", "url": "https://example.org/a.png"}
PDF = {"type": "file", "data": PAGE, "mime_type": "application/pdf", "name": "a.pdf"}
PLAIN = {"type": "file", "data": NOTE, "mime_type": "text/plain", "name": "note.txt"}
ZIP = {"type": "file", "data": PAGE, "mime_type": "application/zip", "name": "a.zip"}
SOUND = {"type": "audio", "data": PIXEL, "mime_type": "audio/wav"}
ALL = [TEXT, IMAGE, LINK, PDF, PLAIN, ZIP]
NO_ZIP = "[Here was a file a.zip (application/zip) that can't be shown to this model.]"
NO_IMAGE = "[Here was an image that can't be shown to this model.]"
NO_SOUND = "[Here was a sound that can't be shown to this model.]"


def request(*parts: dict[str, Any], model: str = "m", then: bool = False) -> ModelRequest:
    """Make a request that tells the result of two calls, the first of which gave the parts."""
    messages = [
        Message("user", "Look."),
        Message("assistant", tool_calls=(ToolCall("toolu_1", "look"), ToolCall("toolu_2", "look"))),
        Message("tool", list(parts), tool_call_id="toolu_1", name="look"),
        Message("tool", "nothing", tool_call_id="toolu_2", name="look"),
    ]
    if then:
        messages += [Message("assistant", "I see."), Message("user", "What?")]
    return ModelRequest(model, tuple(messages))


@pytest.mark.parametrize("then", [False, True])
def test_chat_tells_text_in_the_tools_message_and_shows_the_rest_behind_the_round(
    then: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    sent = chat_body(request(*ALL, then=then), ChatCompat())["messages"]

    elsewhere = "[This part of the result is in the next message.]"
    assert sent[2]["content"].split("\n") == [
        "Two files.", elsewhere, elsewhere, elsewhere, "note.txt:", "Grüße", NO_ZIP,
    ]  # fmt: skip
    assert sent[3] == {"role": "tool", "tool_call_id": "toolu_2", "content": "nothing"}
    assert sent[4] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Parts of the result of look:"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAGE}"}},
        ],
    }
    assert [message["role"] for message in sent[5:]] == (["assistant", "user"] if then else [])
    assert check_request(sent) == []


def test_chat_tells_a_server_that_takes_no_users_message_there_of_the_parts_alone() -> None:
    sent = chat_body(request(TEXT, IMAGE), PRESETS["mistral"])["messages"]

    assert sent[2]["content"] == f"Two files.\n{NO_IMAGE}"
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]


def test_parts_of_text_alone_are_text_in_every_dialect() -> None:
    one = request(TEXT, {"type": "text", "text": "And more."})
    said = "Two files.\nAnd more."
    assert chat_body(one, ChatCompat())["messages"][2]["content"] == said
    assert len(chat_body(one, ChatCompat())["messages"]) == 4
    assert anthropic_body(one, AnthropicOptions(cache=False))["messages"][2]["content"][0]["content"] == said
    assert responses_body(one)["input"][3]["output"] == said
    assert gemini_body(one)["contents"][2]["parts"][0]["functionResponse"]["response"] == {"result": said}


def test_anthropic_takes_images_and_documents_inside_the_result() -> None:
    results = anthropic_body(request(*ALL, SOUND), AnthropicOptions(cache=False))["messages"][2]["content"]

    assert [result["type"] for result in results] == ["tool_result", "tool_result"]
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PAGE}
    assert results[0]["content"] == [
        {"type": "text", "text": "Two files."},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": pdf, "title": "a.pdf"},
        {"type": "text", "text": "note.txt:\nGrüße"},
        {"type": "text", "text": NO_ZIP},
        {"type": "text", "text": NO_SOUND},
    ]
    assert results[1]["content"] == "nothing"


def test_responses_takes_images_and_files_inside_the_output() -> None:
    items = responses_body(request(*ALL, SOUND))["input"]

    assert items[3]["output"] == [
        {"type": "input_text", "text": "Two files."},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAGE}"},
        {"type": "input_text", "text": "note.txt:\nGrüße"},
        {"type": "input_text", "text": NO_ZIP},
        {"type": "input_text", "text": NO_SOUND},
    ]
    assert items[4]["output"] == "nothing"


def test_gemini_takes_what_comes_in_the_body_from_its_third_generation_on() -> None:
    (newer,) = [part["functionResponse"] for part in _gemini("gemini-3-pro")]
    assert newer["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"inlineData": {"mimeType": "application/pdf", "data": PAGE}},
    ]
    assert newer["response"]["result"].split("\n") == ["Two files.", NO_IMAGE, "note.txt:", "Grüße", NO_ZIP]

    (older,) = [part["functionResponse"] for part in _gemini("gemini-2.5-pro")]
    assert "parts" not in older
    no_pdf = "[Here was a file a.pdf (application/pdf) that can't be shown to this model.]"
    assert older["response"]["result"].split("\n") == [
        "Two files.", NO_IMAGE, NO_IMAGE, no_pdf, "note.txt:", "Grüße", NO_ZIP,
    ]  # fmt: skip


def _gemini(model: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = gemini_body(request(*ALL, model=model))["contents"][2]["parts"][:1]
    return parts


def test_files_that_a_user_sends_are_shown_in_every_dialect() -> None:
    asked = ModelRequest("gemini-3-pro", (Message("user", [PDF, PLAIN, ZIP]),))
    note = "note.txt:\nGrüße"
    assert [part["type"] for part in chat_body(asked, ChatCompat())["messages"][0]["content"]] == [
        "file",
        "text",
        "text",
    ]
    blocks = anthropic_body(asked, AnthropicOptions(cache=False))["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["document", "text", "text"]
    assert responses_body(asked)["input"][0]["content"][1] == {"type": "input_text", "text": note}
    assert gemini_body(asked)["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "application/pdf", "data": PAGE}},
        {"text": note},
        {"text": NO_ZIP},
    ]


def test_a_file_of_text_that_is_none_is_told_of() -> None:
    broken = {"type": "file", "data": base64.b64encode(b"\xff\xfe").decode(), "mime_type": "text/plain"}
    sent = chat_body(request(broken), ChatCompat())["messages"]
    assert sent[2]["content"] == "[Here was a file (text/plain) that can't be shown to this model.]"
