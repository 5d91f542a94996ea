"""The messages of a paused turn: what a pause keeps of them, and what a continuation tells (R148, R160 to R170)."""

from collections.abc import Sequence

from app.conversation.rounds import blocks
from app.domain.answers import missing_answers, result_message
from app.domain.approval import settled
from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolResult


def kept(
    history: Sequence[Message], told: Sequence[Message], calls: Sequence[ToolCall], text: str | None
) -> tuple[Message, ...]:
    """Give what a pause keeps: the GMI's history of the turn, or what the GMI was told where it gives none.

    A call of the pause that waits nowhere in it is named by a closing message: whoever stopped the turn after the GMI
    had run is not in the GMI's history. `text` is what the GMI wrote.
    """
    waiting = {call.id for message in history for call in message.tool_calls}
    waiting -= {str(message.tool_call_id) for message in history if message.role == "tool"}
    unnamed = tuple(call for call in calls if call.id not in waiting)
    if not unnamed:
        return tuple(history)
    closing = Message("assistant", None if history else text, tool_calls=unnamed)
    return (*(history or told), closing)


def answered(
    history: Sequence[Message], calls: Sequence[ToolCall], results: Sequence[ToolResult]
) -> tuple[Message, ...]:
    """Give the paused turn's messages with every call of the pause answered, in the order of the calls.

    Calls that were approved have no answer yet: they are run first.
    """
    answers_given = [*settled(calls, results, to_run=True), *missing_answers(calls, results)]
    given = {result.tool_call_id: result_message(result) for result in answers_given}
    told: list[Message] = []
    for block in blocks(history):
        first, answers = history[block.start], history[block.start + 1 : block.stop]
        told.append(first)
        if block.is_round and not block.complete:
            by_call = given | {str(answer.tool_call_id): answer for answer in answers}
            answers = [by_call[call.id] for call in first.tool_calls if call.id in by_call]
        told += answers
    return tuple(told)
