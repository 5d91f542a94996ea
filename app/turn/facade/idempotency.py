"""Idempotency keys: the same request again attaches to what it started, another one under the same key is refused."""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from hashlib import blake2b
from typing import Any, TypeVar

from app.domain.errors import AppError, KeyReusedError, NotFoundError
from app.domain.ids import row_key
from app.domain.jsontext import dumps
from app.domain.turn import Caller, OperationKind, ResultsInput, TurnInput
from app.domain.views import Started
from app.store import inbound
from app.store.conversations import unknown_conversation
from app.store.database import Database
from app.store.inbound import KeyTakenError
from app.store.streams import StreamRecord
from app.turn.orchestrator.operation import Identity

Answer = TypeVar("Answer")

UNNAMED = {"provider_api_keys", "idempotency_key", "caller"}
"""Never part of a fingerprint: secrets are not even hashed."""


def fingerprint(request: TurnInput | ResultsInput) -> str | None:
    """Give a hash of what the request asks for: the same for two requests that mean the same, None without a key."""
    if request.idempotency_key is None:
        return None
    shown = {entry.name: _plain(getattr(request, entry.name)) for entry in fields(request) if entry.name not in UNNAMED}
    try:
        text = dumps([type(request).__name__, shown])
    except (TypeError, ValueError, RecursionError):
        text = repr(shown).encode("utf-8", "replace")  # it will be refused; that is for whoever checks it to say
    return blake2b(text, digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value.to_json() if hasattr(value, "to_json") else value


class Repeats:
    """Tells a request that comes for the first time from one that was accepted before."""

    def __init__(self, database: Database, stream: Callable[[Caller, str], Awaitable[StreamRecord]]) -> None:
        """`stream` gives a stream that the caller may read, and raises for any other."""
        self._database = database
        self._stream = stream

    async def once(
        self, kind: OperationKind, identity: Identity, start: Callable[[], Awaitable[Answer]]
    ) -> Started | Answer:
        """Start a request, or give what an earlier one with its key has started.

        After a refusal this is asked again: another request with the same key may have been faster.
        """
        earlier = await self._earlier(kind, identity)
        if earlier is not None:
            return earlier
        try:
            return await start()
        except (KeyTakenError, AppError):
            earlier = await self._earlier(kind, identity)
            if earlier is None:
                raise
            return earlier

    async def _earlier(self, kind: OperationKind, identity: Identity) -> Started | None:
        if identity.idempotency_key is None:
            return None
        conversation = row_key(identity.caller.organization_id, identity.conversation_id)
        async with self._database.statement() as connection:
            found = await inbound.find_by_key(connection, conversation, kind, identity.idempotency_key)
        if found is None:
            return None
        try:
            stream = await self._stream(identity.caller, found.stream_id)
        except NotFoundError:
            # Another user's: not even the name of its stream is told.
            raise unknown_conversation(identity.conversation_id) from None
        if found.request_hash != identity.request_hash:
            message = "The idempotency key came with another request before; send a new key with a new request."
            raise KeyReusedError(message, stream_id=found.stream_id)
        fence = stream.first_of(found.fence)
        return Started(found.stream_id, identity.conversation_id, found.turn_id, fence, replayed=True)
