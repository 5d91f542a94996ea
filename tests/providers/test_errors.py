"""What a status, a body and an in-band error become, and that nothing secret gets into them."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from app.providers.errors import HIDDEN, MESSAGE_LIMIT, from_response, in_band, shown
from app.providers.retry_after import parse_retry_after


@pytest.mark.parametrize(
    ("status", "body", "reason", "retryable"),
    [
        (401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, "auth", False),
        (403, {"error": {"message": "no access to this model"}}, "auth", False),
        (402, {"error": {"message": "Insufficient credits"}}, "quota", False),
        (
            404,
            {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}},
            "invalid_request",
            False,
        ),
        (408, {}, "timeout", True),
        (409, {}, "server", True),
        (413, {"error": {"type": "request_too_large"}}, "invalid_request", False),
        (422, {"detail": "Field required"}, "invalid_request", False),
        (429, {"error": {"message": "Rate limit reached", "type": "rate_limit_error"}}, "rate_limited", True),
        (429, {"error": {"type": "insufficient_quota", "message": "You exceeded your current quota"}}, "quota", False),
        (429, {"error": {"message": "billing hard limit has been reached"}}, "quota", False),
        (500, {"error": {"message": "oops"}}, "server", True),
        (502, "<html>Bad gateway</html>", "server", True),
        (503, {"error": {"message": "model is loading"}}, "overloaded", True),
        (504, "", "timeout", True),
        (520, "", "server", True),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", True),
        (
            400,
            {"error": {"code": "context_length_exceeded", "message": "maximum context length"}},
            "context_length",
            False,
        ),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000"}}, "context_length", False),
        (400, {"error": {"code": "content_filter", "message": "filtered"}}, "content_filter", False),
        (400, {"error": {"message": "API key not valid. Please pass a valid API key."}}, "auth", False),
        (400, {"error": {"message": "messages.1: tool_use ids without tool_result"}}, "invalid_request", False),
        (400, {"object": "error", "message": "bad things", "code": 40001}, "invalid_request", False),
        (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "no"}}], "invalid_request", False),
        (400, {"error": "just text"}, "invalid_request", False),
        (302, "", "protocol", False),
    ],
)
def test_a_refused_request_gets_its_reason(status: int, body: Any, reason: str, *, retryable: bool) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    error = from_response("openai", status, {}, content)

    assert (error.reason, error.retryable, error.status) == (reason, retryable, status)
    assert "<html>" not in error.message
    assert error.details == {"reason": reason, "provider": "openai", "status": status}


@pytest.mark.parametrize(
    ("document", "reason", "retryable"),
    [
        ({"error": {}}, "server", True),
        ({"error": "something"}, "server", True),
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", True),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, "rate_limited", True),
        ({"error": {"code": 429, "message": "upstream is busy"}}, "rate_limited", True),
        ({"error": {"code": "502", "message": "Provider returned error"}}, "server", True),
        ({"error": {"code": 401, "message": "upstream key"}}, "server", True),
        ({"error": {"code": 400, "message": "no such thing"}}, "invalid_request", False),
        ({"error": {"type": "authentication_error", "message": "bad key"}}, "auth", False),
        ({"error": {"type": "insufficient_quota"}}, "quota", False),
        ({"error": {"code": 503, "status": "UNAVAILABLE", "message": "try later"}}, "overloaded", True),
        ({"object": "error", "message": "CUDA out of memory", "code": 500}, "server", True),
        ({"choices": [{"finish_reason": "error", "error": {"code": 502, "message": "gone"}}]}, "server", True),
    ],
)
def test_an_error_inside_a_success_gets_its_reason(document: Any, reason: str, *, retryable: bool) -> None:
    error = in_band("openrouter", document)

    assert error is not None
    assert (error.reason, error.retryable, error.status) == (reason, retryable, None)


@pytest.mark.parametrize(
    "document", [{"choices": []}, {"error": None}, {"error": ""}, {"error": False}, {"id": "x"}, [], None, "text"]
)
def test_a_document_without_an_error_is_none(document: Any) -> None:
    assert in_band("openai", document) is None


def test_any_document_of_an_event_named_error_is_one() -> None:
    error = in_band("llama", {"message": "slot unavailable"}, named_error=True)

    assert error is not None
    assert error.reason == "overloaded"


@pytest.mark.parametrize(
    "message",
    [
        "Incorrect API key provided: sk-proj-abcdef1234567890.",
        "Incorrect API key provided: sk-ab***********************wxyz.",
        "Invalid header: Bearer abc.def.ghi",
        "key gsk_0123456789abcdefghij is unknown",
        "bad token 0123456789abcdef0123456789abcdef",
        "the value my-own-secret was refused",
    ],
)
def test_what_looks_like_a_key_is_hidden(message: str) -> None:
    told = shown(message, ["my-own-secret"])

    assert HIDDEN in told
    assert not any(word in told for word in ("sk-", "abc.def", "gsk_", "0123456789abcdef", "my-own-secret", "wxyz"))


def test_a_message_is_one_short_clean_line() -> None:
    told = shown("a\n\tb\x00\x1b[31m\ud83d " + "word " * 200)

    assert told.startswith("a b [31m\ufffd word")
    assert len(told) <= MESSAGE_LIMIT
    assert told.endswith("…")


NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"Retry-After": "1"}, 1.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:02 GMT"}, 2.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "inf"}, math.inf),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "1m2.5s"}, 62.5),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry_after_seconds": 4}, 4.0),
        ({}, None),
    ],
)
def test_the_wait_is_read_in_every_form(told: dict[str, Any], seconds: float | None) -> None:
    assert parse_retry_after(told, NOW) == seconds


def test_the_wait_goes_with_errors_that_are_worth_waiting_for() -> None:
    assert from_response("openai", 429, {"retry-after": "7"}, b"").retry_after == 7.0
    assert from_response("openai", 401, {"retry-after": "7"}, b"").retry_after is None
