"""Embeds texts with the model that is set for it, under a name that tells which vectors can be compared."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.providers.registry import ProviderRegistry

BATCH: Final = 32

Vectors = Sequence[Sequence[float]]
Embed = Callable[[Sequence[str]], Awaitable[Vectors]]
"""Gives one vector for each text; may raise ProviderError."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """An embedding model. Texts go out in batches."""

    model_id: str
    embed: Embed

    async def vectors(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Give the vectors of the texts, in their order."""
        found: list[Sequence[float]] = []
        for begin in range(0, len(texts), BATCH):
            found.extend(await self.embed(texts[begin : begin + BATCH]))
        return found

    def name(self, vector: Sequence[float]) -> str:
        """Name the model with the length of its vectors: a server may change that behind one model's name."""
        return f"{self.model_id}/{len(vector)}"


def embedder_of(registry: ProviderRegistry, model_id: str | None) -> Embedder | None:
    """Give what embeds documents, questions and memories, where a model is set for it."""
    if model_id is None:
        return None

    async def embed(texts: Sequence[str]) -> Vectors:
        client, model = registry.embeddings(model_id)
        return (await client.embed(model, texts)).vectors

    return Embedder(model_id, embed)
