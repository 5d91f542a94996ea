"""Metaprompts: when they are due, what they are told and may change, and that no turn waits or fails by them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.domain.persona import MetaPrompt, MoodAdaptation, Persona
from app.domain.session import SessionKey, SessionState
from app.domain.turn import TurnOptions
from app.providers.base import ModelRequest
from app.providers.scripted import Hold, Piece, ScriptedProvider, call
from app.store import sessions
from app.turn.gmi.metaprompts import Change, Evidence, changed_mind, due, read_answer, request_of
from app.turn.gmi.presets import PRESETS
from app.turn.orchestrator.background import Background
from tests.gmi.test_sentiment import tracked
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result, running_stage

EVERY_TWO = MetaPrompt("look", "What was said: {{conversation}} {{nonesuch}}", "turn_interval", interval_turns=2)
WHEN_ASKED = MetaPrompt("ask", "Look.", "manual")
AT_ANGER = MetaPrompt("calm", "{{event}}", "event_based", event_name="user_frustrated")
PERSONA = Persona(
    "p",
    "P",
    "-",
    personality_traits={"patience": 0.5},
    mood_adaptation=MoodAdaptation(enabled=True, allowed_moods=("curious", "empathetic")),
    meta_prompts=(EVERY_TWO, WHEN_ASKED, AT_ANGER),
)


def ids(mind: Mapping[str, Any], *asked: str) -> list[str]:
    return [one.id for one in due(PERSONA, SessionState(mind=mind), asked)]


def test_an_interval_is_due_at_each_of_its_turns_and_once() -> None:
    assert [n for n in range(7) if ids({"turns": n})] == [2, 4, 6]
    assert ids({"turns": 2, "ran": {"look": 2}}) == []


def test_an_event_is_due_at_its_own_turn_alone_and_a_manual_one_when_it_is_asked_for() -> None:
    event = {"event": "user_frustrated", "turn": 3}
    assert ids({"turns": 3, "events": [event]}) == ["calm"]
    assert ids({"turns": 5, "events": [event]}) == []
    assert ids({"turns": 1}, "ask") == ["ask"]
    assert ids({"turns": 1}, "look", "nonesuch") == []


def test_what_a_model_is_asked_names_what_may_be_changed_and_shows_what_was_said() -> None:
    system, user = request_of(EVERY_TWO, PERSONA, SessionState(), Evidence(["user: {{trace}}"], ["secret"]))
    assert "one of: curious, empathetic)" in str(system.content)
    assert "the traits are: patience)" in str(system.content)
    assert user.content == "What was said: user: {{trace}} "


def test_an_answer_changes_what_it_may_and_nothing_else() -> None:
    given = {
        "updated_gmi_mood": "Curious",
        "updated_user_skill_level": "expert",
        "updated_task_complexity": 7,
        "updated_traits": {"patience": 0.9, "greed": 1.0, "humor": "much"},
        "new_memory_imprints": [
            {"key": "likes", "value": "Klimt"},
            {"key": "not a key", "value": 1},
            {"key": "large", "value": "x" * 2000},
            "nothing",
        ],
    }
    change = read_answer(f"```json\n{json.dumps(given)}\n```", PERSONA)

    assert (change.mood, change.user_context, change.task_context) == ("curious", {"skill_level": "expert"}, {})
    assert (change.traits, change.imprints) == ({"patience": 0.9}, {"likes": "Klimt"})
    assert read_answer('{"updated_gmi_mood": "helpful"}', PERSONA).names == []
    assert read_answer('{"updated_gmi_mood": "frustrated"}', PERSONA).names == []
    for text in ("", "I feel fine", "[1]"):
        with pytest.raises(ValueError, match=r"object|char|Expecting|EOF|JSON"):
            read_answer(text, PERSONA)


def test_an_event_that_was_consumed_is_gone_and_one_that_nobody_listens_to_stays() -> None:
    mind = {"events": [{"event": "user_frustrated", "turn": 1}, {"event": "low_engagement", "turn": 1}]}
    new = changed_mind(mind, [], [AT_ANGER, EVERY_TWO], 2)
    assert new["events"] == [{"event": "low_engagement", "turn": 1}]
    assert new["ran"] == {"look": 2}


def test_the_oldest_notes_go_and_no_trait_does() -> None:
    many = {f"n{number}": 0.5 for number in range(25)}
    new = changed_mind({"traits": many, "imprints": many}, [Change(traits={"n0": 1.0}, imprints={"new": 1})], [], 2)

    assert new["traits"] == {**many, "n0": 1.0}
    assert list(new["imprints"]) == [*(f"n{number}" for number in range(6, 25)), "new"]


def test_presets_are_five_and_a_personas_own_of_the_same_id_wins(tmp_path: Path) -> None:
    from app.turn.gmi.personas import load_personas

    own = {"id": "gmi_error_recovery", "prompt": "Mine.", "trigger": "manual"}
    tracked(tmp_path, sentiment_tracking={"enabled": True, "presets": ["all"]}, meta_prompts=[own])

    found = load_personas(tmp_path)["demo"].meta_prompts

    assert len(found) == len(PRESETS) == 5
    assert [one.prompt for one in found if one.id == "gmi_error_recovery"] == ["Mine."]


# In turns -----------------------------------------------------------------------------------------------------------


def reflects(request: ModelRequest) -> bool:
    """Tell whether a request is a metaprompt's."""
    return request.response_format == {"type": "json_object"}


