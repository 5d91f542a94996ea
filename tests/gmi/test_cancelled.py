"""Turns that are ended from outside: the model's socket is closed at once, and what was used is kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.bootstrap import build
from app.domain.usage import Usage
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from app.providers.registry import ProviderRegistry
from app.providers.scripted import Hold
from app.settings import Settings
from app.store import inbound
from app.turn.facade.service import AgentRuntime
from tests.databases import rows
from tests.mock_model import ModelServer
from tests.stage import ADA, CHAT, Stage, turn_input


@asynccontextmanager
async def talking_to(mock: ModelServer, database: str) -> AsyncIterator[AgentRuntime]:
    http = ModelHttp()
    registry = ProviderRegistry([ChatProvider("house", mock.base_url, None, http)], http=http)
    settings = Settings(_env_file=None, default_model="house:m", drain_grace_seconds=0)
    runtime = build(settings, database, providers=registry)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


@pytest.mark.parametrize("before", [[], [{"text": "Once upon"}]], ids=["while it is silent", "in mid-text"])
async def test_a_cancel_closes_the_models_socket(
    mock: ModelServer, shared_database: str, before: list[dict[str, str]]
) -> None:
    async with talking_to(mock, shared_database) as runtime:
        for number in range(2):
            mock.script({"steps": [*before, {"hang": True}]})
            started = await runtime.start_turn(turn_input("Tell me a story.", conversation=f"c{number}"))
            await mock.requests(number + 1)
            assert await runtime.cancel(ADA, started.stream_id) == "cancelling"
            await mock.closed(number + 1)
            async for _ in await runtime.open_operation(started):
                pass
            used = await runtime.stream_usage(ADA, started.stream_id)
            assert [(entry.outcome, entry.estimated) for entry in used.requests] == [("abandoned", True)]


async def test_an_operation_that_has_lost_its_fence_still_keeps_what_it_was_billed(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add(["Once", Usage(11, 2), hold, "more"])
    started = await stage.runtime.start_turn(turn_input("Tell me a story."))
    await hold.reached.wait()

    for ring in stage.runtime._services.rings.all():
        ring.lose()
    assert await stage.runtime._lifecycle.tasks.wait(5)

    found = await rows(stage.database, "SELECT outcome, prompt_tokens FROM usage_ledger")
    assert [(row["outcome"], row["prompt_tokens"]) for row in found] == [("abandoned", 11)]
    assert started.conversation_id == CHAT


async def test_a_cancel_between_two_pieces_of_text_closes_the_model_before_the_outcome_is_written(
    mock: ModelServer, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = asyncio.Event()

    async def touch(*_: object) -> bool:
        noting.set()
        await asyncio.get_running_loop().create_future()
        return True

    monkeypatch.setattr(inbound, "touch", touch)
    mock.script({"steps": [{"text": "Once upon"}, {"hang": True}]})
    async with talking_to(mock, shared_database) as runtime:
        started = await runtime.start_turn(turn_input("Tell me a story.", conversation="between"))
        await noting.wait()

        assert await runtime.cancel(ADA, started.stream_id) == "cancelling"
        async for _ in await runtime.open_operation(started):
            pass

        used = await runtime.stream_usage(ADA, started.stream_id)
    assert [entry.outcome for entry in used.requests] == ["abandoned"]
