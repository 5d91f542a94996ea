"""What is done with some memories is done with no others: neither with those of their names in another organization nor
with more than a batch may have.
"""

from datetime import UTC, datetime, timedelta

from app.store import traces
from app.store.traces import Faint
from tests.memory.test_memories import ELSEWHERE, talk, thinking
from tests.stage import ADA, Stage

OF_BOTH = "SELECT organization_id, recalled FROM memory_traces ORDER BY organization_id"


async def test_traces_of_one_name_in_two_organizations_are_two(stage: Stage) -> None:
    async with thinking(stage.database) as mind:
        for caller in (ADA, ELSEWHERE):
            await talk(stage, caller)
            await mind.keep(f"The dog of {caller.organization_id}.", caller)
    async with stage.runtime._services.database.transaction() as connection:
        await connection.driver.execute("UPDATE memory_traces SET trace_id = 'same'")
        (found,) = await traces.some(connection, "acme", ["same"])
        assert found.content == "The dog of acme."
        alive = {"trace_id": "same", "strength": 0.5, "stability": 1.0, "intensity": 0.5, "recalled": 7, "links": {}}
        await traces.revive(connection, "acme", [{**alive, "accessed_at": datetime.now(UTC)}])
        assert [tuple(row) for row in await connection.driver.fetch(OF_BOTH)] == [("", 0), ("acme", 7)]
        await traces.bound(connection, "acme", ("user", "ada"), 0)
        assert [tuple(row) for row in await connection.driver.fetch(OF_BOTH)] == [("", 0)]
        assert await traces.remove(connection, ELSEWHERE, "same") == 0
        assert await traces.remove(connection, ADA, "same") == 1


async def test_a_batch_of_what_has_faded_is_no_larger_than_it_may_be_whatever_the_plan(stage: Stage) -> None:
    async with thinking(stage.database) as mind:
        await talk(stage)
        for number in range(5):
            await mind.keep(f"small talk {number}")
    async with stage.runtime._services.database.transaction() as connection:
        for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
            await connection.driver.execute(f"SET LOCAL enable_{way} = off")
        await connection.driver.execute("UPDATE memory_traces SET accessed_at = now() - interval '99 days'")
        assert [await traces.fade(connection, Faint(timedelta(0)), limit=2) for _ in range(4)] == [2, 2, 1, 0]