class Mind:
    """A model that answers everybody with Ok, and metaprompts with what it is told to; `hold` keeps those waiting."""

    def __init__(self) -> None:
        self.answer: Any = {}
        self.calls: list[Piece] = []
        self.hold: Hold | None = None

    def __call__(self, request: ModelRequest) -> Sequence[Piece] | str:
        if reflects(request):
            text = self.answer if isinstance(self.answer, str) else json.dumps(self.answer)
            return text if self.hold is None else [self.hold, text]
        if self.calls:
            return [self.calls.pop()]
        return "Ok."


@asynccontextmanager
async def thinking(database: str, folder: Path, mind: Mind, *prompts: MetaPrompt, **more: Any) -> AsyncIterator[Stage]:
    given = [{name: getattr(one, name) for name in one.__slots__ if getattr(one, name) is not None} for one in prompts]
    settings = tracked(
        folder,
        meta_prompts=given,
        personality_traits={"patience": 0.5},
        mood_adaptation={"enabled": True, "mood_prompts": {"curious": "Wonder."}},
        **more,
    )
    async with running_stage(database, ScriptedProvider([mind] * 50), **settings) as stage:
        yield stage


async def settled(stage: Stage) -> SessionState:
    """Wait until nothing is thought of any more, and give the session."""
    services = stage.runtime._services
    async with asyncio.timeout(20):
        await services.background.settled()
    key = SessionKey.of(ADA, CHAT)
    return await services.database.read(lambda connection: sessions.find(connection, key))


def asked(stage: Stage) -> int:
    return sum(map(reflects, stage.provider.requests))


@requirement("R263")
async def test_what_is_found_out_behind_a_turn_is_part_of_the_next_prompt(tmp_path: Path, shared_database: str) -> None:
    mind = Mind()
    mind.answer = {
        "updated_gmi_mood": "curious",
        "updated_user_skill_level": "expert",
        "updated_traits": {"patience": 0.9},
        "new_memory_imprints": [{"key": "likes", "value": "Klimt"}],
    }
    async with thinking(shared_database, tmp_path, mind, EVERY_TWO) as stage:
        await stage.play("One")
        assert (await settled(stage)).mood == ""
        await stage.play("Two")
        state = await settled(stage)
        assert (state.mood, state.user_context, state.traits) == (
            "curious",
            {"skill_level": "expert"},
            {"patience": 0.9},
        )
        assert asked(stage) == 1
        request = next(filter(reflects, stage.provider.requests))
        assert str(request.messages[1].content).startswith("What was said: user: One\nassistant: Ok.\nuser: Two\n")

        await stage.play("Three")
        told = stage.provider.requests[-1].messages
        assert "patience 0.9" in str(told[0].content)
        assert "Wonder." in str(told[0].content)
        assert '<memory>\nlikes: "Klimt"\n</memory>\n\nThree' in str(told[-1].content)
        page = await stage.runtime.session_trace(ADA, CHAT, cursor=None, limit=200, descending=False)
        (entry,) = [entry for entry in page.items if entry.type == "metaprompts_run"]
        assert entry.details == {
            "metaprompts": ["look"],
            "answered": 1,
            "changed": ["imprints", "mood", "traits", "user_context"],
        }
        usage = await stage.runtime.stream_usage(ADA, entry.stream_id)
        assert [request.purpose for request in usage.requests] == ["turn", "metaprompt"]


async def test_an_event_or_a_turn_that_asks_for_it_runs_one(tmp_path: Path, shared_database: str) -> None:
    mind = Mind()
    async with thinking(shared_database, tmp_path, mind, WHEN_ASKED, AT_ANGER) as stage:
        await stage.play("The meeting is at noon.")
        await settled(stage)
        assert asked(stage) == 0
        await stage.play("This is terrible, I hate it!")
        assert (await settled(stage)).mind["events"] == []
        assert asked(stage) == 1
        await stage.play("Hm", options=TurnOptions(custom_flags={"metaprompts": ["ask"]}))
        await settled(stage)
        assert asked(stage) == 2


