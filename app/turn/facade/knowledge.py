"""What is known beside conversations, as callers may use it: documents, memories, and users as a whole."""

from collections.abc import Awaitable, Callable

from app.domain.turn import Caller
from app.memory.library import Library
from app.store.database import Database
from app.turn.facade.documents import Documents
from app.turn.facade.memories import MemoryDesk
from app.turn.facade.users import Users


def desks(
    database: Database,
    library: Library,
    admit: Callable[[Caller], Caller],
    erase_conversation: Callable[[Caller, str], Awaitable[None]],
) -> tuple[Documents, MemoryDesk, Users]:
    """Give all three; every caller passes `admit` first."""
    return Documents(database, library, admit), MemoryDesk(database, admit), Users(database, admit, erase_conversation)
