"""The embedded Postgres from start to stop, in this process."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from app.store.embedded.errors import (
    DataFolderError,
    InitialiseError,
    NotMainThreadError,
    NotStartedError,
    StartError,
    VersionMismatchError,
)
from app.store.embedded.lock import FolderLock
from app.store.embedded.pidfile import read_pid_file
from app.store.embedded.server import Patience
from app.store.embedded.supervisor import EmbeddedPostgres
from tests.store.embedded.conftest import Make
from tests.store.embedded.processes import environment_of, standing_in, status_of, until

Move = Callable[[Path], Path]


async def ask(server: EmbeddedPostgres, query: str) -> Any:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def write(path: Path, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, encoding="ascii")


def is_free(data_dir: Path) -> bool:
    lock = FolderLock(data_dir / "postgres.lock")
    acquired = lock.acquire()
    lock.release()
    return acquired


def listed(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_first_start_makes_the_data_and_its_database(empty_dir: Path, postgres: Make) -> None:
    server = postgres(empty_dir)

    await server.start()

    assert server.is_owner
    assert await ask(server, "SELECT current_database()") == "fermata"
    assert await ask(server, "SHOW server_encoding") == "UTF8"
    assert await ask(server, "SELECT datcollate FROM pg_database WHERE datname = 'fermata'") == "C"
    assert await ask(server, "SHOW data_checksums") == "on"


async def test_the_server_is_a_direct_child_in_a_session_of_its_own(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)

    await server.start()

    assert server.pid is not None
    assert status_of(server.pid)["PPid"] == [str(os.getpid())]
    assert os.getsid(server.pid) == server.pid


async def test_nothing_listens_on_tcp_and_the_socket_is_in_a_closed_folder(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)

    await server.start()

    assert await ask(server, "SHOW listen_addresses") == ""
    assert stat.S_IMODE((data_dir / "run").stat().st_mode) == 0o700
    assert (data_dir / "run" / ".s.PGSQL.5432").is_socket()


async def test_data_is_there_after_stop_and_start(data_dir: Path, postgres: Make) -> None:
    first = postgres(data_dir)
    await first.start()
    await ask(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    await first.stop()
    second = postgres(data_dir)

    await second.start()

    assert await ask(second, "SELECT answer FROM kept") == 42


async def test_stop_leaves_no_process_and_no_lock(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)
    await server.start()
    connection = await asyncpg.connect(server.dsn)
    assert len(standing_in(data_dir / "postgres")) > 1

    await server.stop()

    assert standing_in(data_dir / "postgres") == set()
    assert not server.is_owner
    assert is_free(data_dir)
    connection.terminate()


async def test_a_stopped_server_can_be_started_again(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)
    await server.start()
    await server.stop()

    await server.start()

    assert await ask(server, "SELECT 1") == 1


async def test_the_dsn_is_one_that_sqlalchemy_reads(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)
    await server.start()
    engine = create_async_engine(make_url(server.dsn).set(drivername="postgresql+asyncpg"))

    async with engine.connect() as connection:
        answer = await connection.scalar(text("SELECT current_user"))
    await engine.dispose()

    assert answer == "fermata"


def test_before_the_start_there_is_no_dsn(empty_dir: Path) -> None:
    with pytest.raises(NotStartedError, match="start"):
        _ = EmbeddedPostgres(empty_dir).dsn


async def test_a_database_that_is_missing_is_created(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)
    await server.start()
    other = await asyncpg.connect(server.dsn.replace("/fermata?", "/postgres?"))
    await other.execute("DROP DATABASE fermata")
    await other.close()
    await server.stop()

    await server.start()

    assert await ask(server, "SELECT current_database()") == "fermata"


async def test_a_data_folder_may_have_a_strange_name(data_dir: Path, move: Move, postgres: Make) -> None:
    strange = move(data_dir.parent / "sp ace \"quote' 100%20&host=ünï")
    server = postgres(strange)

    await server.start()

    assert await ask(server, "SELECT 1") == 1
    assert (strange / "run" / ".s.PGSQL.5432").is_socket()


async def test_a_second_start_in_one_process_attaches(data_dir: Path, postgres: Make) -> None:
    first, second = postgres(data_dir), postgres(data_dir)
    await first.start()

    await second.start()

    assert (first.is_owner, second.is_owner) == (True, False)
    assert second.dsn == first.dsn
    await second.stop()
    assert await ask(first, "SELECT 1") == 1


async def test_a_relative_and_a_linked_path_mean_the_same_folder(
    data_dir: Path, postgres: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = data_dir.parent / "link"
    link.symlink_to(data_dir)
    monkeypatch.chdir(data_dir.parent)
    first, second, third = postgres(data_dir), postgres(link), postgres(Path("data"))
    await first.start()

    await second.start()
    await third.start()

    assert [second.is_owner, third.is_owner] == [False, False]
    assert first.dsn == second.dsn == third.dsn


async def test_postgres_sees_nothing_of_our_environment(
    data_dir: Path, postgres: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGOPTIONS", "-c no_such_option=1")
    server = postgres(data_dir)

    await server.start()

    environment = environment_of(server.pid)
    assert "LC_ALL=C" in environment
    assert "sk-secret" not in environment
    assert "PGDATA" not in environment


async def test_data_of_another_major_version_is_refused(empty_dir: Path, postgres: Make) -> None:
    write(empty_dir / "postgres" / "PG_VERSION", "12\n")
    server = postgres(empty_dir)

    with pytest.raises(VersionMismatchError, match=r"written by PostgreSQL 12.*are PostgreSQL \d+\.\d+.*pg_dumpall"):
        await server.start()

    assert not server.is_owner
    assert is_free(empty_dir)


async def test_files_that_are_no_data_are_left_alone(empty_dir: Path, postgres: Make) -> None:
    write(empty_dir / "postgres" / "diary.txt", "dear diary")

    with pytest.raises(DataFolderError, match="holds files but no Postgres data"):
        await postgres(empty_dir).start()

    assert listed(empty_dir / "postgres") == ["diary.txt"]


async def test_a_data_folder_that_is_a_file_is_refused(empty_dir: Path, postgres: Make) -> None:
    write(empty_dir, "a file")

    with pytest.raises(DataFolderError, match="is a file"):
        await postgres(empty_dir).start()


async def test_a_data_folder_that_cannot_be_made_is_told(empty_dir: Path, postgres: Make) -> None:
    write(empty_dir, "a file")

    with pytest.raises(DataFolderError, match=r"can't be made.*FERMATA_DATA_DIR"):
        await postgres(empty_dir / "below").start()


async def test_a_server_that_cannot_start_shows_what_it_wrote(data_dir: Path, postgres: Make) -> None:
    configuration = data_dir / "postgres" / "postgresql.auto.conf"
    configuration.write_text("no_such_option = 1\n", encoding="ascii")
    server = postgres(data_dir)

    with pytest.raises(StartError, match='unrecognized configuration parameter "no_such_option"'):
        await server.start()

    assert not server.is_owner
    assert standing_in(data_dir / "postgres") == set()
    configuration.write_text("", encoding="ascii")


async def test_a_server_that_does_not_get_ready_is_given_up(empty_dir: Path, postgres: Make) -> None:
    first = postgres(empty_dir, fast=False)
    await first.start()
    await first.stop()
    # A standby that takes no queries never calls itself ready.
    write(empty_dir / "postgres" / "standby.signal", "")
    (empty_dir / "postgres" / "postgresql.auto.conf").write_text("hot_standby = off\n", encoding="ascii")
    server = postgres(empty_dir, fast=False, patience=Patience(ready=0.5))

    with pytest.raises(StartError, match="not ready after"):
        await server.start()

    assert standing_in(empty_dir / "postgres") == set()


async def test_another_thread_cannot_start_it(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)

    with pytest.raises(NotMainThreadError, match="main thread"):
        await asyncio.to_thread(lambda: asyncio.run(server.start()))

    assert not server.is_owner


async def test_a_failed_initdb_shows_what_it_wrote(
    empty_dir: Path, postgres: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("app.store.embedded.cluster.USER", "pg_reserved")
        with pytest.raises(InitialiseError, match='begin with "pg_"'):
            await postgres(empty_dir).start()
    assert not (empty_dir / "postgres").exists()
    server = postgres(empty_dir)

    await server.start()

    assert await ask(server, "SELECT 1") == 1
    assert not any(name.startswith("postgres.unfinished-") for name in listed(empty_dir))


async def test_a_start_that_is_cancelled_while_data_is_made_leaves_none(empty_dir: Path, postgres: Make) -> None:
    server = postgres(empty_dir)
    async with asyncio.TaskGroup() as tasks:
        start = tasks.create_task(server.start())
        await until(lambda: any(empty_dir.glob("postgres.unfinished-*/PG_VERSION")))
        start.cancel()
    await server.stop()

    assert not (empty_dir / "postgres").exists()
    await server.start()
    assert await ask(server, "SELECT 1") == 1


async def test_the_pid_file_names_the_child_when_the_start_returns(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)

    await server.start()

    written = read_pid_file(data_dir / "postgres")
    assert written is not None
    assert (written.pid, written.ready) == (server.pid, True)
