"""What the tests see of processes: owners that they start and end by pid, and the servers on a folder."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
# A start of a process and of a server takes about a second on an idle machine; this only bounds a failure.
PATIENCE_SECONDS = 60.0


class Owner:
    """A running `owner.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.events: list[dict[str, Any]] = []

    @classmethod
    async def start(cls, data_dir: Path, *options: str) -> "Owner":
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.store.embedded.owner", str(data_dir), *options),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def told(self, event: str) -> dict[str, Any]:
        """Wait until the process tells of the event, and give its fields."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self._process.stdout:
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == event:
                    return self.events[-1]
        message = f"the owner ended without {event}: {self.events}"
        raise AssertionError(message)

    async def send(self, signal_number: int) -> int:
        """Send the signal to the process and wait for its end; give its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal_number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            # What it still writes must be read, or it might never end.
            await self._process.communicate()
        return self._process.returncode or 0

    async def kill(self) -> None:
        """End the process as the kernel does when memory runs out: it can do nothing more."""
        await self.send(signal.SIGKILL)


def standing_in(folder: Path) -> set[int]:
    """Give the processes whose working directory the folder is, as it is for every process of a Postgres server."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").samefile(folder):
                found.add(int(entry.name))
    return found


def status_of(pid: int) -> dict[str, list[str]]:
    """Give the fields of a process' status, each split at white space."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}


def environment_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode().replace("\0", "\n")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, for a bounded time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)
