"""Calls each model once with a tiny request and tells what came of it, for the command `doctor`."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from app.domain.errors import ProviderError, ProviderUnavailableError
from app.domain.messages import Message
from app.domain.usage import Usage
from app.providers.base import Finish, ModelRequest, TextPiece, UsageReport
from app.providers.registry import ProviderRegistry

PATIENCE_SECONDS: Final = 30.0
_TOKENS: Final = 64
_QUESTION: Final = "Answer with the one word: ready"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one model's check. `sentence` says it to a person and holds no secret; seconds may be None."""

    model_id: str
    well: bool
    sentence: str
    first_text_seconds: float | None = None
    seconds: float | None = None
    usage: Usage | None = None


async def examine(
    registry: ProviderRegistry, model_ids: Sequence[str], patience: float = PATIENCE_SECONDS
) -> list[Finding]:
    """Check the models at the same time; one finding for each, in their order. Each check costs a few tokens."""
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(_examine(registry, model_id, patience)) for model_id in model_ids]
    return [check.result() for check in checks]


async def _examine(registry: ProviderRegistry, model_id: str, patience: float) -> Finding:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    first: float | None = None
    usage: Usage | None = None
    finish: Finish | None = None
    try:
        provider, model = registry.resolve(model_id)
        request = ModelRequest(model, (Message("user", _QUESTION),), max_tokens=_TOKENS, deadline=begun + patience)
        async with asyncio.timeout(patience), aclosing(provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextPiece):
                    first = loop.time() - begun if first is None else first
                elif isinstance(event, UsageReport):
                    usage = event.usage
                elif isinstance(event, Finish):
                    finish = event
    except (ProviderError, ProviderUnavailableError) as error:
        return Finding(model_id, well=False, sentence=error.message, seconds=loop.time() - begun)
    except TimeoutError:
        return Finding(model_id, well=False, sentence=f"It did not answer within {patience:g} seconds.")
    seconds = loop.time() - begun
    # A model that only reasoned within the few tokens it had is there all the same.
    reached = first is not None or (finish is not None and finish.reason == "length")
    said = "It answers." if reached else "It answered without text."
    lacking = "" if usage is not None else " It tells no usage, so its tokens can't be counted."
    return Finding(
        model_id, well=reached, sentence=said + lacking, first_text_seconds=first, seconds=seconds, usage=usage
    )
