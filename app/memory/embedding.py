"""Embeds texts with the model that is set for it, under a name that tells which vectors can be compared."""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Final, Literal

from app.domain.errors import ProviderError
from app.domain.frozen import dataclass
from app.domain.usage import ModelCall, Usage
from app.providers.attempts import AttemptRecord
from app.providers.billing import billed
from app.providers.registry import ProviderRegistry

BATCH: Final = 32

Vectors = Sequence[Sequence[float]]
Embed = Callable[[Sequence[str]], Awaitable[Vectors]]
"""Gives one vector for each text; may raise ProviderError."""

_HEARS: Final[ContextVar[Callable[[ModelCall], None] | None]] = ContextVar("embeddings_told", default=None)
"""Who is told what is embedded: texts are embedded below phases, tools and memories of others, which know no ledger."""


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


class embeddings_told:  # noqa: N801 - it reads as what holds inside the block
    """Tells of each request for vectors that is made inside the block, also by tasks that are begun in it."""

    __slots__ = ("_before", "_hear")

    def __init__(self, hear: Callable[[ModelCall], None]) -> None:
        """Nobody is told before the block begins."""
        self._hear = hear

    def __enter__(self) -> None:
        self._before = _HEARS.set(self._hear)

    def __exit__(self, *_: object) -> None:
        _HEARS.reset(self._before)


def embedder_of(
    registry: ProviderRegistry, model_id: str | None, on_attempt: Callable[[AttemptRecord], None] | None = None
) -> Embedder | None:
    """Give what embeds documents, questions and memories, where a model is set for it. `on_attempt` counts requests."""
    if model_id is None:
        return None

    def tell(began: float, usage: Usage | None, error: BaseException | None) -> None:
        record = _record(model_id, perf_counter() - began, usage, error)
        if on_attempt is not None:
            on_attempt(record)
        hear = _HEARS.get()
        if hear is not None:
            hear(billed(record, registry, purpose="embedding"))

    async def embed(texts: Sequence[str]) -> Vectors:
        client, model = registry.embeddings(model_id)
        began = perf_counter()
        try:
            found = await client.embed(model, texts)
        except BaseException as error:
            tell(began, None, error)
            raise
        tell(began, found.usage, None)
        return found.vectors

    return Embedder(model_id, embed)


def _record(model_id: str, seconds: float, usage: Usage | None, error: BaseException | None) -> AttemptRecord:
    provider, _, model = model_id.partition(":")
    known = error if isinstance(error, ProviderError) else None
    failed: Literal["failed", "abandoned"] = "failed" if isinstance(error, Exception) else "abandoned"
    return AttemptRecord(
        provider=provider,
        model=model,
        hop=0,
        attempt=1,
        outcome="delivered" if error is None else failed,
        reason=known.reason if known is not None else None,
        status=known.status if known is not None else None,
        usage=usage,
        first_output_seconds=seconds if error is None else None,
        seconds=seconds,
    )
