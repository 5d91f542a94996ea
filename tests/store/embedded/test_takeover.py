"""Several processes on one data folder: one owns, the others attach, and one takes over, however the owner ends."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.store.embedded.errors import AttachError
from app.store.embedded.folder import open_folder
from app.store.embedded.lock import FolderLock
from app.store.embedded.server import Patience
from tests.store.embedded.conftest import Make, StartOwner
from tests.store.embedded.processes import is_alive, standing_in, status_of, until


async def ask(dsn: str, query: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def unfinished(data_dir: Path) -> bool:
    return any(data_dir.glob("postgres.unfinished-*/PG_VERSION"))


async def test_the_second_process_attaches_to_the_server_of_the_first(data_dir: Path, owner: StartOwner) -> None:
    first = await (await owner(data_dir)).told("started")
    second = await (await owner(data_dir)).told("started")

    assert (first["owner"], second["owner"]) == (True, False)
    assert first["dsn"] == second["dsn"]
    assert second["pid"] is None


@pytest.mark.parametrize("tie", ["signal", "pipe"])
async def test_a_killed_owner_takes_its_server_with_it(tie: str, data_dir: Path, owner: StartOwner) -> None:
    process = await owner(data_dir, "--tie", tie)
    started = await process.told("started")
    assert started["pid"] in standing_in(data_dir / "postgres")

    await process.kill()

    await until(lambda: not standing_in(data_dir / "postgres"))
    assert "received fast shutdown request" in (data_dir / "postgres.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("tie", ["signal", "pipe"])
async def test_another_process_takes_over_from_a_killed_owner(tie: str, data_dir: Path, owner: StartOwner) -> None:
    first = await owner(data_dir, "--tie", tie)
    old = await first.told("started")
    second = await owner(data_dir, "--tie", tie)
    await second.told("started")
    await ask(old["dsn"], "CREATE TABLE took_over AS SELECT 42 AS answer")

    await first.kill()
    new = await second.told("embedded_postgres_ready")

    await until(lambda: not is_alive(old["pid"]))
    assert status_of(new["pid"])["PPid"] == [str(second.pid)]
    assert await ask(old["dsn"], "SELECT answer FROM took_over") == 42
    await ask(old["dsn"], "DROP TABLE took_over")


async def test_another_process_takes_over_from_an_owner_that_stops(data_dir: Path, owner: StartOwner) -> None:
    first = await owner(data_dir)
    old = await first.told("started")
    second = await owner(data_dir)
    await second.told("started")

    assert await first.send(signal.SIGTERM) == 0

    await second.told("embedded_postgres_ready")
    assert await ask(old["dsn"], "SELECT 1") == 1


async def test_an_attached_process_that_stops_leaves_the_server_alone(data_dir: Path, owner: StartOwner) -> None:
    started = await (await owner(data_dir)).told("started")
    second = await owner(data_dir)
    await second.told("started")

    assert await second.send(signal.SIGTERM) == 0

    assert is_alive(started["pid"])
    assert await ask(started["dsn"], "SELECT 1") == 1


async def test_of_many_that_start_at_once_on_nothing_one_owns(empty_dir: Path, owner: StartOwner) -> None:
    processes = [await owner(empty_dir) for _ in range(4)]

    started = await asyncio.gather(*(process.told("started") for process in processes))

    assert sorted(state["owner"] for state in started) == [False, False, False, True]
    assert await ask(started[0]["dsn"], "SELECT current_database()") == "fermata"


async def test_an_owner_killed_while_it_makes_the_data_leaves_a_folder_to_start_on(
    empty_dir: Path, owner: StartOwner
) -> None:
    first = await owner(empty_dir)
    await until(lambda: unfinished(empty_dir))

    await first.kill()
    started = await (await owner(empty_dir)).told("started")

    assert started["owner"]
    assert await ask(started["dsn"], "SELECT 1") == 1
    assert not unfinished(empty_dir)


async def test_an_owner_killed_in_the_middle_of_the_start_leaves_no_server(data_dir: Path, owner: StartOwner) -> None:
    process = await owner(data_dir)
    await process.told("embedded_postgres_starting")

    await process.kill()

    started = await (await owner(data_dir)).told("started")
    assert started["owner"]
    assert {pid for pid in standing_in(data_dir / "postgres") if os.getsid(pid) == pid} >= {started["pid"]}
    assert status_of(started["pid"])["PPid"] != ["1"]


async def test_ctrl_c_in_a_terminal_does_not_reach_the_server(data_dir: Path, owner: StartOwner) -> None:
    process = await owner(data_dir)

    started = await process.told("started")

    assert os.getpgid(started["pid"]) != os.getpgid(process.pid)


async def test_who_never_gets_to_a_server_gives_up_with_a_sentence(empty_dir: Path, postgres: Make) -> None:
    held = FolderLock(open_folder(empty_dir).lock)
    assert held.acquire()
    try:
        with pytest.raises(AttachError, match=r"holds .*postgres\.lock.*not ready"):
            await postgres(empty_dir, patience=Patience(attach=0.3)).start()
    finally:
        held.release()
