"""Whole turns on conversations with a past: a model that answers, writes summaries when it is asked to, and forgets."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.domain.ids import row_key
from app.domain.jsontext import dumps_text, loads
from app.domain.messages import Message
from app.domain.turn import TurnOptions
from app.providers.base import ModelRequest
from app.providers.scripted import Piece, ScriptedProvider
from app.store import messages, summaries
from app.store.database import Database
from app.store.messages import NewMessage
from app.store.summaries import SummaryRecord
from app.turn.facade.host import Chunk
from tests.stage import ADA, CHAT, Stage, one, running_stage, types

ROLLING = {"enabled": True, "cooldown_seconds": 0, "head_messages_to_keep": 2, "tail_messages_to_keep": 4}
ROLLING |= {"min_messages_to_summarize": 4, "max_messages_to_summarize_per_pass": 12}
CONVERSATION = row_key(ADA.organization_id, CHAT)
Answer = Callable[[ModelRequest], Sequence[Piece] | str]


def asks_for_summary(request: ModelRequest) -> bool:
    """Tell whether a request is a summarizer's."""
    return request.response_format == {"type": "json_object"}


def writes(text: str) -> Answer:
    """Answer a summarizer with the text, and everybody else with Ok."""
    return lambda request: text if asks_for_summary(request) else "Ok."


def numbered(request: ModelRequest) -> str:
    """Write a summary that tells what it was made of, and answer everybody else with Ok."""
    if not asks_for_summary(request):
        return "Ok."
    given = loads(str(request.messages[1].content))
    told = [entry["text"] for entry in given["messages"] if "text" in entry]
    return dumps_text({"summary_markdown": f"{given['summary_so_far']}[{told[0]}..{told[-1]}]", "memory_json": {}})


@asynccontextmanager
async def talking(database: str, answer: Answer = numbered, **settings: Any) -> AsyncIterator[Stage]:
    """Run a stage whose model answers every request by `answer`."""
    provider = ScriptedProvider([answer] * 200)
    async with running_stage(database, provider, **{"default_model": "scripted:small", **settings}) as stage:
        yield stage


def said(number: int, first: int = 1) -> tuple[Message, ...]:
    """Give messages m1, m2, … of user and assistant in turn."""
    roles = ("assistant", "user")
    return tuple(Message(roles[n % 2], f"m{n}") for n in range(first, first + number))  # type: ignore[arg-type]


async def has_said(stage: Stage, *past: Message) -> None:
    """Make the conversation with a past."""
    await stage.runtime.create_conversation(
        ADA, conversation_id=CHAT, session_id=None, persona_id=None, title=None, metadata={}, messages=past
    )


async def add(database: str, *new: Message) -> None:
    """Append messages as they are, of any role."""
    store = Database(database, pool_size=2)
    async with store.transaction() as connection:
        await messages.append(connection, CONVERSATION, [NewMessage(f"x{n}", one_of) for n, one_of in enumerate(new)])
    await store.close()


async def record_of(database: str) -> SummaryRecord | None:
    """Give the conversation's summary as it is stored."""
    store = Database(database, pool_size=2)
    async with store.transaction() as connection:
        found = await summaries.find(connection, CONVERSATION)
    await store.close()
    return found


def routing(chunks: Sequence[Chunk]) -> Mapping[str, Any]:
    """Give the routing block of a turn."""
    updates = [chunk["updates"] for chunk in chunks if chunk["type"] == "metadata_update"]
    (block,) = [update for update in updates if "rolling_summary" in update]
    return dict(block)


def told(request: ModelRequest) -> list[str]:
    """Give what a request tells, without the persona's prompt; a summary as its own words."""
    texts = [str(message.content) for message in request.messages[1:]]
    return [text.partition(":\n\n")[2] or text for text in texts]


def last_told(stage: Stage) -> list[str]:
    """Give what the last answer's request told."""
    return told(stage.provider.requests[-1])


def passes(stage: Stage) -> int:
    """Count the summarizer's requests."""
    return sum(map(asks_for_summary, stage.provider.requests))


def in_mode(mode: str) -> TurnOptions:
    """Give the options of a turn in a mode."""
    return TurnOptions(custom_flags={"mode": mode})


def completed(chunks: Sequence[Chunk]) -> bool:
    """Tell whether a turn ended with its reply."""
    return one(chunks, "final_response")["error"] is None and "error" not in types(chunks)
