"""What streams and conversations have used, read from the usage ledger."""

from collections.abc import Callable, Sequence
from itertools import groupby

from app.domain.ids import row_key
from app.domain.turn import Caller
from app.domain.views import ModelUsage, RequestView, SpendingView
from app.store import usage
from app.store.database import Database
from app.store.pauses import iso
from app.store.usage import LedgerEntry
from app.turn.facade.queries import Queries


class Spending:
    """Reads the ledger; another's streams and conversations look like ones that are not there."""

    def __init__(self, database: Database, queries: Queries, admit: Callable[[Caller], Caller]) -> None:
        """Keep what is needed, and what each caller passes first."""
        self._database = database
        self._admit = admit
        self._queries = queries

    async def of_stream(self, caller: Caller, stream_id: str) -> SpendingView:
        """Tell what a stream has used, request by request; what runs still is not in it."""
        record = await self._queries.stream(self._admit(caller), stream_id)
        async with self._database.transaction() as connection:
            entries = await usage.of_stream(connection, record.conversation, stream_id)
        models = _by_model(entries)
        return SpendingView(
            record.conversation_id, models, _cost(models), stream_id=stream_id, requests=tuple(map(_request, entries))
        )

    async def of_conversation(self, caller: Caller, conversation_id: str) -> SpendingView:
        """Tell what a conversation has used, by model."""
        caller = self._admit(caller)
        await self._queries.conversation(caller, conversation_id)
        async with self._database.transaction() as connection:
            entries = await usage.of_conversation(connection, row_key(caller.organization_id, conversation_id))
        models = _by_model(entries)
        return SpendingView(conversation_id, models, _cost(models))


def _by_model(entries: Sequence[LedgerEntry]) -> tuple[ModelUsage, ...]:
    named = sorted(entries, key=_model)
    return tuple(_sum(model, [*group]) for model, group in groupby(named, key=_model))


def _model(entry: LedgerEntry) -> str:
    return f"{entry.call.provider}:{entry.call.model}"


def _sum(model: str, entries: Sequence[LedgerEntry]) -> ModelUsage:
    calls = [entry.call for entry in entries]
    costs = [call.cost for call in calls if call.cost is not None]
    return ModelUsage(
        model=model,
        requests=len(calls),
        failed_requests=sum(call.outcome == "failed" for call in calls),
        estimated_requests=sum(call.estimated for call in calls),
        prompt_tokens=sum(call.usage.prompt_tokens for call in calls),
        completion_tokens=sum(call.usage.completion_tokens for call in calls),
        cached_tokens=sum(call.usage.cached_tokens for call in calls),
        reasoning_tokens=sum(call.usage.reasoning_tokens for call in calls),
        cost_usd=sum(costs) if costs else None,
    )


def _cost(models: Sequence[ModelUsage]) -> float | None:
    """Give the sum where every model's price is known: part of a bill is not the bill."""
    costs = [model.cost_usd for model in models]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _request(entry: LedgerEntry) -> RequestView:
    call = entry.call
    return RequestView(
        turn_id=entry.turn_id,
        purpose=call.purpose,
        step=call.step,
        hop=call.hop,
        attempt=call.attempt,
        model=_model(entry),
        outcome=call.outcome,
        reason=call.reason,
        status=call.status,
        prompt_tokens=call.usage.prompt_tokens,
        completion_tokens=call.usage.completion_tokens,
        cached_tokens=call.usage.cached_tokens,
        reasoning_tokens=call.usage.reasoning_tokens,
        estimated=call.estimated,
        cost_usd=call.cost,
        first_output_seconds=call.first_output_seconds,
        seconds=call.seconds,
        created_at=iso(entry.created_at),
    )
