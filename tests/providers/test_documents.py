"""Embeddings, moderation and the doctor over sockets, on both transports."""

from typing import Any

import pytest

from app.domain.errors import ProviderError
from app.domain.usage import Usage
from app.providers.calls import HttpPolicy
from app.providers.demo import DemoProvider
from app.providers.doctor import examine
from app.providers.embeddings import EmbeddingClient
from app.providers.http import ModelHttp
from app.providers.moderation import ModerationClient
from app.providers.registry import ProviderRegistry
from tests.mock_model import ModelServer
from tests.providers.conftest import Connect, Transport

KEY = "sk-test-0123456789"


def plain(body: Any, status: int = 200) -> dict[str, Any]:
    return {"status": status, "body": body}


@pytest.fixture
async def http(transport: Transport) -> Any:
    client = ModelHttp(HttpPolicy(transport=transport, verify_tls=False, whole_seconds=1.0))
    yield client
    await client.aclose()


async def test_texts_are_embedded_in_batches_and_in_their_order(server: ModelServer, http: ModelHttp) -> None:
    server.script(
        plain(
            {
                "data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0.5]}],
                "usage": {"prompt_tokens": 4},
            }
        ),
        plain({"data": [{"embedding": [0.25, 0.75]}], "usage": {"total_tokens": 2}}),
    )
    client = EmbeddingClient("mock", server.base_url, KEY, http, batch=2)

    found = await client.embed("e-1", ["a", "b", "c"], dimensions=2)

    assert found.vectors == ((1.0, 0.5), (0.0, 1.0), (0.25, 0.75))
    assert found.usage == Usage(6)
    first = server.seen.requests[0]
    assert first["path"] == "/v1/embeddings"
    assert first["body"] == {"model": "e-1", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2}
    assert first["headers"]["authorization"] == f"Bearer {KEY}"


async def test_no_texts_need_no_request(server: ModelServer, http: ModelHttp) -> None:
    assert (await EmbeddingClient("mock", server.base_url, KEY, http).embed("e-1", [])).vectors == ()
    assert server.seen.requests == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (plain({"data": []}), "protocol"),
        (plain({"data": [{"embedding": "AAAA"}, {"embedding": [1]}]}), "protocol"),
        (plain({"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}), "protocol"),
        (plain({"data": [{"embedding": [1]}, {"embedding": [1, 2]}]}), "protocol"),
        (plain([1]), "protocol"),
        (plain("<html>hello</html>"), "protocol"),
        (plain({"error": {"message": "no such model", "type": "invalid_request_error"}}), "invalid_request"),
        (plain({"error": {"message": f"bad key {KEY}"}}, 401), "auth"),
        ({"steps": [{"hang": True}]}, "timeout"),
        ({"steps": [{"cut": True}]}, "transport"),
    ],
)
async def test_an_answer_that_does_not_fit_the_texts_is_an_error(
    server: ModelServer, http: ModelHttp, answer: dict[str, Any], reason: str
) -> None:
    server.script(answer)

    with pytest.raises(ProviderError) as caught:
        await EmbeddingClient("mock", server.base_url, KEY, http).embed("e-1", ["a", "b"])

    assert caught.value.reason == reason
    assert KEY not in repr(caught.value)


async def test_a_verdict_tells_what_was_found(server: ModelServer, http: ModelHttp) -> None:
    result = {
        "flagged": True,
        "categories": {"violence": True, "hate": False},
        "category_scores": {"violence": 0.9, "hate": 0},
    }
    server.script(plain({"results": [result]}))

    verdict = await ModerationClient("mock", server.base_url, KEY, http).judge("text")

    assert (verdict.flagged, verdict.categories) == (True, ("violence",))
    assert verdict.scores == {"violence": 0.9, "hate": 0.0}
    assert server.seen.requests[0]["body"] == {"model": "omni-moderation-latest", "input": "text"}


@pytest.mark.parametrize("body", [{}, {"results": []}, {"results": [{}]}, {"results": [{"flagged": "no"}]}])
async def test_no_verdict_is_never_a_good_one(server: ModelServer, http: ModelHttp, body: Any) -> None:
    server.script(plain(body))

    with pytest.raises(ProviderError, match="without a verdict"):
        await ModerationClient("mock", server.base_url, KEY, http).judge("text")


async def test_keys_and_headers_that_a_server_repeats_are_hidden(server: ModelServer, http: ModelHttp) -> None:
    key, token = "open-sesame-of-the-house", "open-sesame-of-the-team"
    headers = {"x-team": f"Bearer {token}"}
    asked = (
        EmbeddingClient("mock", server.base_url, key, http, headers=headers).embed("e-1", ["a"]),
        ModerationClient("mock", server.base_url, key, http, headers=headers).judge("text"),
    )
    for asking in asked:
        server.script(plain({"error": {"message": f"I was sent {key} and {token}."}}, 401))
        with pytest.raises(ProviderError, match=r"I was sent \[hidden\] and \[hidden\]\.") as caught:
            await asking
        assert not any(secret in f"{caught.value!r} {caught.value.details}" for secret in (key, token))


async def test_the_doctor_tells_of_each_model_what_came_of_it(server: ModelServer, connect: Connect) -> None:
    registry = ProviderRegistry([connect(), DemoProvider(0)], {"openai": "Set OPENAI_API_KEY."})
    server.script({"status": 401, "body": {"error": {"message": f"bad key {KEY}"}}}, model="refused")
    server.script({"steps": [{"hang": True}]}, model="silent")
    server.script({"steps": [{"reasoning": "hm"}, {"finish": "length"}]}, model="thinker")
    server.script({"steps": [{"finish": "stop"}, {"done": True}], "bare": True}, model="mute")
    server.script({"steps": [{"text": "ready"}, {"finish": "stop"}, {"done": True}], "bare": True}, model="uncounted")

    names = ["m", "refused", "silent", "thinker", "mute", "uncounted"]
    findings = await examine(registry, [*(f"mock:{name}" for name in names), "openai:x", "scripted:demo"], patience=1.5)

    assert [finding.well for finding in findings] == [True, False, False, True, False, True, False, True]
    assert findings[0].usage == Usage(10, 5)
    assert "refused the API key" in findings[1].sentence
    assert KEY not in findings[1].sentence
    assert "Set OPENAI_API_KEY" in findings[6].sentence
    assert "tells no usage" in findings[5].sentence
