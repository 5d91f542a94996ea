"""What is known beside conversations, as callers may use it: documents and memories."""

from collections.abc import Callable

from app.domain.turn import Caller
from app.memory.library import Library
from app.store.database import Database
from app.turn.facade.documents import Documents
from app.turn.facade.memories import MemoryDesk


def desks(database: Database, library: Library, admit: Callable[[Caller], Caller]) -> tuple[Documents, MemoryDesk]:
    """Give both; every caller passes `admit` first."""
    return Documents(database, library, admit), MemoryDesk(database, admit)
