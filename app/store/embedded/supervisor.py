"""The embedded Postgres as the app sees it: owned by one process, shared by all that have the same data folder."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Final

from app.store.embedded.errors import AttachError, DataFolderError, EmbeddedPostgresError, NotStartedError, RestartError
from app.store.embedded.folder import open_folder
from app.store.embedded.lock import FolderLock
from app.store.embedded.server import Log, Patience, Server, no_log

TICK_SECONDS: Final = 0.2
RESTARTS: Final = 5
RESTART_WINDOW_SECONDS: Final = 60.0
LOG_CHECK_SECONDS: Final = 30.0


class EmbeddedPostgres:
    """One Postgres per data folder, without TCP.

    The process that comes first owns it: the server is its child and dies with it. Others attach, and one of them takes
    over when the owner goes. Use: `await start()` on the main thread, a task for `watch()`, and at the end cancel that
    task and `await stop()`. All errors are `EmbeddedPostgresError`, each with a sentence for the operator.

    `fast` gives up durability, for tests. `log` is called with an event's name and fields.
    """

    def __init__(
        self, data_dir: Path, *, fast: bool = False, log: Log | None = None, patience: Patience | None = None
    ) -> None:
        self._data_dir = data_dir
        self._fast = fast
        self._log = log or no_log
        self._patience = patience or Patience()
        self._server: Server | None = None
        self._lock: FolderLock | None = None
        self._restarts: deque[float] = deque(maxlen=RESTARTS)

    @property
    def dsn(self) -> str:
        """The address of the database, `postgresql://…`; the same for all processes, and after a take-over."""
        return self._started()[0].address.url

    @property
    def is_owner(self) -> bool:
        """Whether the server is a child of this process, or about to be."""
        return self._lock is not None and self._lock.is_held

    @property
    def pid(self) -> int | None:
        """The process id of the server, when it is our child."""
        return self._server.pid if self._server else None

    async def start(self) -> None:
        """Own the server or attach to it; on return it takes connections and has the database `fermata`.

        Does nothing when the server is ours already. When it is cancelled, `stop` ends what it has begun.
        """
        if self.is_owner:
            return
        folder = await asyncio.to_thread(open_folder, self._data_dir)
        self._server = Server(folder, fast=self._fast, patience=self._patience, log=self._log)
        self._lock = FolderLock(folder.lock)
        try:
            async with asyncio.timeout(self._patience.attach) as waiting:
                while not self._lock.acquire():
                    if await self._server.address.answers():
                        self._log("embedded_postgres_attached", sockets=str(folder.sockets))
                        return
                    await asyncio.sleep(TICK_SECONDS)
                waiting.reschedule(None)
                await self._bring_up(create=True)
        except TimeoutError as error:
            raise AttachError(
                f"Another process holds {folder.lock}, but its Postgres was not ready after "
                f"{self._patience.attach:.0f} seconds. Its log is {folder.log}; end that process, and start again."
            ) from error

    async def watch(self) -> None:
        """Run for ever: keep our server up, or wait for the turn to own it. Main thread only.

        Raises `EmbeddedPostgresError` when the server can't be kept up; then the folder is free for another process.
        """
        server, lock = self._started()
        while True:
            if not lock.is_held:
                await self._wait_for_turn(lock)
                self._log("embedded_postgres_takes_over", data_dir=str(server.folder.root))
            else:
                await self._wait_for_end(server)
                self._log("embedded_postgres_ended", pid=server.pid, exit_code=server.exit_code)
                await self._count_restart()
            await self._bring_up(create=False)

    async def stop(self) -> None:
        """Stop the server when it is ours, and let another process own it. Cancel `watch` before."""
        if self._server is not None and self._lock is not None:
            try:
                await self._server.stop()
            finally:
                self._lock.release()

    async def _bring_up(self, *, create: bool) -> None:
        """Bring the server up, or give the folder free."""
        server, lock = self._started()
        try:
            await server.bring_up(create=create)
        except OSError as error:
            lock.release()
            raise DataFolderError(
                f"The data folder {server.folder.root} can't be used: {error}. Run Fermata as the user who made it, "
                "and see that its disk is writable and not full."
            ) from error
        except EmbeddedPostgresError:
            lock.release()
            raise

    async def _wait_for_turn(self, lock: FolderLock) -> None:
        while not lock.acquire():  # noqa: ASYNC110 - the kernel tells nobody that a lock is free
            await asyncio.sleep(TICK_SECONDS)

    async def _wait_for_end(self, server: Server) -> None:
        now = asyncio.get_running_loop().time
        check_log_at = now()
        while server.exit_code is None:
            if now() >= check_log_at:
                await asyncio.to_thread(server.output.keep_small)
                check_log_at = now() + LOG_CHECK_SECONDS
            await asyncio.sleep(TICK_SECONDS)

    async def _count_restart(self) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._restarts) == RESTARTS and now - self._restarts[0] < RESTART_WINDOW_SECONDS:
            await self.stop()
            raise RestartError(
                f"The embedded Postgres ended {RESTARTS + 1} times within {RESTART_WINDOW_SECONDS:.0f} seconds. "
                f"Its log is {self._started()[0].folder.log}."
            )
        self._restarts.append(now)

    def _started(self) -> tuple[Server, FolderLock]:
        if self._server is None or self._lock is None:
            raise NotStartedError("The embedded Postgres has not been started: await start() before.")
        return self._server, self._lock
