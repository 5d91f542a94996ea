"""Erases a user: conversations with all that belongs to them, documents, memories, and what sessions keep."""

from collections.abc import Awaitable, Callable

from app.domain.errors import NotFoundError
from app.domain.turn import Caller
from app.store import conversations, documents, sessions, traces
from app.store.database import Database

PAGE = 100


class Users:
    """What is kept of users, as a whole."""

    def __init__(
        self,
        database: Database,
        admit: Callable[[Caller], Caller],
        erase_conversation: Callable[[Caller, str], Awaitable[None]],
    ) -> None:
        """`erase_conversation` also ends what runs in one."""
        self._database = database
        self._admit = admit
        self._erase_conversation = erase_conversation

    async def erase(self, caller: Caller) -> int:
        """Erase all that is the caller's in the organization; tells how many conversations there were.

        Documents of the organization stay, whoever put them there. A second call finds nothing, and is no error.
        """
        mine = self._admit(caller)
        erased = 0
        while True:
            async with self._database.transaction() as connection:
                found = await conversations.page(connection, mine, before=None, limit=PAGE)
            if not found:
                break
            for record in found:
                try:
                    await self._erase_conversation(mine, record.conversation_id)
                    erased += 1
                except NotFoundError:
                    continue  # somebody else has erased it meanwhile
        async with self._database.transaction() as connection:
            await documents.forget_user(connection, mine)
            await traces.remove(connection, mine)
            await sessions.forget_user(connection, mine)
        return erased
