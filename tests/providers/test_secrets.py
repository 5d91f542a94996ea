"""Keys and secret headers are in nothing that is logged, traced, stored or answered, however a model's call fails.

Whole turns through the door, over HTTP, in each dialect, with servers that repeat in their errors what they were sent.
"""

import logging
import socket
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from pydantic import SecretStr

from app.main import create_app, live
from app.observability.logging import configure_logging
from app.providers.errors import HIDDEN
from tests.api.serving import client_of, given
from tests.conversation.talking import ROLLING
from tests.logs import logs_as_before
from tests.mock_model import Answer, ModelServer
from tests.providers.conftest import Transport
from tests.providers.trap_words import DIALECTS, TEXT, Words
from tests.turn.test_pause_secrets import every_row

SECRETS = {
    "the service's key": "open-sesame-of-the-house",
    "a call's own key": "open-sesame-of-the-caller",
    "a provider's header": "open-sesame-of-the-team",
    "a persona's header": "open-sesame-of-the-persona",
}
HOUSE, OWN, TEAM, PERSONA = SECRETS.values()
ECHO = f"I was sent {HOUSE}, {TEAM} and {PERSONA}."

SMALL: list[Answer] = [{"status": 401, "body": {"error": {"message": ECHO}}}] * 200
"""What the model answers that is asked for summaries."""

PERSONA_FILE = f"""
id: demo
name: Demo
description: Answers.
system_prompt: Answer.
options:
  extra_headers: {{x-vault: "Bearer {PERSONA}"}}
"""


class Captured(logging.Handler):
    """All that is told of the turns to whoever runs the service: log events of both kinds, and spans."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []
        self.spans: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.lines.append(f"{record.name} {record.getMessage()} {record.__dict__!r} {error}")

    @contextmanager
    def span(self, name: str, *args: Any, **more: Any) -> Iterator[trace.Span]:
        self.spans.append(f"{name} {args!r} {more!r}")
        try:
            yield trace.INVALID_SPAN
        except BaseException as error:
            self.spans.append("".join(traceback.format_exception(error)))
            raise


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Captured]:
    """Capture all that the service logs at its most talkative level, and all spans with the errors in them."""
    kept = Captured()
    tracer = trace.NoOpTracer()
    monkeypatch.setattr(tracer, "start_as_current_span", kept.span)
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(trace, "get_tracer", lambda _: tracer)
    with logs_as_before():
        configure_logging("debug", "json")
        logging.getLogger().handlers = [kept]
        yield kept


@dataclass(frozen=True)
class Place:
    """Where the files are, a port at which nobody listens and which nobody else can take, and what carries requests."""

    folder: Path
    closed_port: int
    transport: Transport


@pytest.fixture
def place(tmp_path: Path, transport: Transport) -> Iterator[Place]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield Place(tmp_path, held.getsockname()[1], transport)


@asynccontextmanager
async def asking(database: str, place: Place, providers: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run the whole application, and give a client of it."""
    personas = place.folder / "personas"
    personas.mkdir()
    (personas / "demo.yaml").write_text(PERSONA_FILE, encoding="utf-8")
    file = place.folder / "providers.yaml"
    file.write_text(providers, encoding="utf-8")
    told = given(
        database_url=SecretStr(database),
        providers_file=file,
        personas_dir=personas,
        default_model="chat:m",
        utility_model="chat:small",
        rolling_summary_compaction={**ROLLING, "min_messages_to_summarize": 2},
        keep_prompts=True,
        drain_grace_seconds=0,
        http_transport=place.transport,
    ).beside({"HOUSE_KEY": HOUSE, "TEAM_TOKEN": TEAM})
    app = create_app(told)
    async with live(app), client_of(app) as client:
        yield client


def providers_at(base_url: str, closed_port: int, first_event_seconds: float = 60) -> str:
    """Write a file with a provider of each dialect, and one that is not there."""
    lines = ["providers:"]
    for name, dialect, url in (
        *((words.name, words.name, base_url) for words in DIALECTS),
        ("away", "chat", f"http://127.0.0.1:{closed_port}/v1"),
    ):
        own = f'dialect: {dialect}, base_url: "{url}", api_key_env: HOUSE_KEY, headers: {{x-team: "${{TEAM_TOKEN}}"}}'
        lines.append(f"  {name}: {{{own}}}")
    lines.append(f"limits: {{attempts: 1, first_event_seconds: {first_event_seconds}}}")
    return "\n".join(lines)


