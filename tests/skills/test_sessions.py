"""Session overrides and skills in whole turns: laid over a turn before it starts, kept, and changed within bounds."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError, InvalidStateError, NotFoundError, TooLargeError, ValidationError
from app.domain.overrides import OverridesChange
from app.domain.skills import OFF
from app.domain.turn import Caller, TurnOptions
from app.providers.scripted import Hold, ScriptedProvider, call
from tests.databases import rows
from tests.gmi.keeping import persona, prompt
from tests.requirements import requirement
from tests.skills.making import write_skill
from tests.stage import ADA, CHAT, WEATHER, Stage, one, result, running_stage, turn_input, wire

ON: dict[str, Any] = {"session_overrides": True}


async def change(stage: Stage, session: str = CHAT, caller: Caller = ADA, **changes: Any) -> Any:
    return await stage.runtime.change_session_overrides(caller, session, OverridesChange(**changes))


def answers(stage: Stage) -> list[str]:
    """Give what the tools have answered, as the last request tells it."""
    return [message["content"] for message in wire(stage.provider.requests[-1]) if message["role"] == "tool"]


@requirement("R11")
async def test_a_sessions_options_and_preferences_are_laid_over_its_turns_and_a_turns_own_win(
    shared_database: str,
) -> None:
    async with running_stage(shared_database, **ON) as stage:
        stage.provider.add(*["Hello."] * 4)
        await stage.play("Hi.", user_context={"preferences": {"tone": "warm", "units": "metric"}})
        before = prompt(stage)
        await change(stage, options={"temperature": 0.2, "max_tokens": 50}, preferences={"tone": "dry"})
        await stage.play("Hi.")
        request, told = stage.provider.requests[-1], prompt(stage)
        own = TurnOptions(temperature=0.9)
        await stage.play("Hi.", options=own, user_context={"preferences": {"tone": "loud"}})
        last = stage.provider.requests[-1]

        assert '"tone":"warm"' in before
        assert (request.temperature, request.max_tokens) == (0.2, 50)
        assert '"preferences":{"tone":"dry","units":"metric"}' in told
        assert (last.temperature, last.max_tokens) == (0.9, 50)
        assert '"tone":"loud"' in prompt(stage)
        # What a session prefers is told and not stored with what is known of the user: it can be taken back.
        await change(stage, preferences={"tone": None}, options={"temperature": None})
        await stage.play("Hi.")
        assert stage.provider.requests[-1].temperature is None
        assert '"tone":"loud"' in prompt(stage)


@requirement("R11")
async def test_overrides_outlive_the_process_and_hold_on_each_replica_for_that_users_session_alone(
    shared_database: str,
) -> None:
    async with running_stage(shared_database, **ON) as first:
        await change(first, "s", options={"temperature": 0.1})
    async with running_stage(shared_database, **ON) as stage, running_stage(shared_database, **ON) as other:
        for replica in (stage, other):
            replica.provider.add("Hello.", "Hello.")
            await replica.play("Hi.", session="s", conversation=f"c-{id(replica)}")
            assert replica.provider.requests[-1].temperature == 0.1
        await stage.play("Hi.", session="s", conversation="eve-1", caller=Caller("eve"))
        assert stage.provider.requests[-1].temperature is None
        await stage.runtime.reset_session_overrides(ADA, "s")
        await other.play("Hi.", session="s", conversation="c-3")
        assert other.provider.requests[-1].temperature is None
        assert (await stage.runtime.session_overrides(ADA, "s")).options == {}


async def test_a_continuation_goes_on_with_what_its_turn_had(shared_database: str) -> None:
    async with running_stage(shared_database, **ON) as stage:
        stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Sunny.")
        await change(stage, options={"temperature": 0.2}, preferences={"tone": "dry"})
        stream_id = one(await stage.play("Weather?", tools=[WEATHER]), "tool_call_request")["stream_id"]
        told = prompt(stage)
        await change(stage, options={"temperature": 1.5}, preferences={"tone": "warm"})
        await stage.pass_results(stream_id, result("c1"))

        assert stage.provider.requests[-1].temperature == 0.2
        assert prompt(stage) == told


@requirement("R12")
async def test_a_sessions_skills_are_in_its_prompt_and_those_that_are_off_are_named(
    shared_database: str, tmp_path: Path
) -> None:
    write_skill(tmp_path, "tidy", "Sweep first.")
    write_skill(tmp_path, "cook", "Salt last.")
    async with running_stage(shared_database, skills_dir=tmp_path) as stage:
        stage.provider.add(*["Hello."] * 4)
        assert [skill.skill_id for skill in stage.runtime.skills()] == ["cook", "tidy"]
        await stage.play("Hi.")
        assert "Sweep" not in prompt(stage)
        shown = await change(stage, enable_skills=("skill:Tidy",))
        await stage.play("Hi.")
        assert (shown.enabled_skills, shown.disabled_skills) == (("tidy",), ())
        assert "## tidy\nWhat tidy is for.\n\nSweep first." in prompt(stage)
        shown = await change(stage, disable_skills=("tidy",))
        await stage.play("Hi.")
        assert (shown.enabled_skills, shown.disabled_skills) == ((), ("tidy",))
        assert "Sweep" not in prompt(stage)
        assert f"{OFF} tidy." in prompt(stage)
        with pytest.raises(ValidationError, match="'dance'"):
            await change(stage, enable_skills=("tidy", "dance"))
        await stage.runtime.reset_session_overrides(ADA, CHAT)
        await stage.play("Hi.")
        assert "tidy" not in prompt(stage)


async def test_a_personas_own_skills_are_on_until_the_session_switches_them_off(
    shared_database: str, tmp_path: Path
) -> None:
    write_skill(tmp_path / "skills", "tidy", "Sweep first.")
    (tmp_path / "personas").mkdir()
    own = persona(tmp_path / "personas", skills="[tidy]")
    async with running_stage(shared_database, skills_dir=tmp_path / "skills", **own) as stage:
        stage.provider.add("Hello.", "Hello.")
        await stage.play("Hi.")
        assert "Sweep first." in prompt(stage)
        await change(stage, disable_skills=("tidy",))
        await stage.play("Hi.")
        assert "Sweep first." not in prompt(stage)
        assert stage.runtime.persona("p").skills == ("tidy",)


async def test_where_overrides_are_off_they_are_refused_and_a_turn_asks_for_none(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.")

    with pytest.raises(NotFoundError):
        await stage.runtime.session_overrides(ADA, CHAT)
    with pytest.raises(InvalidStateError, match="FERMATA_SESSION_OVERRIDES"):
        await change(stage, options={"temperature": 0.2})
    assert stage.runtime.skills() == ()


async def test_a_turn_to_which_its_session_adds_nothing_is_the_same_object(shared_database: str) -> None:
    async with running_stage(shared_database, **ON) as stage:
        turn, lay_over = turn_input("Hi."), stage.runtime._overrides.lay_over
        persona = stage.runtime._services.personas.known("demo")
        assert await lay_over(turn, persona) is turn
        await change(stage, options={"temperature": 0.2})
        assert (await lay_over(turn, persona)).options.temperature == 0.2
        assert turn.options.temperature is None
        await change(stage, options={"temperature": None})
        assert await lay_over(turn, persona) is turn


async def test_with_persistence_off_nothing_is_kept_of_a_session(shared_database: str) -> None:
    async with running_stage(shared_database, enable_conversational_persistence=False, **ON) as stage:
        with pytest.raises(InvalidStateError, match="PERSISTENCE"):
            await change(stage, options={"temperature": 0.2})
        assert await rows(shared_database, "SELECT 1 FROM session_state") == []


async def test_overrides_are_bounded_and_go_with_the_sessions_last_conversation(shared_database: str) -> None:
    async with running_stage(shared_database, **ON) as stage:
        stage.provider.add("Hello.")
        await change(stage, preferences={"tone": "dry"})
        with pytest.raises(TooLargeError):
            await change(stage, preferences={"more": "x" * 20_000})
        assert (await stage.runtime.session_overrides(ADA, CHAT)).preferences == {"tone": "dry"}
        await stage.play("Hi.")
        await stage.runtime.delete_conversation(ADA, CHAT)
        assert (await stage.runtime.session_overrides(ADA, CHAT)).preferences == {}


# What a persona changes of itself -----------------------------------------------------------------------------------

BOUNDS = "{least_temperature: 0.2, most_temperature: 0.8, preferences: [verbosity], skills: [tidy], most_changes: 3}"
TOOLS = "[adapt_session, manage_skills, read_skill]"


def settings(folder: Path) -> dict[str, Any]:
    write_skill(folder / "skills", "tidy", "Sweep first." + " Then wipe." * 300)
    write_skill(folder / "skills", "cook")
    (folder / "skills/tidy/more.txt").write_text("Polish.")
    (folder / "personas").mkdir(exist_ok=True)
    return {"skills_dir": folder / "skills", **persona(folder / "personas", tools=TOOLS, self_improvement=BOUNDS)}


async def test_a_persona_changes_itself_by_its_tools_within_its_bounds_and_only_so_often(
    shared_database: str, tmp_path: Path
) -> None:
    adapt = "adapt_session"
    async with running_stage(shared_database, **settings(tmp_path)) as stage:
        stage.provider.add(
            [
                call(adapt, {"name": "temperature", "value": 1.5}, id="a"),
                call(adapt, {"name": "temperature", "value": 0.5}, id="b"),
                call(adapt, {"name": "mood", "value": "bad"}, id="c"),
                call("manage_skills", {"action": "enable", "skill": "cook"}, id="d"),
                call("manage_skills", {"action": "enable", "skill": "tidy"}, id="e"),
                call("manage_skills", {"action": "enable"}, id="f"),
            ],
            [call(adapt, {"name": "verbosity", "value": " low "}, id="g")],
            [call(adapt, {"name": "verbosity", "value": "high"}, id="h")],
            "Done.",
            "Hello.",
        )
        await stage.play("Change.")
        said = answers(stage)
        assert "between 0.2 and 0.8" in said[0]
        assert ["changed" in text for text in said] == [False, True, False, False, True, False, True, False]
        assert "may set: verbosity" in said[2]
        assert "may switch: tidy" in said[3]
        assert "3 times" in said[7]

        await stage.play("And now?")
        assert [request.temperature for request in stage.provider.requests] == [None, None, None, None, 0.5]
        assert '"verbosity":"low"' in prompt(stage)
        assert "Sweep first." in prompt(stage)
        shown = await stage.runtime.session_overrides(ADA, CHAT)
        assert shown.own_changes == 3
        # The persona is shared: another session has it as its file says.
        stage.provider.add("Hello.")
        await stage.play("Hi.", session="other", conversation="other")
        assert stage.provider.requests[-1].temperature is None


async def test_a_persona_reads_a_skill_in_full_and_its_files_unless_it_is_off(
    shared_database: str, tmp_path: Path
) -> None:
    async with running_stage(shared_database, **settings(tmp_path)) as stage:
        await change(stage, disable_skills=("cook",))
        stage.provider.add(
            [
                call("read_skill", {"skill": "tidy"}, id="a"),
                call("read_skill", {"skill": "tidy", "path": "more.txt"}, id="b"),
                call("read_skill", {"skill": "tidy", "path": "../../personas/p.yaml"}, id="c"),
                call("read_skill", {"skill": "cook"}, id="d"),
                call("manage_skills", {"action": "list"}, id="e"),
            ],
            "Done.",
        )
        await stage.play("Read.")
        said = answers(stage)
        assert said[0].count("Then wipe.") == 300
        assert "Polish." in said[1]
        assert "no text file" in said[2]
        assert "no skill" in said[3]
        assert '{"skill":"tidy","description":"What tidy is for.","on":false}' in said[4]


async def test_two_changes_at_once_are_both_kept(shared_database: str, tmp_path: Path) -> None:
    async with (
        running_stage(shared_database, **settings(tmp_path)) as first,
        running_stage(shared_database, **settings(tmp_path)) as second,
    ):
        both = zip("ab" * 10, (first, second) * 10, strict=True)
        await asyncio.gather(
            *(change(stage, preferences={f"{name}{place}": place}) for place, (name, stage) in enumerate(both))
        )
        assert len((await first.runtime.session_overrides(ADA, CHAT)).preferences) == 20


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"skills": "[dance]"}, "FERMATA_SKILLS_DIR does not have: dance"),
        ({"self_improvement": "{preferences: [a]}"}, "FERMATA_SESSION_OVERRIDES"),
    ],
)
async def test_a_persona_that_could_not_have_its_way_is_refused_at_the_start(
    shared_database: str, tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        async with running_stage(shared_database, **persona(tmp_path, **more)):
            pass


async def test_overrides_that_are_taken_back_from_a_session_that_never_was_make_none(shared_database: str) -> None:
    async with running_stage(shared_database, **ON) as stage:
        await stage.runtime.reset_session_overrides(ADA, "never")
        assert await rows(shared_database, "SELECT 1 FROM session_state") == []


async def test_a_turn_that_is_run_again_elsewhere_has_what_its_session_had_when_it_was_accepted(
    shared_database: str, tmp_path: Path
) -> None:
    write_skill(tmp_path, "tidy", "Sweep first.")
    times: dict[str, Any] = {"lease_seconds": 2, "lease_renew_seconds": 1, "skills_dir": tmp_path}
    hold = Hold()
    async with running_stage(shared_database, ScriptedProvider([[hold, "Never."], "Hello."]), **times) as first:
        await change(first, enable_skills=("tidy",), options={"temperature": 0.3}, preferences={"tone": "dry"})
        started = await first.runtime.start_turn(turn_input("Hi."))
        async with asyncio.timeout(20):
            await hold.reached.wait()
        await first.runtime.reset_session_overrides(ADA, CHAT)
        async with running_stage(shared_database, ScriptedProvider(["Hello."]), **times) as second:
            gone = first.runtime._services.lease.id
            await rows(shared_database, "UPDATE replicas SET dead = true WHERE id = $1", gone)
            async with asyncio.timeout(30):
                async for _ in await second.runtime.open_operation(started):
                    pass
            # The process that was given up may be the one that runs it again, under its new name.
            before, again = [*first.provider.requests, *second.provider.requests]
            assert again.messages == before.messages
            assert (before.temperature, again.temperature) == (0.3, 0.3)
            assert "Sweep first." in str(again.messages[0].content)
