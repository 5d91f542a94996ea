"""The prompt of a turn that is prepared: what the draft holds, written by the prompt engine into the model's window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.conversation.budget import Room
from app.conversation.tokens import TokenCounter, message_tokens
from app.domain.jsontext import dumps_text
from app.domain.messages import CONTEXT_CHARACTERS, STABLE_CHARACTERS, Content, Message
from app.domain.persona import SessionStart
from app.domain.session import SessionState
from app.prompts.engine import Prompt, Space, build
from app.prompts.slots import PromptInput
from app.turn.preparation.draft import TurnDraft


def prompt_input(draft: TurnDraft) -> PromptInput:
    """Give the engine what the draft holds."""
    persona, slots = draft.chosen()[0], draft.slots
    session = _begun(persona.session_start, draft.session)
    if draft.turn.session_preferences:
        session = replace(session, user_context=known_of_user(draft, session.user_context))
    if draft.turn.skill_context:
        slots = replace(slots, skills=(draft.turn.skill_context,))
    imprints = session.mind.get("imprints")
    if imprints:
        slots = replace(slots, memory=(*slots.memory, *(f"{key}: {dumps_text(imprints[key])}" for key in imprints)))
    return PromptInput(persona, session, draft.turn.language, slots, draft.signals)


_NOTHING: Final = SessionStart()


def _begun(start: SessionStart, session: SessionState) -> SessionState:
    """Give the session with what its persona takes for granted until something else is known."""
    if start == _NOTHING:
        return session
    user = {**start.user_context, **session.user_context}
    before, now = start.user_context.get("preferences"), session.user_context.get("preferences")
    if before and now:
        user["preferences"] = {**_object(before), **_object(now)}
    mind = {**session.mind, "imprints": {**start.imprints, **_object(session.mind.get("imprints"))}}
    return replace(session, user_context=user, task_context={**start.task_context, **session.task_context}, mind=mind)


def known_of_user(draft: TurnDraft, kept: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the user context that is told: the session's preferences go before kept ones, the turn's own before both."""
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
    """Put what the prompt has for it in front of the user's newest words, and behind them; mostly there is nothing."""
    told = list(messages)
    if prompt.context or prompt.behind:
        last = told[-1]
        beside = {**(last.metadata or {}), CONTEXT_CHARACTERS: len(prompt.context)}
        told[-1] = replace(last, content=_framed(last.content, prompt), metadata=beside)
    return told


def _framed(content: Content, prompt: Prompt) -> Content:
    if isinstance(content, list):
        front, back = ([{"type": "text", "text": text}] if text else [] for text in (prompt.context, prompt.behind))
        return [*front, *content, *back]
    return "\n\n".join(text for text in (prompt.context, content, prompt.behind) if text)
