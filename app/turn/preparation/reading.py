"""What phases read of the store: once, in one statement, as far as that is enough."""

from app.conversation.history import Summary, in_order, reach, read
from app.domain.messages import Entry
from app.domain.policy import HistoryPolicy
from app.store import starts
from app.store.starts import Start
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def start_of(draft: TurnDraft, services: PhaseServices) -> Start:
    """Give what the turn starts from; the draft's session is the stored one from here on."""
    if draft.start is None:
        oldest, newest = reach(draft.history_policy(services.policy))
        async with services.database.statement() as connection:
            draft.start = await starts.read(
                connection, draft.conversation, draft.session_key, oldest=oldest, newest=newest
            )
        draft.session = draft.start.session
    return draft.start


async def entries(
    draft: TurnDraft, services: PhaseServices, summary: Summary | None, policy: HistoryPolicy
) -> list[Entry]:
    """Give the entries that `arranged` needs; no other operation writes messages while this one runs."""
    start = await start_of(draft, services)
    if summary is None and start.edges is not None:
        return in_order(start.edges)
    async with services.database.transaction() as connection:
        return await read(connection, draft.conversation, summary, policy)
