"""The prompt of a turn that is prepared: what the draft holds, written by the prompt engine into the model's window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.conversation.budget import Room
from app.conversation.tokens import TokenCounter, message_tokens
from app.domain.messages import CONTEXT_CHARACTERS, STABLE_CHARACTERS, Content, Message
from app.prompts.engine import Prompt, Space, build
from app.prompts.slots import PromptInput
from app.turn.preparation.draft import TurnDraft


def prompt_input(draft: TurnDraft) -> PromptInput:
    """Give the engine what the draft holds."""
    session, slots = draft.session, draft.slots
    if draft.turn.session_preferences:
        session = replace(session, user_context=known_of_user(draft))
    if draft.turn.skill_context:
        slots = replace(slots, skills=(draft.turn.skill_context,))
    return PromptInput(draft.chosen()[0], session, draft.turn.language, slots)


def known_of_user(draft: TurnDraft) -> Mapping[str, Any]:
    """Give the user context that is told: the session's preferences go before kept ones, the turn's own before both."""
    kept = draft.session.user_context
    before, own = kept.get("preferences"), draft.turn.user_context.get("preferences")
    told = {**_object(before), **draft.turn.session_preferences, **_object(own)}
    return {**kept, "preferences": {name: value for name, value in told.items() if value is not None}}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def written(draft: TurnDraft, room: Room) -> Prompt:
    """Build the prompt, in what the model's window leaves beside tools, input and answer."""
    _, _, new = draft.chosen()
    spare = room.budget + room.system - message_tokens(new.message, room.counter) - _frame(room.counter)
    return build(prompt_input(draft), Space(room.counter.text, room.window, spare))


def room_beside(prompt: Prompt, room: Room) -> Room:
    """Give the room that a prompt leaves."""
    return replace(room, system=_frame(room.counter) + prompt.system_tokens)


def _frame(counter: TokenCounter) -> int:
    return message_tokens(Message("system"), counter)


def system_message(draft: TurnDraft) -> Message:
    """Give the system's message; its metadata tells how many characters never change, where others follow them."""
    prompt = draft.prompt
    if prompt is None:
        message = "phase 12 must run first"
        raise RuntimeError(message)
    hint = {STABLE_CHARACTERS: prompt.stable} if 0 < prompt.stable < len(prompt.system) else None
    return Message("system", prompt.system, metadata=hint)


def with_context(messages: Sequence[Message], prompt: Prompt) -> list[Message]:
    """Put the prompt's context in front of what the user says, in the last message; without one nothing changes."""
    told = list(messages)
    if prompt.context:
        last = told[-1]
        beside = {**(last.metadata or {}), CONTEXT_CHARACTERS: len(prompt.context)}
        told[-1] = replace(last, content=_framed(last.content, prompt.context), metadata=beside)
    return told


def _framed(content: Content, context: str) -> Content:
    if isinstance(content, list):
        return [{"type": "text", "text": context}, *content]
    return f"{context}\n\n{content}"
