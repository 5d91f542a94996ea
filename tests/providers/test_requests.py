"""Requests and headers of the provider as httpx's own transport sends them, looked at with respx."""

import json

import httpx
import pytest
import respx

from app.domain.errors import ProviderError
from app.domain.messages import Message
from app.domain.usage import Usage
from app.providers.base import Finish, ModelRequest, ProviderEvent
from app.providers.calls import HttpPolicy
from app.providers.chat import ChatProvider
from app.providers.dialects.chat.decoder import ChatDecoder
from app.providers.http import ModelHttp
from tests.providers.reading import chunk, failing, stream, text_of

URL = "https://api.example.org/v1/chat/completions"
KEY = "sk-test-0123456789abcdef"
REQUEST = ModelRequest("m-1", (Message("user", "hi"),))
ANSWER = stream(chunk({"content": "hello"}), chunk({}, "stop"))


async def ask(
    request: ModelRequest = REQUEST, *, key: str | None = KEY, headers: dict[str, str] | None = None
) -> list[ProviderEvent]:
    http = ModelHttp(HttpPolicy(transport="httpx"))
    provider = ChatProvider("example", "https://api.example.org/v1/", key, http, headers=headers)
    try:
        return [event async for event in provider.stream(request)]
    finally:
        await http.aclose()


def answer(
    content: bytes = ANSWER, kind: str = "text/event-stream; charset=utf-8", status: int = 200
) -> httpx.Response:
    return httpx.Response(status, headers={"content-type": kind}, content=content)


