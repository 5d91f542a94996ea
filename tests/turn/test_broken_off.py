"""A statement that the database breaks off, when its time is over or an operator says so, is made again."""

import pytest

from tests.databases import execute, rows
from tests.stage import result, running_stage
from tests.turn.pausing import by_results, codes, paused

BREAK_OFF = """
CREATE SEQUENCE times;
CREATE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('times') = 1 THEN
        RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';
    END IF;
    RETURN NULL;
END $$;
"""
WHERE = {
    "the acceptance": "INSERT ON streams",
    "the note of its first text": "UPDATE ON inbound_messages",
    "its outcome": "UPDATE ON streams",
    "its messages": "INSERT ON messages",
    "its first events": "INSERT ON stream_events",
}


async def once(database: str, where: str) -> None:
    """Let the next statement that writes there be broken off."""
    trigger = f"CREATE TRIGGER break_off AFTER {where} FOR EACH STATEMENT EXECUTE FUNCTION break_off()"
    await execute(database, BREAK_OFF, trigger)


async def broken_off(database: str) -> bool:
    return bool(await rows(database, "SELECT 1 FROM times WHERE is_called"))


@pytest.mark.parametrize("what", WHERE)
async def test_a_turn_goes_on_when_the_database_breaks_off(database: str, what: str) -> None:
    async with running_stage(database) as stage:
        await once(database, WHERE[what])
        stage.provider.add("Hello, Ada.")
        chunks = await stage.play("Hi.")

        assert await broken_off(database)
        assert set(codes(chunks)) == {None}
        assert await stage.said() == [("user", "Hi."), ("assistant", "Hello, Ada.")]


@pytest.mark.parametrize(
    "where", ["INSERT ON pending_external_tool_requests", "UPDATE ON pending_external_tool_requests"]
)
async def test_a_pause_holds_when_the_database_breaks_off(database: str, where: str) -> None:
    async with running_stage(database) as stage:
        await once(database, where)
        pending = await paused(stage, "c1")
        stage.provider.add("It is mild.")
        chunks = await by_results(stage, pending, result("c1"))

        assert await broken_off(database)
        assert set(codes(chunks)) == {None}
        assert (await stage.said())[-1] == ("assistant", "It is mild.")
