"""The server that the other tests run on."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from tests.postgres import throwaway_postgres
from tests.store.embedded.processes import standing_in


async def version(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


@pytest.mark.slow
def test_a_throwaway_server_lives_as_long_as_its_context_and_leaves_nothing() -> None:
    with throwaway_postgres() as dsn, asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        assert int(runner.run(version(dsn)).split(".")[0]) >= 15
        data_dir = Path(parse_qs(urlsplit(dsn).query)["host"][0]).parent
        servers = standing_in(data_dir / "postgres")
        assert servers

    assert not data_dir.parent.exists()
    assert not any(Path(f"/proc/{pid}/cwd").exists() for pid in servers)
