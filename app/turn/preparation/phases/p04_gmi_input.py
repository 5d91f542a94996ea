"""Phase 4: the input as a message, and the tools that the model is told of."""

from app.domain.errors import ValidationError
from app.domain.ids import fresh
from app.domain.messages import Message
from app.domain.session import SessionState, merged
from app.store.messages import NewMessage
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Build the user's message. ValidationError when a host tool has the name of a tool of the runtime.

    TooLargeError when the turn's user context is more than a session may keep.
    """
    turn = draft.turn
    taken = sorted(tool.name for tool in turn.tools if tool.name in services.tools.names)
    if taken:
        message = f"The runtime has tools of these names itself: {', '.join(taken)}. Rename the host's tools."
        raise ValidationError(message, names=taken)
    user = Message("user", turn.input, name=turn.caller.user_id, metadata={"source": "input"})
    draft.input = NewMessage(fresh("msg"), user, draft.turn_id)
    # Until what the session has kept is read, this turn's own word stands for it.
    draft.session = SessionState(user_context=merged({}, turn.user_context))
    draft.host_tools = turn.tools
    draft.runtime_tools = services.tools.offered_to(draft.persona) if draft.persona else ()
