"""A persona's traits in one session: changed by its host or its GMI, told in the next prompt, kept like its mood."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.chunks import GmiChunk, GmiOutput
from app.domain.errors import InvalidStateError, ValidationError
from app.domain.persona import Persona
from app.domain.traits import changed_traits, told_traits
from app.domain.turn import Caller
from app.turn.gmi.base import GmiTurnInput
from tests.databases import rows
from tests.gmi.keeping import Noting, persona, prompt
from tests.stage import ADA, CHAT, Stage, running_stage

ONE = Persona("p", "P", "Be brief.", personality_traits={"humor": 0.3, "patience": 0.5})
TRAITS = "{humor: 0.3, patience: 0.5}"


async def told(stage: Stage, conversation: str = CHAT, **more: Any) -> str:
    """Run a turn and give what its prompt says of the persona's character."""
    stage.provider.add("Ok.")
    await stage.play("Hi.", conversation=conversation, **more)
    return next(line for line in prompt(stage).splitlines() if line.startswith("Your character"))


async def changed(stage: Stage, **traits: float | None) -> dict[str, float]:
    """Change traits of Ada's session, and give them all."""
    return dict((await stage.runtime.change_session_traits(ADA, CHAT, None, traits)).traits)


def test_a_session_is_told_the_personas_traits_and_no_others() -> None:
    assert told_traits(ONE, {"patience": 0.9, "greed": 1.0}) == {"humor": 0.3, "patience": 0.9}


def test_a_change_keeps_what_it_does_not_name_and_a_null_takes_back() -> None:
    kept = changed_traits(ONE, {"humor": 1.0, "of_another": 0.1}, {"humor": None, "patience": 0})

    assert kept == {"of_another": 0.1, "patience": 0.0}


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, "0.5", [0.5]])
def test_a_trait_is_a_number_from_0_to_1(value: Any) -> None:
    with pytest.raises(ValidationError, match="'patience' must be a number from 0 to 1, or null"):
        changed_traits(ONE, {}, {"patience": value})


async def test_a_change_holds_from_the_next_turn_on_on_each_replica_and_after_a_restart(
    tmp_path: Path, shared_database: str
) -> None:
    settings = persona(tmp_path, personality_traits=TRAITS)
    async with running_stage(shared_database, **settings) as first, running_stage(shared_database, **settings) as other:
        assert await told(first) == (
            "Your character, each trait from 0 (not at all) to 1 (very much so): humor 0.3, patience 0.5."
        )
        assert await changed(first, patience=0.9) == {"humor": 0.3, "patience": 0.9}
        assert "humor 0.3, patience 0.9." in await told(other)
        assert await changed(other, humor=0) == {"humor": 0.0, "patience": 0.9}
    async with running_stage(shared_database, **settings) as stage:
        assert "humor 0, patience 0.9." in await told(stage)
        assert await changed(stage, patience=None) == {"humor": 0.0, "patience": 0.5}
        view = await stage.runtime.session_traits(ADA, CHAT, "p")
        assert (view.traits, view.changed) == ({"humor": 0.0, "patience": 0.5}, ("humor",))
        assert "humor 0.3, patience 0.5." in await told(stage, "c-2", caller=Caller("eve"), session=CHAT)
        assert "humor 0.3, patience 0.5." in await told(stage, "c-3")


async def test_what_a_persona_does_not_allow_changes_nothing_and_makes_no_session(
    tmp_path: Path, shared_database: str
) -> None:
    async with running_stage(shared_database, **persona(tmp_path, personality_traits=TRAITS)) as stage:
        with pytest.raises(ValidationError, match=r"'greed' is no trait of the persona 'p'.*are: humor, patience"):
            await changed(stage, patience=0.9, greed=1.0)
        assert await rows(shared_database, "SELECT session_id FROM session_state") == []
        assert (await stage.runtime.session_traits(ADA, CHAT, None)).changed == ()


async def test_where_nothing_is_kept_of_sessions_their_traits_can_not_be_changed(
    tmp_path: Path, shared_database: str
) -> None:
    settings = persona(tmp_path, personality_traits=TRAITS)
    async with running_stage(shared_database, enable_conversational_persistence=False, **settings) as stage:
        with pytest.raises(InvalidStateError, match="FERMATA_ENABLE_CONVERSATIONAL_PERSISTENCE"):
            await changed(stage, patience=0.9)
        assert (await stage.runtime.session_traits(ADA, CHAT, None)).traits == {"humor": 0.3, "patience": 0.5}


async def test_changed_traits_go_with_their_user(tmp_path: Path, shared_database: str) -> None:
    async with running_stage(shared_database, **persona(tmp_path, personality_traits=TRAITS)) as stage:
        await changed(stage, patience=0.9)
        await stage.runtime.users.erase(ADA)
        assert await rows(shared_database, "SELECT session_id FROM session_state") == []


class Impatient(Noting):
    """A host's GMI that loses its patience in each turn, and once tries what its persona does not allow."""

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        with pytest.raises(ValidationError):
            turn.session.change_traits(turn.persona, {"patience": 0.0, "greed": 1.0})
        left = turn.session.state.traits.get("patience", 0.5) / 2
        turn.session.change_traits(turn.persona, {"patience": left})
        async for item in super().process_turn_stream(turn):
            yield item


async def test_a_gmi_changes_its_own_traits_and_finds_them_so_in_its_next_turn(
    tmp_path: Path, shared_database: str
) -> None:
    settings = persona(tmp_path, personality_traits=TRAITS)
    for patience in (0.25, 0.125):
        async with running_stage(shared_database, gmis=Impatient(), **settings) as stage:
            await stage.play("Hi.")
            assert (await stage.runtime.session_traits(ADA, CHAT, None)).traits == {"humor": 0.3, "patience": patience}
