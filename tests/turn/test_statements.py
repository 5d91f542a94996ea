"""What operations ask of the database, counted on the wire: how many statements, in how many transactions.

The log's flushes are left out, since one of them is for all streams of a process.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.domain.ids import row_key
from app.providers.scripted import ScriptedProvider, Step, call
from tests.kill_points import KillPoints, kill_points
from tests.stage import CHAT, WEATHER, Stage, result, running_stage

KEY = row_key("", CHAT).bytes
T1, TOUCHED, START, T2 = ("accept", 1), ("touch", 1), ("start", 1), ("settle", 1)


@asynccontextmanager
async def watched(database: str, *script: Step) -> AsyncIterator[tuple[Stage, KillPoints]]:
    """A stage whose database is behind a proxy that counts, on a conversation that has had a turn already."""
    provider = ScriptedProvider()
    async with kill_points(database) as points, running_stage(points.url, provider) as stage:
        provider.add("Welcome.")
        await stage.play("Hi.")
        points.finished.clear()
        for step in script:
            provider.add(step)
        yield stage, points


def counted(points: KillPoints) -> list[tuple[str, int]]:
    """Give each transaction that was of the conversation, with the number of its statements."""
    named = (KEY, CHAT.encode())
    mine = [each for each in points.finished if each.name != "flush" and any(name in each.values for name in named)]
    points.finished.clear()
    return [(each.name, len(each.statements)) for each in mine]


async def test_a_plain_turn_is_four_statements_in_four_transactions(database: str) -> None:
    async with watched(database, "Hello.") as (stage, points):
        await stage.play("How are you?")
        assert counted(points) == [T1, START, TOUCHED, T2]


async def test_a_turn_that_pauses_is_four_statements_in_three_transactions(database: str) -> None:
    async with watched(database, [call("get_weather", {"city": "Rome"}, id="c1")]) as (stage, points):
        await stage.play("Weather?", tools=[WEATHER])
        assert counted(points) == [T1, START, ("settle", 2)]


async def test_a_continuation_is_ten_statements_in_six_transactions(database: str) -> None:
    """Looking up the stream and its pause; taking the pause, with the results; the session; the same end as a turn."""
    async with watched(database, [call("get_weather", {"city": "Rome"}, id="c1")], "Warm.") as (stage, points):
        asked = await stage.play("Weather?", tools=[WEATHER])
        points.finished.clear()
        await stage.pass_results(str(asked[0]["stream_id"]), result("c1"))
        assert [size for _, size in counted(points)] == [1, 1, 4, 1, 1, 2]
