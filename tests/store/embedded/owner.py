"""A process of its own that owns or shares a data folder, for the tests of kills and take-overs.

Writes one JSON object a line: each event, then `started` with what it found. SIGTERM stops it in good order.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from app.store.embedded import server
from app.store.embedded.supervisor import EmbeddedPostgres


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def run(data_dir: Path) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    postgres = EmbeddedPostgres(data_dir, fast=True, log=tell)
    await postgres.start()
    tell("started", dsn=postgres.dsn, owner=postgres.is_owner, pid=postgres.pid)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(postgres.watch())
        await stopped.wait()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    await postgres.stop()
    tell("stopped")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("data_dir", type=Path)
    arguments.add_argument("--tie", choices=["signal", "pipe"], default="signal")
    given = arguments.parse_args()
    if given.tie == "pipe":
        setattr(server, "has_death_signal", lambda: False)  # noqa: B010 - as on a system without one
    asyncio.run(run(given.data_dir))
