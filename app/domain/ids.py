"""Names: fresh ones, and those that are made of other names."""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Final
from uuid import UUID, uuid4, uuid5


def fresh(prefix: str) -> str:
    """Make a name that nobody can guess: `prefix_` and 24 hexadecimal digits."""
    return f"{prefix}_{secrets.token_hex(12)}"


def fresh_call_id() -> str:
    """Name a tool call whose provider gave none, or one that is taken."""
    return fresh("call")


def fresh_uuid() -> UUID:
    """Make a random UUID."""
    return uuid4()


_KEY_BYTES: Final = 16
_RANDOM_BYTES: Final = 11
_CONVERSATIONS: Final = UUID("6f1d2c3a-4c0e-5f1b-9a55-3c7e0f9a7b21")


def row_key(organization_id: str, conversation_id: str) -> UUID:
    """Give the row key that all rows of a conversation begin with: a UUID made of organization and id."""
    return uuid5(_CONVERSATIONS, f"{organization_id}\x00{conversation_id}")


def conversation_id_for(organization_id: str, user_id: str, idempotency_key: str) -> str:
    """Name a new conversation after the request that begins it, so that the same request finds it again."""
    identity = f"{organization_id}\x00{user_id}\x00{idempotency_key}"
    return f"conv_{blake2b(identity.encode(), digest_size=12).hexdigest()}"


def stream_id_for(conversation: UUID) -> str:
    """Make a stream id that contains its conversation's row key, so that a call on a stream finds its shard.

    It is in every frame, so it is short: Base64 of the key and of 88 random bits.
    """
    return f"st_{_short(conversation.bytes + secrets.token_bytes(_RANDOM_BYTES))}"


def conversation_of(stream_id: str) -> UUID | None:
    """Read the row key out of a stream id; None when the text is no stream id."""
    body = stream_id.removeprefix("st_")
    try:
        named = urlsafe_b64decode(body)
    except ValueError:
        return None
    right = len(named) == _KEY_BYTES + _RANDOM_BYTES and stream_id == f"st_{_short(named)}"
    return UUID(bytes=named[:_KEY_BYTES]) if right else None


def gmi_instance_id(organization_id: str, user_id: str, session_id: str, persona_id: str) -> str:
    """Give the id of a session's GMI: the same on every replica and after a restart."""
    identity = f"{organization_id}\x00{user_id}\x00{session_id}\x00{persona_id}"
    return f"gmi_{_short(blake2b(identity.encode(), digest_size=9).digest())}"


def _short(name: bytes) -> str:
    """Write as text for addresses; the length is a multiple of three, so there is no padding."""
    return urlsafe_b64encode(name).decode()
