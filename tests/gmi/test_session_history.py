"""How much of what was said before a turn is told, and what a persona's file says about that."""

from pathlib import Path

import pytest

from app.domain.errors import ConfigurationError
from app.domain.messages import Message
from app.turn.gmi.personas import load_personas
from tests.gmi.keeping import persona
from tests.requirements import requirement
from tests.stage import ADA, CHAT, Stage, running_stage, wire


@requirement("R307")
async def test_a_turn_is_told_what_was_said_before_in_its_conversation(stage: Stage) -> None:
    stage.provider.add("Hello, Ada.", "Ada.")
    await stage.play("I am Ada.")
    await stage.play("Who am I?")

    assert [message["content"] for message in wire(stage.provider.requests[-1])][1:] == [
        "I am Ada.",
        "Hello, Ada.",
        "Who am I?",
    ]


async def past(stage: Stage, number: int) -> None:
    """Make the conversation with so many messages."""
    said = tuple(Message("user" if n % 2 else "assistant", f"m{n}") for n in range(1, number + 1))
    await stage.runtime.create_conversation(
        ADA, conversation_id=CHAT, session_id=None, persona_id=None, title=None, metadata={}, messages=said
    )


@requirement("R308")
async def test_the_history_that_is_told_is_bounded_by_the_conversations_limit_and_not_by_20(stage: Stage) -> None:
    await past(stage, 40)
    stage.provider.add("Ok.")
    await stage.play("now")

    told = [message["content"] for message in wire(stage.provider.requests[-1])][1:]
    assert told == [*(f"m{n}" for n in range(1, 41)), "now"]


@requirement("R309")
async def test_a_persona_sets_how_many_messages_are_told(shared_database: str, tmp_path: Path) -> None:
    own = persona(tmp_path, conversation_context="{max_messages: 6}")
    async with running_stage(shared_database, messages_to_keep_verbatim_head=0, **own) as stage:
        await past(stage, 39)
        stage.provider.add("Ok.")
        await stage.play("now")

        told = [message["content"] for message in wire(stage.provider.requests[-1])][1:]
        assert told == ["m35", "m36", "m37", "m38", "m39", "now"]
        assert len(await stage.messages()) == 41


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning_trace.max_entries", "{max_entries: 10001}"),
        ("reasoning_trace.max_entries", "{max_entries: 0}"),
        ("reasoning_trace.max_message_length", "{max_message_length: -1}"),
        ("conversation_context.max_messages", "{max_messages: 0}"),
    ],
)
def test_a_limit_that_a_persona_can_not_have_is_named_with_its_file(tmp_path: Path, field: str, value: str) -> None:
    persona(tmp_path, **{field.partition(".")[0]: value})
    with pytest.raises(ConfigurationError, match=rf"p\.yaml: {field}"):
        load_personas(tmp_path)
