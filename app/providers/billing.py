"""Attempts as the ledger keeps them: what the provider told, or else a count that says so, and the price."""

from collections.abc import Callable

from app.domain.usage import ModelCall, Purpose, Usage
from app.observability.metrics import Metrics
from app.providers.attempts import AttemptRecord
from app.providers.registry import ProviderRegistry


def billed(
    record: AttemptRecord,
    registry: ProviderRegistry,
    *,
    purpose: Purpose,
    step: int = 0,
    estimate: Callable[[], Usage] | None = None,
) -> ModelCall:
    """Give the ledger's form of an attempt.

    `estimate` counts an attempt whose usage the provider did not tell: one that had begun to answer, or whose reader
    left. One that failed before it answered costs nothing.
    """
    usage, estimated = record.usage, False
    worked = record.first_output_seconds is not None or record.outcome == "abandoned"
    if usage is None and estimate is not None and worked:
        usage, estimated = estimate(), True
    usage = usage or Usage()
    return ModelCall(
        purpose=purpose,
        step=step,
        hop=record.hop,
        attempt=record.attempt,
        provider=record.provider,
        model=record.model,
        outcome=record.outcome,
        reason=record.reason,
        status=record.status,
        usage=usage,
        estimated=estimated,
        cost=registry.facts(f"{record.provider}:{record.model}").cost(usage),
        first_output_seconds=record.first_output_seconds,
        seconds=record.seconds,
    )


def counting(metrics: Metrics) -> Callable[[AttemptRecord], None]:
    """Give what counts attempts."""

    def count(record: AttemptRecord) -> None:
        usage = record.usage or Usage()
        metrics.attempt(
            record.provider,
            record.model,
            record.outcome,
            record.reason,
            first_output_seconds=record.first_output_seconds,
            tokens={"prompt": usage.prompt_tokens, "completion": usage.completion_tokens},
        )

    return count
