"""Prompt profiles: the preset that a turn's mode and words ask for, how long it holds, and where it is told."""

from pathlib import Path
from typing import Any

import pytest

from app.domain.profiles import ProfilesPolicy, ProfileState, select
from app.domain.turn import TurnOptions
from app.turn.preparation.setting import ProfilesSetting
from tests.gmi.keeping import persona, prompt
from tests.stage import ADA, CHAT, Stage, running_stage

BUILT_IN = ProfilesPolicy()
STATE = ProfileState("general_deep", 0, "t0")


def chosen(text: str, mode: str = "general", policy: ProfilesPolicy = BUILT_IN, **more: Any) -> tuple[str, str]:
    given = {"state": None, "compacted": False, "now": "t1", **more}
    found = select(policy, given.pop("state"), mode=mode, text=text, **given)
    return found.preset.id, found.reason


@pytest.mark.parametrize(
    ("text", "mode", "preset", "reason"),
    [
        ("x" * 420, "general", "general_deep", "rule:general_long"),
        ("Plan: " + "x" * 420, "general", "general_deep", "rule:general_long"),
        ("Weigh the ARCHITECTURE and the roadmap.", "general", "general_deep", "rule:general_design"),
        ("We need a roadmap.", "my-general-bot", "general_planner", "rule:general_planning"),
        ("Hi.", "general", "general_concise", "rule:general_short"),
        ("x" * 180, "general", "general_concise", "rule:general_short"),
        ("x" * 181, "General ", "general_concise", "default_by_mode_exact:general"),
        ("Do a code review.", "coding", "coding_audit", "rule:coding_audit"),
        ("Write a loop.", "coding", "coding_default", "default_by_mode_exact:coding"),
        ("Write a loop.", "coding-python", "coding_default", "default_by_mode_pattern:coding"),
        ("x", "my_system_design_bot", "general_deep", "default_by_mode_pattern:system_design"),
        ("Hi.", "demo", "general_concise", "default"),
    ],
)
def test_the_rule_of_the_highest_priority_that_holds_chooses_and_else_the_mode(
    text: str, mode: str, preset: str, reason: str
) -> None:
    assert chosen(text, mode) == (preset, reason)


def test_a_choice_holds_for_six_turns_and_a_compaction_forces_another() -> None:
    state: ProfileState | None = None
    reasons = []
    for _ in range(9):
        found = select(BUILT_IN, state, mode="general", text="Hi.", compacted=False, now="t")
        state = found.state
        reasons.append(found.reason)
    assert reasons == ["rule:general_short", *["cached"] * 6, "rule:general_short", "cached"]
    assert chosen("Hi.", state=STATE) == ("general_deep", "cached")
    assert chosen("Hi.", state=STATE, compacted=True) == ("general_concise", "rule:general_short")
    quiet = ProfilesPolicy(force_on_compaction=False)
    assert chosen("Hi.", policy=quiet, state=STATE, compacted=True) == ("general_deep", "cached")


def test_a_preset_that_there_is_not_is_the_default_one_and_else_a_bare_one() -> None:
    gone = ProfileState("gone", 0, "t0")
    assert chosen("Hi.", state=gone) == ("general_concise", "cached")
    nothing = ProfilesPolicy(presets=(), rules=(), by_mode={})
    assert chosen("Hi.", policy=nothing) == ("general_concise", "default")


@pytest.mark.parametrize("stored", [None, {}, {"turns_since_review": "2"}, [], "x"])
def test_a_stored_state_that_can_not_be_read_is_none(stored: Any) -> None:
    assert ProfileState.from_json(stored) is None


def test_what_is_set_stands_for_the_built_in_profiles() -> None:
    assert ProfilesSetting().policy() == BUILT_IN
    own = ProfilesSetting.model_validate(
        {
            "presets": [{"id": "pirate", "instructions": "Talk like a pirate."}],
            "rules": [{"id": "sea", "priority": 1, "preset_id": "pirate", "any_keyword": ["sea"]}],
            "default_preset": "pirate",
            "by_mode": {},
            "review_every": 1,
        }
    ).policy()
    assert chosen("To sea!", "demo", own) == ("pirate", "rule:sea")


# Whole turns --------------------------------------------------------------------------------------------------------


async def kept(stage: Stage, text: str, **more: Any) -> dict[str, Any]:
    """Run a turn and give what the routing block tells of its profile."""
    stage.provider.add("Well.")
    chunks = await stage.play(text, **more)
    (found,) = [c["updates"]["prompt_profile"] for c in chunks if "prompt_profile" in c.get("updates", {})]
    return dict(found) if found is not None else {}


async def test_a_profile_is_in_the_prompt_and_holds_over_turns_and_processes(shared_database: str) -> None:
    general = TurnOptions(mode="general")
    async with running_stage(shared_database, prompt_profiles={}) as stage:
        first = await kept(stage, "We need a roadmap.", options=general)
        assert (first["preset_id"], first["was_reviewed"]) == ("general_planner", True)
        assert first["system_instructions"] in prompt(stage)
    async with running_stage(shared_database, prompt_profiles={}) as stage:
        second = await kept(stage, "Hi.", options=general)
        assert (second["preset_id"], second["reason"]) == ("general_planner", "cached")
        assert second["system_instructions"] in prompt(stage)
        other = await kept(stage, "Hi.", options=general, conversation="other")
        assert other["reason"] == "rule:general_short"


async def test_a_turn_without_an_outcome_leaves_the_choice_as_it_was(shared_database: str) -> None:
    settings = {"prompt_profiles": {"review_every": 1}}
    async with running_stage(shared_database, **settings) as stage:  # type: ignore[arg-type]
        await kept(stage, "Hi.", options=TurnOptions(mode="general"))
        refused = await stage.play("Hi.", persona_id="nobody")
        assert refused[0]["type"] == "error"
        again = await kept(stage, "Hi.", options=TurnOptions(mode="general"))
        assert again["reason"] == "cached"


async def test_without_profiles_none_is_chosen_and_with_persistence_off_none_is_kept(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        assert await kept(stage, "Hi.") == {}
    off = {"prompt_profiles": {}, "enable_conversational_persistence": False}
    async with running_stage(shared_database, **off) as stage:  # type: ignore[arg-type]
        general = TurnOptions(custom_flags={"mode": "general"})
        assert (await kept(stage, "A roadmap.", options=general))["preset_id"] == "general_planner"
        assert (await kept(stage, "Hi.", options=general))["reason"] == "rule:general_short"


async def test_the_personas_id_is_the_mode_of_a_turn_that_names_none(shared_database: str, tmp_path: Path) -> None:
    own = persona(tmp_path)
    (tmp_path / "p.yaml").write_text("id: coding-helper\nname: P\nsystem_prompt: Be brief.\n")
    own["default_persona_id"] = "coding-helper"
    async with running_stage(shared_database, prompt_profiles={}, **own) as stage:
        assert (await kept(stage, "Write a loop."))["reason"] == "default_by_mode_pattern:coding"
        assert (await stage.runtime.get_conversation(ADA, CHAT)).metadata == {}
