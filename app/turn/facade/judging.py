"""What guards need of models: an endpoint that moderates, and a model that judges replies. Their calls are billed."""

from collections.abc import Sequence
from typing import Final

from app.domain.generators import aclosing
from app.domain.messages import Message
from app.guardrails.base import GuardContext
from app.guardrails.options import GuardOptions
from app.guardrails.rules.moderation import Opinion
from app.guardrails.shipped import Means
from app.providers.attempts import AttemptRecord
from app.providers.base import ModelRequest, TextPiece
from app.providers.billing import billed
from app.providers.gateway import Gateway, Route

LONGEST_VERDICT: Final = 200
"""Tokens of a judge's answer."""


def means_of(gateway: Gateway, options: GuardOptions, utility_model: str, secrets: Sequence[str]) -> Means:
    """Give the means. A provider that is not set up is an error of the call that needs it."""
    judge_model = options.grounding.model or utility_model

    async def moderate(text: str) -> Opinion:
        client, model = gateway.registry.moderation(options.moderation.model)
        return await client.judge(text, model)

    async def ask(context: GuardContext, prompt: str, given: str) -> str:
        def told(record: AttemptRecord) -> None:
            context.on_call(billed(record, gateway.registry, purpose="judge"))

        request = ModelRequest(
            model=judge_model,
            messages=(Message("system", prompt), Message("user", given)),
            temperature=0.0,
            max_tokens=LONGEST_VERDICT,
            response_format={"type": "json_object"},
        )
        async with aclosing(gateway.stream(Route(judge_model), request, told)) as events:
            return "".join([event.text async for event in events if isinstance(event, TextPiece)])

    return Means(moderate, ask, secrets)
