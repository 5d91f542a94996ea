"""Which history a GMI that remembers goes on with, when a pause is continued (R126, R131 to R134, R142 to R153).

The runtime's own GMI remembers nothing, and is told the snapshot. So is one that remembers, wherever the conversation
keeps its messages: then its own history is set from the snapshot as well, before anything is recorded.
"""

from collections.abc import Sequence

import structlog

from app.domain.errors import InvalidStateError
from app.domain.messages import Message
from app.store.pauses import PauseRecord
from app.turn.gmi.base import Gmi
from app.turn.gmi.live import LiveGmi
from app.turn.pauses.snapshot import Snapshot


def seat(gmi: Gmi, pause: PauseRecord, snapshot: Snapshot, *, persistence: bool) -> None:
    """Have the GMI hold the paused turn, and no other conversation's.

    With persistence off its own history stays: InvalidStateError when the GMI that paused is gone, and that with it;
    and while it runs a turn of another conversation, whose history can't be taken from under it.
    """
    if not isinstance(gmi, LiveGmi):
        return
    is_the_one = gmi.holds(pause.conversation_id, pause.turn_id)
    if is_the_one and not gmi.is_busy and not gmi.is_shared(pause.conversation_id):
        return
    if persistence and gmi.is_busy:
        message = "The agent runs a turn of another conversation of its session; send the results again later."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    if persistence:
        gmi.begin(
            snapshot.messages,
            pause.turn_id,
            session_id=pause.session_id,
            conversation_id=pause.conversation_id,
            organization_id=pause.organization_id,
        )
    elif is_the_one:
        structlog.get_logger(__name__).warning(
            "gmi.history_shared", conversation_id=pause.conversation_id, pause_id=pause.pause_id
        )
    else:
        message = "The agent that paused has been shut down, and what was said is stored nowhere else. The pause stays."
        raise InvalidStateError(message, pause_id=pause.pause_id)


def history(gmi: Gmi, pause: PauseRecord, snapshot: Snapshot, *, persistence: bool) -> Sequence[Message]:
    """Give the paused turn's messages.

    With persistence off, what the GMI has heard in other conversations since then comes ahead of them (R131).
    """
    if persistence or not isinstance(gmi, LiveGmi) or not gmi.is_shared(pause.conversation_id):
        return snapshot.messages
    waits = {call.id for call in pause.calls}
    place = next((at for at, message in enumerate(gmi.history) if waits & {c.id for c in message.tool_calls}), None)
    since = () if place is None else gmi.history[place + 1 :]
    told = snapshot.messages
    begin = max((at for at, message in enumerate(told) if message.role == "user"), default=len(told))
    return (*told[:begin], *since, *told[begin:])
