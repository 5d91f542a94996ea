"""Every dialect over real sockets, on both transports: the whole answer, a broken one, a refused one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.domain.messages import Message
from app.providers.base import Finish, ModelRequest, ProviderEvent
from app.providers.calls import HttpPolicy
from app.providers.compat import ChatCompat
from app.providers.dialect import Dialect
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider
from tests.mock_model import ModelServer
from tests.providers import anthropic_wire, gemini_wire, responses_wire
from tests.providers.conftest import Transport
from tests.providers.reading import chunk, collect, failing, stream, text_of

pytestmark = pytest.mark.slow

REQUEST = ModelRequest("m-1", (Message("user", "hi"),))
ASK = Callable[[], HttpProvider]


@dataclass(frozen=True)
class Case:
    """A dialect with an answer whose last event ends it, and one that breaks off after its first text."""

    dialect: Dialect
    whole: bytes
    path: str
    error: Any

    @property
    def broken(self) -> bytes:
        return b"\n\n".join(self.whole.split(b"\n\n")[:-2]) + b"\n\n"


CASES = {
    "chat": Case(
        ChatDialect(ChatCompat()),
        stream(chunk({"content": "Hello"}), chunk({}, "stop"), done=False),
        "/chat/completions",
        {"error": {"type": "overloaded_error", "message": "x"}},
    ),
    "anthropic": Case(
        AnthropicDialect(),
        anthropic_wire.wire(
            anthropic_wire.start(),
            anthropic_wire.delta(0, "text_delta", text="Hello"),
            anthropic_wire.ending("end_turn"),
        ),
        "/messages",
        {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
    ),
    "responses": Case(
        ResponsesDialect(),
        responses_wire.wire(responses_wire.said("Hello"), responses_wire.completed()),
        "/responses",
        {"type": "response.failed", "response": {"error": {"code": "server_is_overloaded", "message": "x"}}},
    ),
    "gemini": Case(
        GeminiDialect(),
        stream(gemini_wire.part({"text": "Hello"}), gemini_wire.part(finish="STOP"), done=False),
        "/models/m-1:streamGenerateContent",
        {"error": {"code": 503, "status": "UNAVAILABLE", "message": "x"}},
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
async def provider(server: ModelServer, transport: Transport, case: Case) -> Any:
    http = ModelHttp(HttpPolicy(transport=transport, verify_tls=False, tail_seconds=0.2))
    yield HttpProvider("mock", server.base_url, "sk-test-0123456789", http, dialect=case.dialect)
    await http.aclose()


def answer(content: bytes, *ending: dict[str, Any]) -> dict[str, Any]:
    return {"steps": [{"raw": content}, {"wait": 0.02}, *ending], "bare": True}


def is_whole(events: list[ProviderEvent]) -> bool:
    return text_of(events) == "Hello" and isinstance(events[-1], Finish) and events[-1].reason == "stop"


async def test_a_whole_answer_is_read_and_asked_for_at_the_dialects_path(
    server: ModelServer, provider: HttpProvider, case: Case
) -> None:
    server.script(answer(case.whole))

    assert is_whole(await collect(provider.stream(REQUEST)))
    assert server.seen.requests[0]["path"] == f"/v1{case.path}"
    assert "sk-test-0123456789" in str(server.seen.requests[0]["headers"])


async def test_one_byte_at_a_time_gives_the_same_answer(
    server: ModelServer, provider: HttpProvider, case: Case
) -> None:
    server.script({"steps": [{"raw": case.whole[place : place + 1]} for place in range(len(case.whole))], "bare": True})

    assert is_whole(await collect(provider.stream(REQUEST)))


@pytest.mark.parametrize("ending", [{"reset": True}, {"cut": True}, {"eof": True}, {"hang": True}])
async def test_a_whole_answer_is_whole_whatever_the_connection_does_then(
    server: ModelServer, provider: HttpProvider, case: Case, ending: dict[str, Any]
) -> None:
    server.script(answer(case.whole, ending))

    assert is_whole(await collect(provider.stream(REQUEST)))


@pytest.mark.parametrize(("ending", "reason"), [({"reset": True}, "transport"), ({"eof": True}, "truncated")])
async def test_an_answer_that_breaks_off_is_an_error(
    server: ModelServer, provider: HttpProvider, case: Case, ending: dict[str, Any], reason: str
) -> None:
    server.script(answer(case.broken, ending))

    events, error = await failing(provider.stream(REQUEST))

    assert text_of(events) == "Hello"
    assert (error.reason, error.after_output) == (reason, True)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ({"status": 401, "body": {"error": {"message": "no"}}}, "auth"),
        ({"status": 429, "headers": {"retry-after": "1"}, "body": {"error": {"message": "slow"}}}, "rate_limited"),
        ({"status": 529, "body": {"type": "error", "error": {"type": "overloaded_error"}}}, "overloaded"),
        ({"status": 200, "body": "<html>hello</html>"}, "protocol"),
        ({"steps": [{"raw": "data: {bad\n\n"}], "bare": True}, "protocol"),
        ({"steps": [{"raw": "data: [DONE]\n\n"}, {"eof": True}], "bare": True}, None),
    ],
)
async def test_a_refusal_has_its_reason_in_every_dialect(
    server: ModelServer, provider: HttpProvider, refusal: dict[str, Any], reason: str | None
) -> None:
    server.script(refusal)

    events, error = await failing(provider.stream(REQUEST))

    assert events == []
    assert error.reason == reason or (reason is None and error.reason in {"server", "truncated"})


async def test_an_overload_inside_a_success_is_found_in_every_dialect(
    server: ModelServer, provider: HttpProvider, case: Case
) -> None:
    server.script({"steps": [{"event": case.error}]})

    _, error = await failing(provider.stream(REQUEST))

    assert (error.reason, error.retryable) == ("overloaded", True)