async def test_a_turn_that_pauses_is_reflected_upon_when_it_is_answered(tmp_path: Path, shared_database: str) -> None:
    mind = Mind()
    every = MetaPrompt("each", "Look.", "turn_interval", interval_turns=1)
    async with thinking(shared_database, tmp_path, mind, every) as stage:
        mind.calls = [call(WEATHER.name, {"city": "Wien"}, id="c1")]
        chunks = await stage.play("Weather?", tools=[WEATHER])
        await settled(stage)
        assert asked(stage) == 0
        await stage.pass_results(chunks[-1]["stream_id"], result("c1"))
        assert (await settled(stage)).mind["turns"] == 1
        assert asked(stage) == 1


@pytest.mark.parametrize("answer", ["I feel fine.", "", '{"updated_gmi_mood": "hungry"}'])
async def test_an_answer_that_is_of_no_use_changes_nothing_and_fails_nobody(
    answer: str, tmp_path: Path, shared_database: str
) -> None:
    mind = Mind()
    mind.answer = answer
    async with thinking(shared_database, tmp_path, mind, EVERY_TWO) as stage:
        for text in ("One", "Two", "Three"):
            assert (await stage.play(text))[-1]["type"] == "final_response"
            await settled(stage)  # else what is thought of one turn may already see the next
        state = await settled(stage)
        assert (state.mood, dict(state.user_context), asked(stage)) == ("", {}, 1)
        assert state.mind["ran"] == {"look": 2}


async def test_a_turn_is_answered_while_it_is_thought_of_and_what_was_erased_meanwhile_stays_erased(
    tmp_path: Path, shared_database: str
) -> None:
    mind = Mind()
    mind.answer, mind.hold = {"updated_gmi_mood": "curious"}, Hold()
    async with thinking(shared_database, tmp_path, mind, WHEN_ASKED) as stage:
        chunks = await stage.play("One", options=TurnOptions(custom_flags={"metaprompts": ["ask"]}))
        assert chunks[-1]["type"] == "final_response"
        async with asyncio.timeout(20):
            await mind.hold.reached.wait()
        await stage.runtime.delete_conversation(ADA, CHAT)
        mind.hold.release()
        assert await settled(stage) == SessionState()


async def test_a_drain_waits_for_what_is_thought_of_and_no_longer_than_it_may(
    tmp_path: Path, shared_database: str
) -> None:
    mind = Mind()
    mind.answer, mind.hold = {"updated_gmi_mood": "curious"}, Hold()
    async with thinking(shared_database, tmp_path, mind, WHEN_ASKED) as stage:
        await stage.play("One", options=TurnOptions(custom_flags={"metaprompts": ["ask"]}))
        async with asyncio.timeout(20):
            await mind.hold.reached.wait()
        draining = asyncio.create_task(stage.runtime.drain())
        mind.hold.release()
        await draining
        assert not stage.runtime._services.background._last
        assert (await settled(stage)).mood == "curious"


async def test_work_behind_an_end_is_done_in_order_and_cut_short_at_the_end_of_the_process() -> None:
    background, done, never = Background(), [], asyncio.Event()

    async def work(name: str) -> None:
        if name == "stuck":
            await never.wait()
        done.append(name)

    for name in ("a", "b", "stuck", "c"):
        background.start("session", work(name), name)
    background.start("other", work("x"), "x")
    await background.stop(seconds=0.2)

    assert sorted(done) == ["a", "b", "x"]
    assert background._last == {}


async def test_notes_that_a_persona_begins_with_are_told_until_one_of_that_key_is_made(
    tmp_path: Path, shared_database: str
) -> None:
    mind = Mind()
    mind.answer = {"new_memory_imprints": [{"key": "likes", "value": "Klimt"}]}
    start = {"imprints": {"likes": "nothing yet", "school": {"city": "Graz"}}}
    async with thinking(shared_database, tmp_path, mind, EVERY_TWO, session_start=start) as stage:
        await stage.play("One")
        first = str(stage.provider.requests[-1].messages[-1].content)
        assert '<memory>\nlikes: "nothing yet"\nschool: {"city":"Graz"}\n</memory>\n\nOne' in first
        await stage.play("Two")
        state = await settled(stage)
        assert state.mind["imprints"] == {"likes": "Klimt"}
        await stage.play("Three")
        told = str(stage.provider.requests[-1].messages[-1].content)
        assert '<memory>\nlikes: "Klimt"\nschool: {"city":"Graz"}\n</memory>\n\nThree' in told
