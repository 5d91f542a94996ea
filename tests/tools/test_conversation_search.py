"""Finding what was said: in the caller's own conversation, by words, the newest first."""

import json
from typing import Any

from app.domain.turn import Caller
from app.providers.scripted import call
from app.tools.builtin.conversation_search import LONGEST_TEXT
from tests.stage import Stage, running_stage

PERSONA = """
id: finder
name: Finder
system_prompt: Find it.
tools: [search_conversation]
"""


async def searched(stage: Stage, query: str, **more: Any) -> Any:
    stage.provider.add([call("search_conversation", {"query": query, **more.pop("arguments", {})}, id="s1")], "Found.")
    await stage.play("Search.", persona_id="finder", **more)
    return json.loads(str(stage.provider.requests[-1].messages[-1].content))["messages"]


async def test_words_are_found_in_any_case_the_newest_first_and_only_in_the_same_conversation(
    shared_database: str, tmp_path: Any
) -> None:
    (tmp_path / "finder.yaml").write_text(PERSONA, encoding="utf-8")
    async with running_stage(shared_database, personas_dir=tmp_path, default_persona_id="finder") as stage:
        stage.provider.add("Noted, the Müller order.", "Fine.", "Elsewhere.")
        await stage.play('The "Müller" ORDER is for Friday.')
        await stage.play(f"Filler {'x' * 2000} müller {'y' * 2000}")
        await stage.play("The Müller order of another.", conversation="chat-2", caller=Caller("bob"))

        found = await searched(stage, "müller order")
        assert [(entry["role"], entry["text"]) for entry in found] == [
            ("assistant", "Noted, the Müller order."),
            ("user", 'The "Müller" ORDER is for Friday.'),
        ]
        (long,) = await searched(stage, "filler")
        assert len(long["text"]) <= LONGEST_TEXT + 2
        assert [entry["position"] for entry in await searched(stage, "müller", arguments={"limit": 1})] == [3]
        assert await searched(stage, "100%_nothing") == []
