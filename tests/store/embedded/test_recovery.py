"""What the owner does when its server ends by itself, and what is left of an older server."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from blockbuster import blockbuster_ctx

from app.store.embedded.binaries import find_binaries
from app.store.embedded.child import Child, spawn
from app.store.embedded.cluster import server_command
from app.store.embedded.errors import DataFolderError, OldServerError, RestartError
from app.store.embedded.folder import DataFolder
from app.store.embedded.identity import choose_identity
from app.store.embedded.pidfile import PidFile, read_pid_file
from app.store.embedded.server import Patience
from app.store.embedded.supervisor import EmbeddedPostgres
from tests.store.embedded.conftest import Make
from tests.store.embedded.processes import standing_in, status_of, until


class Events:
    """A log that tests wait on."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event: str, **_fields: Any) -> None:
        self.seen.append(event)

    async def told(self, event: str, times: int = 1) -> None:
        await until(lambda: self.seen.count(event) >= times)


@contextlib.asynccontextmanager
async def watched(server: EmbeddedPostgres) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(server.watch())
        yield
        watching.cancel()


async def ask(server: EmbeddedPostgres, query: str) -> Any:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def orphan_server(data_dir: Path) -> AsyncIterator[Child]:
    """Run a server on the folder that holds no lock, as one whose owner has just died."""
    folder = DataFolder(data_dir)
    binaries = find_binaries()
    command = server_command(binaries, folder, fast=True)
    output = os.open(folder.log, os.O_WRONLY | os.O_APPEND)
    try:
        child = spawn(choose_identity(binaries, folder).order(command), output=output, environment={"LC_ALL": "C"})
    finally:
        os.close(output)
    try:
        await until(lambda: read_pid_file(folder.cluster) == PidFile(child.pid, ready=True))
        yield child
    finally:
        child.send(signal.SIGINT)
        await child.wait()


async def test_a_killed_server_is_started_again_with_its_data(data_dir: Path, postgres: Make) -> None:
    events = Events()
    server = postgres(data_dir, log=events)
    await server.start()
    killed = server.pid
    assert killed is not None
    async with watched(server):
        os.kill(killed, signal.SIGKILL)

        await events.told("embedded_postgres_ready", times=2)

        assert server.pid != killed
        assert server.is_owner
        assert await ask(server, "SELECT 1") == 1
        assert read_pid_file(data_dir / "postgres") == PidFile(server.pid or 0, ready=True)


@pytest.mark.parametrize("tie", ["signal", "pipe"])
async def test_nothing_of_it_blocks_the_event_loop(
    tie: str, empty_dir: Path, postgres: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.embedded.server.has_death_signal", lambda: tie == "signal")
    events = Events()
    server = postgres(empty_dir, log=events)
    with blockbuster_ctx("app"):
        await server.start()
        async with watched(server):
            os.kill(server.pid or 0, signal.SIGKILL)
            await events.told("embedded_postgres_ready", times=2)
        await server.stop()


async def test_a_server_that_somebody_shuts_down_is_started_again(data_dir: Path, postgres: Make) -> None:
    events = Events()
    server = postgres(data_dir, log=events)
    await server.start()
    assert server.pid is not None
    async with watched(server):
        os.kill(server.pid, signal.SIGTERM)

        await events.told("embedded_postgres_ready", times=2)

        assert await ask(server, "SELECT 1") == 1


async def test_a_server_that_ends_again_and_again_is_given_up(data_dir: Path, postgres: Make) -> None:
    events = Events()
    server = postgres(data_dir, log=events)
    await server.start()

    async def kill_it_six_times() -> None:
        async with watched(server):
            for starts in range(1, 7):
                await events.told("embedded_postgres_ready", times=starts)
                os.kill(server.pid or 0, signal.SIGKILL)
            await events.told("embedded_postgres_ready", times=7)

    with pytest.RaisesGroup(RestartError):
        await kill_it_six_times()

    assert events.seen.count("embedded_postgres_ready") == 6
    assert not server.is_owner
    await until(lambda: not standing_in(data_dir / "postgres"))


async def test_data_that_goes_while_in_use_is_not_replaced_by_an_empty_database(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir)
    await server.start()
    assert server.pid is not None
    aside = data_dir / "aside"
    (data_dir / "postgres").rename(aside)
    os.kill(server.pid, signal.SIGKILL)
    try:
        with pytest.raises(DataFolderError, match="has gone while it was in use"):
            await server.watch()

        assert not (data_dir / "postgres").exists()
        await until(lambda: not standing_in(aside))
    finally:
        aside.rename(data_dir / "postgres")


async def test_an_old_server_is_outwaited_while_it_shuts_down(data_dir: Path, postgres: Make) -> None:
    events = Events()
    server = postgres(data_dir, log=events)
    async with orphan_server(data_dir) as old, asyncio.TaskGroup() as tasks:
        start = tasks.create_task(server.start())
        await events.told("embedded_postgres_waits_for_old_server")
        assert old.exit_code() is None

        old.send(signal.SIGINT)
        await old.wait()
        await start

    assert events.seen[-1] == "embedded_postgres_ready"
    assert await ask(server, "SELECT 1") == 1


async def test_an_old_server_that_stays_is_named_and_left_alone(data_dir: Path, postgres: Make) -> None:
    server = postgres(data_dir, patience=Patience(old_server=0.3))
    async with orphan_server(data_dir) as old:
        with pytest.raises(OldServerError, match=rf"process {old.pid}.*kill -INT {old.pid}"):
            await server.start()

        assert old.exit_code() is None
        assert read_pid_file(data_dir / "postgres") == PidFile(old.pid, ready=True)
    assert not server.is_owner


async def test_a_backend_that_outlives_its_killed_server_is_outwaited(data_dir: Path, postgres: Make) -> None:
    async with orphan_server(data_dir) as old:
        backends = standing_in(data_dir / "postgres") - {old.pid}
        frozen = next(pid for pid in backends if "checkpointer" in command_of(pid))
        os.kill(frozen, signal.SIGSTOP)
        old.send(signal.SIGKILL)
        await old.wait()
    events = Events()
    server = postgres(data_dir, log=events)
    try:
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task(server.start())
            await until(lambda: "still in use" in (data_dir / "postgres.log").read_text(encoding="utf-8"))
            assert not start.done()
            os.kill(frozen, signal.SIGCONT)
            await start
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(frozen, signal.SIGCONT)

    assert await ask(server, "SELECT 1") == 1


async def test_a_pid_file_whose_number_another_process_has_now_stops_nothing(data_dir: Path, postgres: Make) -> None:
    first = postgres(data_dir)
    await first.start()
    assert first.pid is not None
    user = int(status_of(first.pid)["Uid"][0])
    pid_file = data_dir / "postgres" / "postmaster.pid"
    lines = pid_file.read_text(encoding="utf-8").splitlines()
    await first.stop()
    # Postgres asks only whether a process of its user has the number.
    other = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, user=user)
    try:
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n", encoding="utf-8")
        second = postgres(data_dir)

        await second.start()

        assert other.returncode is None
        assert await ask(second, "SELECT 1") == 1
    finally:
        await other.communicate(b"")


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
