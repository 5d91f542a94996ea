"""Long-term memory in turns: what may be used, when it is looked for, how much is told, and what is kept of that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.domain.errors import UnavailableError
from app.domain.memory import Memory, MemoryPlace, NewMemory, Recall, Recalled
from app.domain.memory_policy import (
    RECALL_PROFILES,
    MemoryPolicy,
    NewSummary,
    RecallPolicy,
    Review,
    recall_policy,
    review_due,
)
from app.providers.errors import failure
from app.providers.scripted import call
from app.turn.preparation.setting import RecallSetting
from tests.conversation.talking import ROLLING, add, has_said, record_of, routing, said, talking
from tests.stage import ADA, CHAT, WEATHER, Stage, one, running_stage, types

USER = {"scopes": {"user": True}}


@dataclass
class Remembering:
    """A long-term memory that says what it is told to say, and keeps what it was asked."""

    text: str = "Ada likes tea."
    fails: bool = False
    asked: list[Recall] = field(default_factory=list)

    async def recall(self, wanted: Recall) -> Recalled:
        self.asked.append(wanted)
        if self.fails:
            raise UnavailableError
        memories = (Memory("t1", "user", "semantic", self.text),) if self.text else ()
        return Recalled(memories, self.text, {"found": len(memories)})

    async def remember(self, notes: Sequence[NewMemory]) -> tuple[Memory, ...]:
        del notes
        return ()


@dataclass
class Learning(Remembering):
    """One that also wants to know what came of it, and takes summaries; it fails at both when it is told to."""

    breaks: bool = False
    learned: list[tuple[MemoryPlace, Any, str]] = field(default_factory=list)
    summaries: list[NewSummary] = field(default_factory=list)

    async def recall(self, wanted: Recall) -> Recalled:
        return replace(await super().recall(wanted), feedback={"ask": len(self.asked)})

    async def learn(self, place: MemoryPlace, feedback: Any, reply: str) -> None:
        self.learned.append((place, feedback, reply))
        if self.breaks:
            raise UnavailableError

    async def take_summary(self, summary: NewSummary) -> None:
        self.summaries.append(summary)
        if self.breaks:
            raise UnavailableError


async def told(stage: Stage, text: str = "What do I like?", **more: Any) -> dict[str, Any]:
    """Run a turn and give what the routing block tells of memory."""
    stage.provider.add("Tea.")
    chunks = await stage.play(text, **more)
    (found,) = [c["updates"] for c in chunks if "long_term_memory_retrieval" in c.get("updates", {})]
    return dict(found)


def last_input(stage: Stage) -> str:
    return str(stage.provider.requests[-1].messages[-1].content)


# Policies -----------------------------------------------------------------------------------------------------------


def test_a_policy_is_merged_switch_by_switch_and_what_is_not_known_is_let_be() -> None:
    stored = MemoryPolicy().merged({"enabled": "no", "scopes": {"user": True, "moon": True, "persona": 1}})
    assert (stored.enabled, stored.beyond, stored.readable) == (True, ("user",), ("conversation", "user"))
    asked = stored.merged(
        {"enabled": False, "scopes": {"conversation": False}, "allowed_categories": [" Facts", "facts", "gossip", 7]}
    )
    assert (asked.enabled, asked.readable, asked.allowed_categories) == (False, ("user",), ("facts",))
    assert asked.merged({"allowed_categories": []}).allowed_categories == ()
    assert asked.merged({"allowed_categories": None}).allowed_categories == ("facts",)
    assert MemoryPolicy().merged(asked.to_json()) == asked
    assert MemoryPolicy().to_json() == {
        "enabled": True,
        "scopes": {"conversation": True, "user": False, "persona": False, "organization": False},
        "share_with_organization": False,
        "store_atomic_docs": True,
        "allowed_categories": None,
        "retrieval": None,
    }


@pytest.mark.parametrize(
    ("profile", "found"),
    [
        ("aggressive", (2, True, 4200, 8)),
        ("balanced", (4, True, 3200, 6)),
        ("conservative", (8, False, 2200, 4)),
        ("unheard-of", (2, True, 4200, 8)),
    ],
)
def test_each_recall_profile_has_its_numbers(profile: str, found: tuple[Any, ...]) -> None:
    policy = recall_policy(profile)
    assert (policy.cadence_turns, policy.force_on_compaction, policy.max_characters, policy.top_k) == found


def test_what_is_set_over_a_profile_is_brought_within_bounds() -> None:
    wild = recall_policy("balanced", {"cadence_turns": 0, "max_characters": 99_999, "top_k": 3.9})
    assert (wild.cadence_turns, wild.max_characters, wild.top_k) == (1, 12_000, 3)
    odd = recall_policy("balanced", {"cadence_turns": "2", "top_k": float("nan"), "force_on_compaction": "no"})
    assert odd == RECALL_PROFILES["balanced"]
    assert RecallSetting().policy() == RecallPolicy()
    assert RecallSetting(profile="conservative", top_k=9).policy() == RecallPolicy("conservative", 8, False, 2200, 9)


@pytest.mark.parametrize(
    ("last", "turn", "compacted", "found"),
    [
        (None, 1, False, (True, "initial_review")),
        (Review(1, "t"), 2, False, (False, "cadence_not_due")),
        (Review(1, "t"), 3, False, (True, "cadence_due")),
        (Review(1, "t"), 2, True, (True, "forced_on_compaction")),
        (Review(9, "t"), 2, False, (False, "cadence_not_due")),
    ],
)
def test_a_review_is_due_first_by_cadence_and_after_a_compaction(
    last: Review | None,
    turn: int,
    compacted: bool,  # noqa: FBT001 - a case of the table
    found: tuple[bool, str],
) -> None:
    assert review_due(RecallPolicy(), last, turn, compacted=compacted) == found


# Whole turns --------------------------------------------------------------------------------------------------------


async def test_what_is_remembered_is_told_as_data_beside_the_input_when_a_scope_beyond_is_on(
    shared_database: str,
) -> None:
    memory = Remembering()
    async with running_stage(shared_database, memory=memory) as stage:
        plain = await told(stage)
        assert plain["long_term_memory_retrieval"]["review_reason"] == "retriever_not_applicable"
        assert memory.asked == []
        found = await told(stage, long_term_memory=USER)
        assert found["long_term_memory_policy"]["scopes"]["user"] is True
        assert found["long_term_memory_recall"]["cadence_turns"] == 2
        assert found["long_term_memory_retrieval"] == {
            "should_review": True,
            "review_reason": "initial_review",
            "did_retrieve": True,
            "context_chars": 14,
            "diagnostics": {"found": 1},
        }
        assert "Ada likes tea." in last_input(stage)
        (asked,) = memory.asked
        assert (asked.place.caller, asked.place.persona_id, asked.query) == (ADA, "demo", "What do I like?")
        assert (asked.scopes, asked.categories, asked.top_k, asked.max_characters) == (("user",), None, 8, 4200)


async def test_memory_is_looked_for_every_second_turn_over_processes_and_the_policy_is_kept(
    shared_database: str,
) -> None:
    memory = Remembering(text=" ")
    reasons = []
    for turn in range(5):
        async with running_stage(shared_database, memory=memory) as stage:
            found = await told(stage, long_term_memory=USER if turn == 0 else None)
            reasons.append(found["long_term_memory_retrieval"]["review_reason"])
            assert found["long_term_memory_retrieval"]["did_retrieve"] is False
            assert found["long_term_memory_policy"]["scopes"]["user"] is True
    assert reasons == ["initial_review", "cadence_not_due", "cadence_due", "cadence_not_due", "cadence_due"]
    assert len(memory.asked) == 3


async def test_a_memory_that_fails_does_not_fail_the_turn(shared_database: str) -> None:
    async with running_stage(shared_database, memory=Remembering(fails=True)) as stage:
        found = (await told(stage, long_term_memory=USER))["long_term_memory_retrieval"]
        assert (found["review_reason"], found["should_review"], found["did_retrieve"]) == (
            "retrieval_error",
            True,
            False,
        )
        # The review counts: the next turn does not ask again at once.
        assert (await told(stage))["long_term_memory_retrieval"]["review_reason"] == "cadence_not_due"


@pytest.mark.parametrize(
    "given", [{"enabled": False, **USER}, {"scopes": {"conversation": True}}, {"scopes": {"user": False}}]
)
async def test_a_policy_that_allows_nothing_beyond_the_conversation_recalls_nothing(
    shared_database: str, given: Mapping[str, Any]
) -> None:
    memory = Remembering()
    async with running_stage(shared_database, memory=memory) as stage:
        found = (await told(stage, long_term_memory=given))["long_term_memory_retrieval"]
        assert found == {"should_review": False, "review_reason": "retriever_not_applicable", "did_retrieve": False}
    assert memory.asked == []


async def test_a_turn_bounds_what_is_recalled_within_what_the_service_allows(shared_database: str) -> None:
    memory = Remembering(text="x" * 9000)
    given = {**USER, "allowed_categories": ["facts"], "retrieval": {"top_k": 99, "max_characters": 10}}
    async with running_stage(
        shared_database, memory=memory, long_term_memory_recall={"profile": "conservative"}
    ) as stage:
        found = (await told(stage, long_term_memory=given))["long_term_memory_retrieval"]
        assert found["context_chars"] == 300
        assert (memory.asked[0].top_k, memory.asked[0].categories) == (50, ("facts",))


async def test_without_a_memory_nothing_is_asked_or_kept(stage: Stage) -> None:
    found = await told(stage, long_term_memory=USER)
    assert found["long_term_memory_policy"] is None
    assert found["long_term_memory_retrieval"] is None


async def test_a_planned_turn_finds_memories_beside_its_tools_and_tells_them_as_data(shared_database: str) -> None:
    memory = Remembering()
    quiet = {"turn_planning": {}, "long_term_memory_recall": {"cadence_turns": 100}}
    async with running_stage(shared_database, memory=memory, **quiet) as stage:  # type: ignore[arg-type]
        await told(stage, long_term_memory=USER)
        memory.text = "Ada has a cat."
        found = await told(stage, "Do I have a pet?")
        assert found["turn_planning"]["discovery"]["found"] == ["memory:t1"]
        assert found["long_term_memory_retrieval"]["did_retrieve"] is False
        assert "Ada has a cat." in last_input(stage)
        assert "Ada has a cat." not in str(stage.provider.requests[-1].messages[0].content)


# What memory is given back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_memory_is_told_the_reply_that_came_of_what_it_gave_and_its_failure_harms_no_turn(
    shared_database: str,
    breaks: bool,  # noqa: FBT001 - a case of the table
) -> None:
    memory = Learning(breaks=breaks)
    every = {"long_term_memory_recall": {"cadence_turns": 1}}
    async with running_stage(shared_database, memory=memory, **every) as stage:  # type: ignore[arg-type]
        await told(stage, long_term_memory=USER)
        stage.provider.add([failure("invalid_request", "scripted", "no")])
        assert "error" in types(await stage.play("And now?"))
        stage.provider.add("")
        await stage.play("Nothing?")
        stage.provider.add([call(WEATHER.name, {"city": "Rome"}, id="w1")])
        assert one(await stage.play("What is the weather?", tools=[WEATHER]), "tool_call_request")["tool_calls"]
        memory.text = ""
        await told(stage, "Did you find anything?")
        memory.text = "Ada likes tea."
        await told(stage, "Once more?")
        await settled(stage)
        assert len(memory.asked) == 6
        # Neither the turn that failed nor the one without words, nor the pause, nor what found nothing.
        assert [(place.conversation_id, feedback, reply) for place, feedback, reply in memory.learned] == [
            (CHAT, {"ask": 1}, "Tea."),
            (CHAT, {"ask": 6}, "Tea."),
        ]


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_memory_is_given_the_summaries_that_its_policy_allows(
    shared_database: str,
    breaks: bool,  # noqa: FBT001 - a case of the table
) -> None:
    memory = Learning(breaks=breaks)
    async with talking(shared_database, memory=memory, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(8))
        for given in ({"enabled": False}, {"enabled": True, "scopes": {"conversation": False}}):
            assert one(await stage.play("More", long_term_memory=given), "final_response")
            await has_more(shared_database)
        await settled(stage)
        assert memory.summaries == []
        chunks = await stage.play("More", long_term_memory=USER)
        assert routing(chunks)["rolling_summary"]["did_compact"] is True
        await settled(stage)
        (summary,) = memory.summaries
        record = await record_of(shared_database)
        assert record is not None
        assert (summary.text, summary.upto) == (record.text, record.covers[-1][1])
        assert (summary.place.caller, summary.session_id, summary.mode) == (ADA, CHAT, "demo")
        assert summary.policy.beyond == ("user",)
        # A turn that makes no summary gives none.
        assert routing(await stage.play("Last"))["rolling_summary"]["did_compact"] is False
        await settled(stage)
        assert len(memory.summaries) == 1


async def settled(stage: Stage) -> None:
    await stage.runtime._services.background.settled()


async def has_more(database: str) -> None:
    """Let the conversation have so many more messages that the next turn makes a summary."""
    await add(database, *said(8, 100))
