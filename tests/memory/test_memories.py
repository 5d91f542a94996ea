"""What is remembered, for whom, and how it is found again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.errors import NotFoundError
from app.domain.memory import Memory, MemoryPlace, MemoryScope, NewMemory, Recall, Recalled
from app.domain.memory_policy import MemoryPolicy, NewSummary
from app.domain.turn import Caller
from app.memory.embedding import Embedder
from app.memory.memories import MOST_TRACES, Memories
from app.providers.errors import failure
from app.store.database import Database
from app.turn.facade.retention import Retention
from tests.databases import execute, rows
from tests.memory.shelf import Topics
from tests.stage import ADA, Stage

BOB = Caller("bob")
ELSEWHERE = Caller("ada", "acme")
PLACE = MemoryPlace(ADA, "c", "demo")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 30, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def boot_seconds(self) -> float:
        return self.time.timestamp()


class Mind:
    """Memories, and short ways to use them in the conversation `c`."""

    def __init__(self, memories: Memories, clock: Clock, url: str) -> None:
        self.memories = memories
        self.clock = clock
        self.url = url

    async def keep(self, text: str, caller: Caller = ADA, scope: MemoryScope = "user", **more: Any) -> Memory | None:
        place = MemoryPlace(caller, more.pop("conversation", "c"), more.pop("persona", "demo"))
        made = await self.memories.remember([NewMemory(place, scope, text, **more)])
        return made[0] if made else None

    async def recall(self, query: str, caller: Caller = ADA, **more: Any) -> Recalled:
        place = MemoryPlace(caller, more.pop("conversation", "c"), more.pop("persona", "demo"))
        return await self.memories.recall(Recall(place, query, **more))

    async def texts(self, query: str, caller: Caller = ADA, **more: Any) -> list[str]:
        return [memory.content for memory in (await self.recall(query, caller, **more)).memories]

    async def strength(self, text: str) -> float:
        found = await rows(self.url, "SELECT strength FROM memory_traces WHERE content = $1", text)
        return float(found[0][0])


@asynccontextmanager
async def thinking(url: str, topics: Topics | None = None) -> AsyncIterator[Mind]:
    database, clock = Database(url), Clock()
    embedder = Embedder("test:topics", topics.embed) if topics is not None else None
    try:
        yield Mind(Memories(database, clock, embedder), clock, url)
    finally:
        await database.close()


async def talk(stage: Stage, caller: Caller = ADA, conversation: str = "c") -> None:
    """Make a conversation."""
    await stage.runtime.create_conversation(
        caller, conversation_id=conversation, session_id=None, persona_id=None, title=None, metadata={}, messages=()
    )


@pytest.fixture
async def mind(stage: Stage) -> AsyncIterator[Mind]:
    await talk(stage)
    async with thinking(stage.database) as made:
        yield made


async def test_what_was_said_is_found_by_its_words_and_survives_the_process(mind: Mind, stage: Stage) -> None:
    await mind.keep("I am allergic to peanuts.")
    await mind.keep("My train leaves at nine.")
    found = await mind.recall("Which peanuts may I eat?")
    assert found.text == "- The user said: I am allergic to peanuts."
    assert [memory.source for memory in found.memories] == ["user_statement"]
    async with thinking(stage.database) as again:
        assert await again.texts("peanuts") == ["I am allergic to peanuts."]
    assert await mind.texts("quantum") == []
    assert len(await mind.texts("")) == 2


async def test_what_fits_equally_well_is_told_by_how_alive_it_is(mind: Mind) -> None:
    await mind.keep("Old: the code is red.")
    mind.clock.time += timedelta(hours=30)
    await mind.keep("New: the code is blue.")
    assert await mind.texts("What is the code?") == ["New: the code is blue.", "Old: the code is red."]
    assert len(await mind.texts("What is the code?", top_k=1)) == 1
    assert len(await mind.texts("What is the code?", max_characters=30)) == 1


async def test_what_is_told_lives_longer_and_what_is_said_again_is_one_memory(mind: Mind) -> None:
    await mind.keep("I like tea.")
    before = await rows(mind.url, "SELECT stability, recalled FROM memory_traces")
    mind.clock.time += timedelta(hours=2)
    await mind.recall("tea")
    await mind.keep("I like tea.")
    after = await rows(mind.url, "SELECT stability, recalled FROM memory_traces")
    assert [row["recalled"] for row in after] == [2]
    assert after[0]["stability"] > before[0]["stability"] * 2


async def test_nobody_is_told_what_was_remembered_for_another(mind: Mind, stage: Stage) -> None:
    await talk(stage, BOB, "b")
    await talk(stage, ELSEWHERE)
    await mind.keep("secret of ada")
    await mind.keep("secret of ada with sage", scope="persona", persona="sage")
    await mind.keep("secret of this talk", scope="conversation")
    scopes: tuple[MemoryScope, ...] = ("user", "persona", "conversation")
    assert await mind.texts("secret", BOB, conversation="b", scopes=scopes, persona="sage") == []
    assert await mind.texts("secret", ELSEWHERE, scopes=scopes, persona="sage") == []
    assert await mind.texts("secret", conversation="d", scopes=scopes) == ["secret of ada"]
    assert set(await mind.texts("secret", scopes=scopes, persona="sage")) == {
        "secret of ada", "secret of ada with sage", "secret of this talk",
    }  # fmt: skip
    await mind.keep("secret of all", BOB, scope="organization", conversation="b")
    assert await mind.texts("secret", scopes=("organization",)) == ["secret of all"]
    assert await mind.texts("secret", ELSEWHERE, scopes=("organization",)) == []


async def test_a_user_is_shown_and_forgets_what_is_remembered_of_them_alone(mind: Mind, stage: Stage) -> None:
    texts = {ADA: "The dog is here.", ELSEWHERE: "The dog is there.", BOB: "The dog is away."}
    desk, ids = stage.runtime.memories, {}
    for caller, text in texts.items():
        if caller is not ADA:
            await talk(stage, caller, caller.user_id)
        await mind.keep(text, caller, conversation="c" if caller is ADA else caller.user_id)
    for caller, text in texts.items():
        shown = (await desk.page(caller, cursor=None, limit=9)).items
        assert [memory.content for memory in shown] == [text]
        ids[caller] = shown[0].memory_id
    for stranger in (ELSEWHERE, BOB):
        with pytest.raises(NotFoundError):
            await desk.remove(stranger, ids[ADA])
    assert await desk.remove_all(ADA) == 1
    assert [len((await desk.page(caller, cursor=None, limit=9)).items) for caller in texts] == [0, 1, 1]


async def test_categories_choose_and_an_empty_list_is_none(mind: Mind) -> None:
    await mind.keep("I like green tea.", category="preferences")
    await mind.keep("I own green shoes.", category="facts")
    assert await mind.texts("green", categories=["facts"]) == ["I own green shoes."]
    assert await mind.texts("green", categories=[]) == []
    assert await mind.texts("green", scopes=()) == []


async def test_meaning_is_found_where_no_word_is_shared(stage: Stage) -> None:
    await talk(stage)
    topics = Topics()
    async with thinking(stage.database, topics) as mind:
        await mind.keep("My puppy is called Rex.")
        assert await mind.texts("Tell me of the hound") == ["My puppy is called Rex."]
        topics.fails = failure("connect", "test", "away")
        await mind.keep("The storm was loud.")
        assert await mind.texts("storm") == ["The storm was loud."]
        assert await mind.texts("the hound") == []


async def test_a_memory_that_is_like_others_takes_and_loses_strength(stage: Stage) -> None:
    await talk(stage)
    async with thinking(stage.database, Topics()) as mind:
        await mind.keep("My hound barks.")
        before = await mind.strength("My hound barks.")
        await mind.keep("The dog is loud.")
        assert await mind.strength("My hound barks.") == pytest.approx(before * 0.85)
        assert await mind.strength("The dog is loud.") < before


async def test_what_was_asked_to_be_remembered_begins_at_full_strength(mind: Mind) -> None:
    await mind.keep("Call me Dr. Lovelace.", explicit=True, source="tool")
    assert await mind.strength("Call me Dr. Lovelace.") == 1.0
    assert (await mind.recall("Lovelace")).text == "- It was noted: Call me Dr. Lovelace."


@pytest.mark.parametrize("text", ["it's", "a' | b & !c", "\\", "'; DROP TABLE memory_traces; --", "((", "x\x00y", "é"])
async def test_any_text_can_be_remembered_and_looked_for(mind: Mind, text: str) -> None:
    await mind.keep(f"keyword {text}")
    await mind.recall(text)
    assert len(await mind.texts("keyword")) == 1


async def test_nothing_is_remembered_of_a_conversation_that_is_erased_or_of_a_blank(mind: Mind, stage: Stage) -> None:
    assert await mind.keep("  \n") is None
    await mind.keep("I like tea.")
    await mind.keep("I like tea elsewhere too.", scope="organization")
    await stage.runtime.delete_conversation(ADA, "c")
    assert await rows(stage.database, "SELECT 1 FROM memory_traces") == []
    assert await mind.keep("I like coffee.") is None
    assert await rows(stage.database, "SELECT 1 FROM memory_traces") == []


async def test_a_scope_keeps_the_memories_that_are_most_alive(mind: Mind, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_TRACES >= 1000
    monkeypatch.setattr("app.memory.memories.MOST_TRACES", 2)
    await mind.keep("one apple", explicit=True)
    await mind.keep("two pears")
    await execute(
        mind.url, "UPDATE memory_traces SET accessed_at = now() - interval '2 days' WHERE content = 'two pears'"
    )
    mind.clock.time = datetime.now(UTC)
    await mind.keep("three plums")
    kept = await rows(mind.url, "SELECT content FROM memory_traces ORDER BY content")
    assert [row[0] for row in kept] == ["one apple", "three plums"]


async def test_what_is_told_together_leads_to_each_other_and_what_is_made_together_begins_to(mind: Mind) -> None:
    place = MemoryPlace(ADA, "c", "demo")
    await mind.memories.remember(
        [
            NewMemory(place, "user", "The zoo has a red panda."),
            NewMemory(place, "user", "The panda eats bamboo."),
            NewMemory(place, "conversation", "The panda is asleep."),
        ]
    )
    assert sorted(await links_of(mind)) == [("The panda eats bamboo.", {"The zoo has a red panda.": 0.1})]
    for _ in range(4):
        assert len(await mind.texts("panda")) == 2
    assert sorted(await links_of(mind)) == [
        ("The panda eats bamboo.", {"The zoo has a red panda.": 0.5}),
        ("The zoo has a red panda.", {"The panda eats bamboo.": 0.4}),
    ]


async def test_of_two_that_fit_alike_the_one_that_the_best_leads_to_is_told_first(mind: Mind) -> None:
    kept = [await mind.keep(text, explicit=True) for text in ("The harbour is cold.", "The station is cold.")]
    best = await mind.keep("The harbour of Kiel is grey and cold in winter.", explicit=True)
    names = [memory.trace_id for memory in [*kept, best] if memory is not None]
    for linked in (0, 1):
        await execute(mind.url, "UPDATE memory_traces SET recalled = 0, stability = 3600, links = '{}', strength = 1")
        await rows(
            mind.url,
            "UPDATE memory_traces SET links = json_build_object($1::text, 1.0) WHERE trace_id = $2 RETURNING 1",
            names[linked],
            names[2],
        )
        found = [memory.trace_id for memory in (await mind.recall("cold grey winter Kiel")).memories]
        assert found == [names[2], names[linked], names[1 - linked]]


async def test_what_a_model_has_concluded_is_told_as_not_verified_after_an_hour(mind: Mind) -> None:
    await mind.keep("Rain is likely.", source="agent_inference")
    await mind.keep("I dislike rain.")
    assert "- The answer was: Rain is likely." in (await mind.recall("rain")).text
    mind.clock.time += timedelta(minutes=61)
    found = await mind.recall("rain")
    assert sorted(found.text.splitlines()) == [
        "- The answer was (not verified): Rain is likely.",
        "- The user said: I dislike rain.",
    ]
    assert sorted(memory.unverified for memory in found.memories) == [False, True]


async def test_a_procedure_is_attended_to_by_a_conscientious_persona(mind: Mind) -> None:
    steps = "To brew tea:\n1. Boil {0}.\n2. Pour it.\n"
    await mind.keep(steps.format("water"), traits={"conscientiousness": 1.0})
    await mind.keep(steps.format("milk"), conversation="c", scope="conversation", traits={"conscientiousness": 0.0})
    careful = await mind.strength(steps.format("water").strip())
    assert careful > await mind.strength(steps.format("milk").strip())


async def test_what_has_faded_is_forgotten_but_not_what_was_asked_for_moved_or_is_told(mind: Mind) -> None:
    retention = Retention(mind.memories._database, keep=timedelta(1), faded=timedelta(days=30))
    for text in ("small talk", "young talk", "strong talk"):
        await mind.keep(text)
    await mind.keep("asked for", explicit=True)
    await mind.keep("moving", valence=-1.0, arousal=0.9, sentiment=-1.0)
    await execute(
        mind.url, "UPDATE memory_traces SET accessed_at = now() - CASE WHEN content = 'young talk' "
        "THEN interval '29 days' ELSE interval '31 days' END",
    )  # fmt: skip
    await execute(mind.url, "UPDATE memory_traces SET stability = 1e9 WHERE content = 'strong talk'")
    assert await retention.fade() == 1
    assert await retention.fade() == 0
    left = await rows(mind.url, "SELECT content FROM memory_traces ORDER BY content")
    assert [row[0] for row in left] == ["asked for", "moving", "strong talk", "young talk"]


async def test_faded_memories_go_in_batches_beside_other_processes(mind: Mind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.turn.facade.retention.FADED_AT_ONCE", 2)
    for number in range(5):
        await mind.keep(f"small talk {number}")
    await execute(mind.url, "UPDATE memory_traces SET accessed_at = now() - interval '99 days'")
    retention = Retention(mind.memories._database, keep=timedelta(1), faded=timedelta(0))
    gone = await asyncio.gather(*(retention.fade() for _ in range(3)))
    assert sum(gone) + sum([await retention.fade() for _ in range(3)]) == 5
    assert max(gone) <= 2


async def test_retention_forgets_by_itself_while_it_runs(mind: Mind) -> None:
    await mind.keep("small talk")
    await execute(mind.url, "UPDATE memory_traces SET accessed_at = now() - interval '99 days'")
    retention = Retention(mind.memories._database, keep=timedelta(1), faded=timedelta(30), interval=0.01)
    running = asyncio.create_task(retention.run())
    try:
        async with asyncio.timeout(30):
            while await rows(mind.url, "SELECT 1 FROM memory_traces"):  # noqa: ASYNC110 - it works in the background
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# What turns give back ------------------------------------------------------------------------------------------------


async def test_what_a_reply_has_used_lives_longer_than_what_was_only_told(mind: Mind) -> None:
    for text in ("Ada likes green tea.", "Ada likes mountain bikes.", "Ada likes chess problems."):
        await mind.keep(text)
    found = await mind.recall("What does Ada like?")
    assert sorted(found.feedback) == sorted(memory.trace_id for memory in found.memories)
    before = await told_times(mind)
    await mind.memories.learn(PLACE, [*found.feedback, "mem_gone"], "How about a GREEN tea, or a ride on your bikes?")
    after = await told_times(mind)
    assert {text for text in after if after[text] > before[text]} == {
        "Ada likes green tea.",
        "Ada likes mountain bikes.",
    }
    assert (await mind.recall("Nothing fits this")).feedback is None
    faded = await rows(mind.url, "SELECT strength FROM memory_traces WHERE content LIKE '%chess%'")
    assert faded[0][0] < await mind.strength("Ada likes green tea.") - 0.1


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (
            {"scopes": {"user": True}},
            [("user", "facts", "Ada has a cat."), ("user", "facts", "It is old."), ("user", "todo", "Feed it.")],
        ),
        ({"scopes": {"user": True}, "allowed_categories": ["todo"]}, [("user", "todo", "Feed it.")]),
        ({"scopes": {"user": True}, "allowed_categories": []}, []),
        ({"scopes": {"persona": True}, "store_atomic_docs": False}, [("persona", None, "They spoke of a cat.")]),
        ({"scopes": {"organization": True}, "store_atomic_docs": False}, []),
        (
            {"scopes": {"organization": True}, "share_with_organization": True, "store_atomic_docs": False},
            [("organization", None, "They spoke of a cat.")],
        ),
        ({}, []),
    ],
)
async def test_of_a_summary_is_remembered_what_its_policy_allows_beyond_the_conversation(
    mind: Mind, policy: dict[str, Any], kept: list[tuple[str, str | None, str]]
) -> None:
    memory = {"facts": ["Ada has a cat.", {"text": "It is old."}, 7, " "], "todo": "Feed it.", "gossip": ["No."]}
    summary = NewSummary(
        PLACE, "s", "demo", None, MemoryPolicy().merged(policy), "They spoke of a cat.", memory, 9, None
    )
    await mind.memories.take_summary(summary)
    found = await rows(mind.url, "SELECT scope, category, content, source FROM memory_traces")
    assert sorted(tuple(row)[:3] for row in found) == kept
    assert {row[3] for row in found} <= {"memory_summary"}
    # Word for word the same is not remembered twice.
    await mind.memories.take_summary(summary)
    assert len(await rows(mind.url, "SELECT 1 FROM memory_traces")) == len(kept)


async def links_of(mind: Mind) -> list[tuple[str, dict[str, float]]]:
    """Give the traces that have links, and where they lead, by their contents."""
    found = await rows(mind.url, "SELECT trace_id, content, links FROM memory_traces")
    contents = {row[0]: row[1] for row in found}
    told = [(row[1], {contents[name]: weight for name, weight in json.loads(row[2]).items()}) for row in found]
    return [entry for entry in told if entry[1]]


async def told_times(mind: Mind) -> dict[str, int]:
    return {row[0]: row[1] for row in await rows(mind.url, "SELECT content, recalled FROM memory_traces")}
