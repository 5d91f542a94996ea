"""A database that refuses, as a broken constraint would make it: by triggers, which the code under test can't see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.databases import execute


@asynccontextmanager
async def refusing(database: str, table: str, doing: str, when: str = "true") -> AsyncIterator[None]:
    """Refuse `doing` (INSERT, UPDATE, DELETE) on rows of the table while the block runs; `when` may look at NEW."""
    await execute(
        database,
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS"
        " 'BEGIN RAISE EXCEPTION ''the store refuses''; END' LANGUAGE plpgsql",
        f"CREATE TRIGGER refusing BEFORE {doing} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()",
    )
    try:
        yield
    finally:
        await execute(database, f"DROP TRIGGER refusing ON {table}", "DROP FUNCTION refuse")
