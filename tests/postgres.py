"""A throw-away Postgres for tests: one per process (so one per xdist worker), in a temporary folder, without TCP."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.store.embedded.supervisor import EmbeddedPostgres


@contextmanager
def passable_folder() -> Iterator[Path]:
    """Give a temporary folder which other users may pass through, so that root can run Postgres as one of them."""
    folder = Path(tempfile.mkdtemp(prefix="fermata-"))
    try:
        if os.geteuid() == 0:
            folder.chmod(0o711)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def throwaway_postgres() -> Iterator[str]:
    """Run a server while the context is open and give the URL of its empty database `fermata`, `postgresql://…`.

    The user is a superuser and may make more databases. Nothing is safe from a power cut, and all is deleted at the
    end. For a synchronous fixture of session scope: it needs the main thread, and no event loop that runs.
    """
    with passable_folder() as folder, asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        server = EmbeddedPostgres(folder / "data", fast=True)
        try:
            runner.run(server.start())
            yield server.dsn
        finally:
            runner.run(server.stop())
