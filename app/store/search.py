"""Finds what was said in a conversation, by words."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Text, func, literal_column, select

from app.domain.frozen import dataclass
from app.domain.messages import Content, text_of
from app.store.database import Connection
from app.store.tables import messages

_row = messages.c
_SPOKEN = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Found:
    """A message that was found."""

    position: int
    role: str
    content: Content
    created_at: datetime

    @property
    def text(self) -> str:
        """The text of the message."""
        return text_of(self.content)


async def find_spoken(connection: Connection, conversation: UUID, words: Sequence[str], limit: int) -> list[Found]:
    """Give the newest messages of user and assistant that hold every word, in any case; the newest comes first."""
    text = func.lower(_row.content.op("#>>", return_type=Text())(literal_column("'{}'")))
    query = (
        select(_row.position, _row.role, _row.content, _row.created_at)
        .where(_row.conversation == conversation, _row.role.in_(_SPOKEN), ~_row.not_sent)
        .where(*(func.strpos(text, word.lower()) > 0 for word in words))
        .order_by(_row.position.desc())
        .limit(limit)
    )
    return [Found(*row) for row in await connection.execute(query)]
