"""Brings the one Postgres of a data folder up, as our child, and down. For the holder of the folder's lock only."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from app.store.embedded.address import Address
from app.store.embedded.binaries import Binaries, find_binaries
from app.store.embedded.child import Child, has_death_signal, spawn
from app.store.embedded.cluster import check_version, initialise, server_command
from app.store.embedded.errors import DataFolderError, OldServerError, StartError
from app.store.embedded.folder import DataFolder, hand_over, make_socket_folder
from app.store.embedded.identity import Identity, choose_identity
from app.store.embedded.logfile import ServerLog
from app.store.embedded.pidfile import is_alive, read_pid_file, serves

TICK_SECONDS: Final = 0.05
# How Postgres says, when it starts, that the processes of an older server are not all gone.
OLD_SERVER_WORDS: Final = ("shared memory block", "postmaster.pid")
# All that Postgres is told of our environment; what else is there may be secret, and PG* variables would change it.
KEPT_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

Log = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what, in seconds."""

    old_server: float = 30.0
    ready: float = 120.0
    fast_shutdown: float = 15.0
    quick_shutdown: float = 10.0
    attach: float = 180.0


class Server:
    """A Postgres that is ours: our child, or none. Use it in one task at a time."""

    def __init__(self, folder: DataFolder, *, fast: bool, patience: Patience, log: Log) -> None:
        self.folder = folder
        self.address = Address(folder.sockets)
        self.output = ServerLog(folder.log)
        self._fast = fast
        self._patience = patience
        self._log = log
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of our child; None while it runs, and when there is none."""
        return self._child.exit_code() if self._child else None

    async def bring_up(self, *, create: bool) -> None:
        """Start the server and return when it takes connections and has our database.

        With `create`, data that is not there is made; without, its absence is a `DataFolderError`, since data that was
        there a moment ago must not be replaced by an empty database. An older server of the folder may take its time to
        end. Raises `EmbeddedPostgresError`; then no child is left.
        """
        give_up = asyncio.get_running_loop().time() + self._patience.old_server
        try:
            binaries = await asyncio.to_thread(self._check, create=create)
            await self._outwait_old_server(give_up)
            identity = await asyncio.to_thread(self._prepare, binaries)
            self._log("embedded_postgres_starting", version=binaries.version, runs_as=identity.words)
            if not await asyncio.to_thread(self.folder.is_initialised):
                await self._initialise(binaries, identity)
            while not await self._start(binaries, identity, give_up):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(TICK_SECONDS)
        except Exception:
            await self.stop()
            raise
        self._log("embedded_postgres_ready", pid=self.pid, sockets=str(self.address.sockets))

    async def stop(self) -> None:
        """End our child, gently first; it is gone on return. Connections are cut, transactions are rolled back."""
        if self._child is None:
            return
        for signal_number, seconds in (
            (signal.SIGINT, self._patience.fast_shutdown),
            (signal.SIGQUIT, self._patience.quick_shutdown),
        ):
            self._child.send(signal_number)
            if await self._child.ends_within(seconds):
                break
        else:
            self._child.send(signal.SIGKILL)
            await self._child.wait()
        self._child = None

    def _check(self, *, create: bool) -> Binaries:
        binaries = find_binaries()
        if self.folder.is_initialised():
            check_version(self.folder, binaries)
        elif not create:
            raise DataFolderError(
                f"The data in {self.folder.cluster} has gone while it was in use. Bring it back, or start Fermata anew "
                "to begin with an empty database."
            )
        return binaries

    def _prepare(self, binaries: Binaries) -> Identity:
        identity = choose_identity(binaries, self.folder)
        former = self.folder.data_owner()
        make_socket_folder(self.folder.sockets, identity.owner, former)
        if former is not None:
            hand_over(self.folder.cluster, identity.owner)
        return identity

    async def _outwait_old_server(self, give_up: float) -> None:
        """Wait until the server of the process that had the folder before us has ended; it shuts down by itself."""
        told = False
        while (pid := await asyncio.to_thread(self._old_server)) is not None:
            if not told:
                self._log("embedded_postgres_waits_for_old_server", pid=pid)
                told = True
            if asyncio.get_running_loop().time() > give_up:
                raise OldServerError(
                    f"A Postgres that no Fermata owns (process {pid}) still runs on {self.folder.cluster} after "
                    f"{self._patience.old_server:.0f} seconds. End it (kill -INT {pid}) and start again."
                )
            await asyncio.sleep(TICK_SECONDS)

    def _old_server(self) -> int | None:
        written = read_pid_file(self.folder.cluster)
        return written.pid if written and serves(written.pid, self.folder.cluster) else None

    async def _initialise(self, binaries: Binaries, identity: Identity) -> None:
        output = await asyncio.to_thread(self.output.open)
        try:
            await initialise(
                self.folder,
                binaries,
                identity,
                run=lambda command: self._spawn(identity, command, output, {}),
                log=self.output,
                fast=self._fast,
            )
        finally:
            os.close(output)

    async def _start(self, binaries: Binaries, identity: Identity, give_up: float) -> bool:
        """Start the server; False means that an older one was not all gone yet, and that it is to be tried again."""
        await asyncio.to_thread(self.output.keep_small)
        since = await asyncio.to_thread(self.output.size)
        stale = await asyncio.to_thread(self._stale_pid)
        output = await asyncio.to_thread(self.output.open)
        try:
            command = server_command(binaries, self.folder, fast=self._fast)
            self._child = self._spawn(identity, command, output, stale)
        finally:
            os.close(output)
        failure = await self._readiness(self._child)
        if failure is None:
            return True
        written = await asyncio.to_thread(self.output.tail, since)
        is_early = asyncio.get_running_loop().time() < give_up
        if is_early and self.exit_code is not None and any(words in written for words in OLD_SERVER_WORDS):
            return False
        raise StartError(f"Postgres {failure}. It wrote (all of it is in {self.folder.log}):\n{written}")

    def _stale_pid(self) -> dict[str, str]:
        """Tell Postgres of a number in its pid file that now belongs to a process which is no server of the folder.

        It takes every live process of its user with that number for the older server and would never start, as in a
        container whose processes get the same numbers at each start. The variable is how pg_ctl names a process that
        is not the one.
        """
        written = read_pid_file(self.folder.cluster)
        if written and is_alive(written.pid) and not serves(written.pid, self.folder.cluster):
            return {"PG_GRANDPARENT_PID": str(written.pid)}
        return {}

    def _spawn(self, identity: Identity, command: list[str], output: int, variables: dict[str, str]) -> Child:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        return spawn(
            identity.order(command, lifeline=not has_death_signal()),
            output=output,
            environment={**kept, "LC_ALL": "C", "TZ": "UTC", **variables},
        )

    async def _readiness(self, child: Child) -> str | None:
        """Wait until the server is ready; None when it is, else what happened instead."""
        try:
            async with asyncio.timeout(self._patience.ready):
                while child.exit_code() is None:
                    written = await asyncio.to_thread(read_pid_file, self.folder.cluster)
                    # The pid file of an older server says "ready" too.
                    if written and written.ready and written.pid == child.pid:
                        await self.address.make_database()
                        return None
                    await asyncio.sleep(TICK_SECONDS)
        except TimeoutError:
            return f"was not ready after {self._patience.ready:.0f} seconds"
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            return f"said that it is ready, but can't be used ({error})"
        return f"ended before it was ready (exit code {child.exit_code()})"


def no_log(_event: str, **_fields: Any) -> None:
    """Log nothing."""
