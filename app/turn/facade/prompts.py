"""What operators ask about prompts: what the models of a stream were told."""

from collections.abc import Callable

from app.domain.errors import NotFoundError
from app.domain.turn import Caller
from app.domain.views import PromptsView
from app.store import prompts
from app.store.database import Database
from app.turn.facade.queries import Queries


class Prompts:
    """Reads the prompts that are kept; another's stream looks like one that is not there."""

    def __init__(self, database: Database, admit: Callable[[Caller], Caller]) -> None:
        """Keep the database, and what each caller passes first."""
        self._database = database
        self._admit = admit
        self._queries = Queries(database)

    async def of_stream(self, caller: Caller, stream_id: str) -> PromptsView:
        """Give the prompts of a stream's operations; NotFoundError where none is kept."""
        record = await self._queries.stream(self._admit(caller), stream_id)
        async with self._database.transaction() as connection:
            found = await prompts.of_stream(connection, record.conversation, stream_id)
        if not found:
            message = (
                f"No prompt of the stream {stream_id!r} is kept. Prompts are kept from when FERMATA_KEEP_PROMPTS is "
                "set, and as long as their stream's events."
            )
            raise NotFoundError(message, stream_id=stream_id)
        return PromptsView(record.stream_id, record.conversation_id, tuple(found))