async def test_the_request_goes_to_the_base_url_with_its_headers(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post(URL).mock(return_value=answer())

    events = await ask()

    sent = route.calls.last.request
    assert text_of(events) == "hello"
    assert json.loads(sent.content)["stream"] is True
    assert sent.headers["accept"] == "text/event-stream"
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["authorization"] == f"Bearer {KEY}"


async def test_the_key_of_a_request_replaces_the_configured_one(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post(URL).mock(return_value=answer())

    await ask(ModelRequest("m", REQUEST.messages, api_key="sk-another-key"))

    assert route.calls.last.request.headers["authorization"] == "Bearer sk-another-key"


async def test_without_a_key_no_authorization_is_sent(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post(URL).mock(return_value=answer())

    await ask(key=None, headers={"x-tenant": "t1"})

    assert "authorization" not in route.calls.last.request.headers
    assert route.calls.last.request.headers["x-tenant"] == "t1"


async def test_a_server_that_refuses_stream_options_is_asked_again_without_them(respx_mock: respx.MockRouter) -> None:
    refusal = httpx.Response(400, json={"error": {"message": "Unknown field: stream_options"}})
    route = respx_mock.post(URL).mock(side_effect=[refusal, answer(), answer()])
    http = ModelHttp(HttpPolicy(transport="httpx"))
    provider = ChatProvider("example", "https://api.example.org/v1", KEY, http)

    for _ in range(2):
        events = [event async for event in provider.stream(REQUEST)]
        assert isinstance(events[-1], Finish)
    await http.aclose()

    bodies = [json.loads(call.request.content) for call in route.calls]
    assert ["stream_options" in body for body in bodies] == [True, False, False]


async def test_a_refusal_for_another_reason_is_not_asked_again(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post(URL).mock(return_value=httpx.Response(400, json={"error": {"message": "bad model"}}))

    with pytest.raises(ProviderError) as caught:
        await ask()

    assert (caught.value.reason, route.call_count) == ("invalid_request", 1)


@pytest.mark.parametrize(
    ("raised", "reason", "retryable"),
    [
        (httpx.ConnectError("refused"), "connect", True),
        (httpx.ConnectTimeout("slow"), "connect", True),
        (httpx.ReadTimeout("slow"), "timeout", True),
        (httpx.PoolTimeout("full"), "timeout", True),
        (httpx.RemoteProtocolError("no"), "transport", True),
        (httpx.UnsupportedProtocol("ftp"), "connect", False),
        (OSError("odd"), "connect", True),
        (RuntimeError("odder"), "transport", True),
    ],
)
async def test_what_the_client_raises_becomes_a_provider_error_without_the_request(
    respx_mock: respx.MockRouter, raised: Exception, reason: str, *, retryable: bool
) -> None:
    respx_mock.post(URL).mock(side_effect=raised)

    with pytest.raises(ProviderError) as caught:
        await ask()

    error = caught.value
    assert (error.reason, error.retryable, error.after_output) == (reason, retryable, False)
    assert error.__context__ is None
    assert KEY not in f"{error!r} {error.details}"


class _Breaks(httpx.AsyncByteStream):
    """A body that breaks after what it was given."""

    def __init__(self, content: bytes, error: Exception) -> None:
        self._content = content
        self._error = error

    async def __aiter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        yield self._content
        raise self._error

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("error", [httpx.ReadError("gone"), httpx.RemoteProtocolError("cut"), ValueError("odd")])
async def test_a_stream_that_breaks_gives_what_came_and_then_the_error(
    respx_mock: respx.MockRouter, error: Exception
) -> None:
    body = _Breaks(stream(chunk({"content": "a"}, usage={"prompt_tokens": 3}), done=False), error)
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    respx_mock.post(URL).mock(return_value=response)
    http = ModelHttp(HttpPolicy(transport="httpx"))

    events, caught = await failing(ChatProvider("example", "https://api.example.org/v1", KEY, http).stream(REQUEST))
    await http.aclose()

    assert text_of(events) == "a"
    assert (caught.reason, caught.after_output, caught.usage) == ("transport", True, Usage(3))


async def test_a_stream_that_breaks_after_the_finish_reason_is_whole(respx_mock: respx.MockRouter) -> None:
    body = _Breaks(stream(chunk({"content": "a"}, "stop"), done=False), httpx.ReadError("gone"))
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    respx_mock.post(URL).mock(return_value=response)

    events = await ask()

    assert events[-1] == Finish("stop", "stop", "m-1", "c1")


@pytest.mark.parametrize(
    ("kind", "content", "reason", "retryable"),
    [
        ("text/html", b"<html>hello</html>", "protocol", True),
        ("application/json", b'{"choices": []}', "protocol", False),
        ("application/json", b'{"error": {"type": "overloaded_error", "message": "x"}}', "overloaded", True),
        ("application/json", b"{", "protocol", False),
    ],
)
async def test_a_success_that_is_no_stream_is_an_error(
    respx_mock: respx.MockRouter, kind: str, content: bytes, reason: str, *, retryable: bool
) -> None:
    respx_mock.post(URL).mock(return_value=answer(content, kind))

    with pytest.raises(ProviderError) as caught:
        await ask()

    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)


@pytest.mark.parametrize("kind", ["text/event-stream", "TEXT/EVENT-STREAM;charset=utf-8", "text/plain", ""])
async def test_a_stream_is_read_also_when_its_type_is_written_oddly(respx_mock: respx.MockRouter, kind: str) -> None:
    respx_mock.post(URL).mock(return_value=answer(kind=kind))

    assert text_of(await ask()) == "hello"


async def test_an_event_over_the_limit_is_refused(respx_mock: respx.MockRouter) -> None:
    respx_mock.post(URL).mock(return_value=answer(stream(chunk({"content": "x" * 2000}))))
    http = ModelHttp(HttpPolicy(transport="httpx", event_bytes=1000))

    with pytest.raises(ProviderError) as caught:
        [event async for event in ChatProvider("example", "https://api.example.org/v1", KEY, http).stream(REQUEST)]
    await http.aclose()

    assert caught.value.reason == "protocol"


def test_keys_and_headers_are_in_no_repr() -> None:
    request = ModelRequest("m", REQUEST.messages, api_key=KEY)

    assert KEY not in repr(request)


async def test_an_event_that_no_decoder_foresaw_is_a_fault_of_the_protocol(
    respx_mock: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise IndexError("nobody foresaw this")

    respx_mock.post(URL).mock(return_value=answer())
    monkeypatch.setattr(ChatDecoder, "feed", broken)

    with pytest.raises(ProviderError) as caught:
        await ask()

    assert (caught.value.reason, caught.value.retryable) == ("protocol", True)
    assert "nobody foresaw this" not in caught.value.message