def failures(words: Words, echo: str = ECHO) -> list[Answer]:
    """Give answers that fail, each with all that must not be told."""
    told = {"error": {"message": echo}}
    said = {"raw": words.begin + words.say(TEXT)}
    return [
        *({"status": status, "body": told} for status in (400, 401, 402, 403, 404, 429, 500, 503, 529)),
        {"status": 401, "body": echo},
        {"status": 500, "headers": {"x-echo": echo}, "body": {"detail": echo}},
        {"status": 302, "headers": {"location": f"http://127.0.0.1/{HOUSE}"}, "body": echo},
        {"status": 200, "body": told},
        {"status": 200, "body": f"<html>{echo}</html>"},
        _bare({"raw": words.begin + words.event(told)}),
        _bare(said, {"raw": words.event(told)}),
        _bare(said, {"raw": f"event: error\ndata: {echo}\n\n"}),
        _bare(said, {"raw": f"error: {echo}\n\n"}),
        _bare(said, {"raw": f'data: {{"{echo}\n\n'}),
        _bare(said, {"eof": True}),
        _bare(said, {"cut": True}),
        _bare({"reset": True}),
    ]


def _bare(*steps: dict[str, Any]) -> Answer:
    return {"steps": list(steps), "bare": True}


class Calls:
    """Turns, one after another in one conversation, each with a model of its own; what they answered is kept."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._number = 0
        self.answers: list[str] = []

    async def turn(self, provider: str, *, own: bool, as_json: bool) -> None:
        self._number += 1
        body: dict[str, Any] = {"input": f"Turn {self._number}", "user_id": "ada"}
        body["options"] = {"model": f"{provider}:m{self._number}"}
        if own:
            body["provider_api_keys"] = {provider: OWN}
        headers = {"Accept": "application/json" if as_json else "text/event-stream"}
        response = await self._client.post("/v1/conversations/secrets/turns", json=body, headers=headers)
        self.answers.append(f"{response.status_code} {response.headers!r} {response.text}")


async def nothing_told(database: str, captured: Captured, calls: Calls) -> None:
    """See that no secret is in anything that was captured, stored or answered."""
    places = {
        **await every_row(database),
        "answers": "\n".join(calls.answers),
        "logs": "\n".join(captured.lines),
        "spans": "\n".join(captured.spans),
    }
    found = [(place, whose) for place, text in places.items() for whose, secret in SECRETS.items() if secret in text]
    assert found == []


async def test_no_secret_is_told_however_a_call_fails(
    shared_database: str, mock: ModelServer, place: Place, captured: Captured
) -> None:
    mock.script(*SMALL, model="small")
    async with asking(shared_database, place, providers_at(mock.base_url, place.closed_port)) as client:
        calls = Calls(client)
        for words in DIALECTS:
            for number, answer in enumerate(failures(words)):
                mock.script(answer)
                await calls.turn(words.name, own=number % 2 == 0, as_json=number % 3 == 0)
        for own in (True, False):
            await calls.turn("away", own=own, as_json=own)
        await calls.turn("nobody", own=True, as_json=True)
        mock.script({"steps": [{"text": "Hello."}]})
        await calls.turn("chat", own=False, as_json=False)

    sent = str([request["headers"] for request in mock.seen.requests])
    assert all(secret in sent for secret in SECRETS.values())
    answers = "\n".join(calls.answers)
    reasons = ("auth", "quota", "rate_limited", "overloaded", "server", "protocol", "truncated", "transport", "connect")
    assert [reason for reason in reasons if f'"{reason}"' not in answers] == []
    assert "Hello." in calls.answers[-1]
    assert calls.answers[-2].startswith("503 ")
    assert answers.count(HIDDEN) > len(calls.answers) / 2
    assert any("operation" in line for line in captured.lines)
    assert any("preparation.summary" in span for span in captured.spans)
    assert any(request["body"].get("model") == "small" for request in mock.seen.requests)
    await nothing_told(shared_database, captured, calls)


async def test_no_secret_is_told_when_models_keep_silent(
    shared_database: str, mock: ModelServer, place: Place, captured: Captured
) -> None:
    providers = providers_at(mock.base_url, place.closed_port, first_event_seconds=0.2)
    mock.script(*SMALL, model="small")
    async with asking(shared_database, place, providers) as client:
        calls = Calls(client)
        for words in DIALECTS:
            for own in (True, False):
                mock.script(_bare({"hang": True}))
                await calls.turn(words.name, own=own, as_json=own)

    assert all('"timeout"' in answer for answer in calls.answers)
    await nothing_told(shared_database, captured, calls)
