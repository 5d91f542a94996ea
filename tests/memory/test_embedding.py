"""What asking for vectors costs: each request is told to whoever pays, and stands in the ledger of its turn."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import AppError
from app.domain.usage import ModelCall
from app.memory.embedding import embedder_of, embeddings_told
from app.providers.attempts import AttemptRecord
from app.providers.facts import ModelFacts, Prices
from app.providers.registry import ProviderRegistry
from tests.databases import rows
from tests.memory.test_turns import MEMORY, knowing, remembered
from tests.stage import ADA

OFFLINE = "offline:wordllama"


async def test_each_batch_is_a_request_that_is_told_with_its_tokens_and_price() -> None:
    told: list[ModelCall] = []
    counted: list[AttemptRecord] = []
    registry = ProviderRegistry([], facts={OFFLINE: ModelFacts(prices=Prices(2.0, 0.0))})
    embedder = embedder_of(registry, OFFLINE, counted.append)
    assert embedder is not None
    await embedder.vectors(["unheard"])
    with embeddings_told(told.append):
        await asyncio.create_task(embedder.vectors(["kettle"] * 33))
    await embedder.vectors(["unheard again"])
    assert len(counted) == 4
    assert [(call.purpose, call.provider, call.model, call.outcome) for call in told] == [
        ("embedding", "offline", "wordllama", "delivered")
    ] * 2
    assert told[0].usage.prompt_tokens == 32 * told[1].usage.prompt_tokens > 0
    assert told[1].cost == pytest.approx(told[1].usage.prompt_tokens * 2.0 / 1_000_000)


async def test_a_request_that_fails_is_told_with_its_reason() -> None:
    told: list[ModelCall] = []
    embedder = embedder_of(ProviderRegistry([]), "offline:other")
    assert embedder is not None
    with embeddings_told(told.append), pytest.raises(AppError):
        await embedder.vectors(["kettle"])
    assert [(call.outcome, call.reason, call.cost) for call in told] == [("failed", "invalid_request", None)]


async def test_what_a_turn_embeds_stands_in_its_usage_also_what_is_remembered_behind_it(
    shared_database: str, tmp_path: Path
) -> None:
    persona: dict[str, Any] = {**MEMORY, "retrieval": {}}
    async with knowing(shared_database, tmp_path, persona, embedding_model=OFFLINE) as stage:
        stage.provider.add("Noted.", "Peanuts.")
        await stage.play("I am allergic to peanuts.")
        await remembered(stage, 2)
        await stage.runtime._services.background.settled()
        assert await purposes(stage.database) == [("embedding", "delivered"), ("turn", "delivered")]
        chunks = await stage.play("What must I not eat?", conversation="two")
        await stage.runtime._services.background.settled()
        usage = await stage.runtime.stream_usage(ADA, chunks[0]["stream_id"])
        assert [entry.purpose for entry in usage.requests] == ["embedding", "turn", "embedding"]
        assert usage.requests[0].prompt_tokens > 0


async def test_a_turn_that_embeds_nothing_has_no_such_row(shared_database: str, tmp_path: Path) -> None:
    async with knowing(shared_database, tmp_path, {}, embedding_model=OFFLINE) as stage:
        stage.provider.add("Fine.")
        await stage.play("Hello.")
        await stage.runtime._services.background.settled()
        assert await purposes(stage.database) == [("turn", "delivered")]


async def purposes(database: str) -> list[tuple[str, str]]:
    return sorted(tuple(row) for row in await rows(database, "SELECT purpose, outcome FROM usage_ledger"))
