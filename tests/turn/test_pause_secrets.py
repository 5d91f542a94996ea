"""Keys that come with a request or from the environment are in no table, no frame, no snapshot and no log."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from app.bootstrap import build
from app.domain.turn import ResultsInput
from app.domain.views import Started
from app.settings import Settings
from app.turn.facade.host import Host
from app.turn.facade.service import AgentRuntime
from tests.databases import rows
from tests.logs import logs_as_before
from tests.mock_model import ModelServer
from tests.stage import ADA, CHAT, WEATHER, result, turn_input

OF_THE_TURN = "sk-of-the-turn-4f1c0e"
OF_THE_RESULTS = "sk-of-the-results-77ab21"
OF_THE_SERVICE = "sk-of-the-service-9d03fe"
SECRETS = (OF_THE_TURN, OF_THE_RESULTS, OF_THE_SERVICE)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Everything that is logged, as it would be printed, at every level."""
    lines: list[str] = []

    def keep(_: object, name: str, event: structlog.typing.EventDict) -> str:
        lines.append(f"{name} {event!r}")
        raise structlog.DropEvent

    with logs_as_before():
        structlog.configure(processors=[structlog.processors.format_exc_info, keep])
        yield lines


async def every_row(database: str) -> dict[str, str]:
    """Give every table of the database as text."""
    names = await rows(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = {}
    for (name,) in names:
        query = f'SELECT t::text AS row FROM "{name}" t'  # noqa: S608 - a name that the database gave
        found[name] = "\n".join(row["row"] for row in await rows(database, query))
    frames = await rows(database, "SELECT convert_from(frames, 'UTF8') AS text FROM stream_events")
    return {**found, "frames": "".join(row["text"] for row in frames)}


async def read(runtime: AgentRuntime, started: Started) -> str:
    return b"".join([piece async for piece in await runtime.open_operation(started)]).decode()


async def test_no_key_is_stored_sent_or_logged(shared_database: str, mock: ModelServer, logged: list[str]) -> None:
    call = {"steps": [{"call": {"name": "get_weather", "id": "c1", "arguments": {"city": "Berlin"}}}]}
    settings = Settings(
        _env_file=None,
        drain_grace_seconds=0,
        openai_api_key=SecretStr(OF_THE_SERVICE),
        openai_base_url=mock.base_url,
        default_model="openai:mock",
    )
    runtime = build(settings, shared_database)
    await runtime.start()
    try:
        own: dict[str, Any] = {"provider_api_keys": {"openai": OF_THE_TURN}, "idempotency_key": "key-1"}
        mock.script(call, {"status": 401, "body": {"error": {"message": f"Incorrect API key: {OF_THE_RESULTS}"}}})
        seen = await read(runtime, await runtime.start_turn(turn_input("Weather?", tools=[WEATHER], **own)))
        pause = await Host(runtime).get_pending_external_tool_request(ADA, CHAT)
        assert pause is not None
        given = ResultsInput(
            ADA,
            (result("c1"),),
            stream_id=pause.stream_id,
            provider_api_keys={"openai": OF_THE_RESULTS},
            idempotency_key="key-2",
        )
        snapshot = await rows(shared_database, "SELECT snapshot::text FROM pending_external_tool_requests")
        assert json.loads(snapshot[0][0])["terms"]["had_keys"] is True
        assert not any(secret in snapshot[0][0] for secret in SECRETS)
        started = await runtime.pass_results(given)
        assert isinstance(started, Started)
        seen += await read(runtime, started)
        seen += await read(runtime, await runtime.start_turn(turn_input("And now?")))
    finally:
        await runtime.stop()

    used = [request["headers"]["authorization"] for request in await mock.requests(3)]
    assert used == [f"Bearer {secret}" for secret in SECRETS]
    assert "LLM_PROVIDER_ERROR" in seen
    assert any("operation" in line for line in logged)
    places = {**await every_row(shared_database), "read": seen, "logged": "\n".join(logged)}
    assert {"streams", "inbound_messages", "pending_external_tool_requests", "stream_events"} <= set(places)
    found = [(place, secret) for place, text in places.items() for secret in SECRETS if secret in text]
    assert found == []
    assert OF_THE_RESULTS not in repr(given)
