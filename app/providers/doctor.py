"""Calls each model, and each provider of which none is named, and tells what came of it, for the command `doctor`."""

import asyncio
from collections.abc import Sequence
from typing import Final

from app.domain.errors import ProviderError, ProviderUnavailableError
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.messages import Message
from app.domain.usage import Usage
from app.providers.base import Finish, ModelRequest, TextPiece, UsageReport
from app.providers.registry import ProviderRegistry

PATIENCE_SECONDS: Final = 30.0
_TOKENS: Final = 64
_SHOWN: Final = 3
_LISTS_NONE: Final = frozenset({404, 405, 501})
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


async def examine_embedding(registry: ProviderRegistry, model_id: str, patience: float = PATIENCE_SECONDS) -> Finding:
    """Check a model that embeds texts, with one short text."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        client, model = registry.embeddings(model_id)
        async with asyncio.timeout(patience):
            embedded = await client.embed(model, [_QUESTION])
    except (ProviderError, ProviderUnavailableError) as error:
        return Finding(model_id, well=False, sentence=error.message, seconds=loop.time() - begun)
    except TimeoutError:
        return Finding(model_id, well=False, sentence=f"It did not answer within {patience:g} seconds.")
    sentence = f"It embeds, {len(embedded.vectors[0])} numbers a text."
    return Finding(model_id, well=True, sentence=sentence, seconds=loop.time() - begun, usage=embedded.usage)


async def examine_provider(registry: ProviderRegistry, name: str, patience: float = PATIENCE_SECONDS) -> Finding:
    """Check a provider of which no model is named, by asking which it has; that costs no tokens."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        async with asyncio.timeout(patience):
            models = await registry.models(name)
    except (ProviderError, ProviderUnavailableError) as error:
        if isinstance(error, ProviderError) and error.status in _LISTS_NONE:
            sentence = f"It is there and does not list its models; name one, as {name}:MODEL, to have it asked."
            return Finding(name, well=True, sentence=sentence, seconds=loop.time() - begun)
        return Finding(name, well=False, sentence=error.message, seconds=loop.time() - begun)
    except TimeoutError:
        return Finding(name, well=False, sentence=f"It did not answer within {patience:g} seconds.")
    some = ", ".join(models[:_SHOWN]) + (", …" if len(models) > _SHOWN else "")
    sentence = f"It has {len(models)} models: {some}." if models else "It has no model."
    return Finding(name, well=bool(models), sentence=sentence, seconds=loop.time() - begun)


def table(findings: Sequence[Finding]) -> str:
    """Give the findings as plain lines under headings, for a terminal."""
    rows = [("MODEL", "", "FIRST", "WHOLE", "TOKENS", "")]
    for finding in findings:
        tokens = str(finding.usage.total_tokens) if finding.usage is not None else "-"
        times = (_seconds(finding.first_text_seconds), _seconds(finding.seconds))
        rows.append((finding.model_id, "ok" if finding.well else "FAILED", *times, tokens, finding.sentence))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    lines = ("  ".join((*map(str.ljust, row, widths), row[-1])).rstrip() for row in rows)
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


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
