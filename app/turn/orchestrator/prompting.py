"""Keeps what each operation tells its model first, for an operator who asks why an agent does what it does.

Off unless a setting says otherwise. Secrets are taken out, and so is what is long and not text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from app.conversation.tokens import messages_tokens
from app.domain.messages import Message
from app.guardrails.rules.credentials import masked
from app.store import prompts
from app.turn.gmi.base import GmiTurnInput
from app.turn.orchestrator.operation import Operation

_MEDIA: Final = frozenset({"data", "url"})
_LONGEST_MEDIA: Final = 200


async def keep_prompt(operation: Operation, turn: GmiTurnInput) -> None:
    """Store the prompt of an operation that is about to run. Never raises: no turn fails for this."""
    services = operation.services
    document = _masked(_document(operation, turn), (*services.secrets, *turn.provider_api_keys.values()))
    try:
        async with services.database.transaction() as connection:
            await prompts.keep(connection, operation.conversation, operation.stream_id, operation.fence, document)
    except Exception as error:  # noqa: BLE001 - see above
        structlog.get_logger(__name__).warning("prompt.not_kept", stream_id=operation.stream_id, error=repr(error))


def _document(operation: Operation, turn: GmiTurnInput) -> dict[str, Any]:
    room = turn.room
    spoken = [message for message in turn.messages if message.role != "system"]
    return {
        "turn_id": operation.turn_id,
        "operation": operation.kind.value,
        "persona_id": turn.persona.id,
        "model": turn.model,
        "messages": list(map(_shown, turn.messages)),
        "tools": [tool.name for tool in (*turn.runtime_tools, *turn.host_tools)],
        "sections": dict(turn.prompt.get("sections", {})),
        "cut": dict(turn.prompt.get("cut", {})),
        "tokens": room.sizes(messages_tokens(spoken, room.counter)) if room is not None else {},
        "at": operation.services.clock.now().isoformat(),
    }


def _shown(message: Message) -> dict[str, Any]:
    shown = message.to_json()
    shown.pop("metadata", None)
    if isinstance(message.content, list):
        shown["content"] = [_part(part) for part in message.content]
    return shown


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Give a part without the bytes of its image, sound or file."""
    return {
        name: f"({len(value)} characters)"
        if name in _MEDIA and isinstance(value, str) and len(value) > _LONGEST_MEDIA
        else value
        for name, value in part.items()
    }


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return masked(value, secrets)
    if isinstance(value, dict):
        return {name: _masked(entry, secrets) for name, entry in value.items()}
    if isinstance(value, list):
        return [_masked(entry, secrets) for entry in value]
    return value
