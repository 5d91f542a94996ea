"""The command line as an operator uses it: commands that come to an end, and the service as a process of its own."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, chdir
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

import app.commands as command_line
from tests.logs import logs_as_before
from tests.servers import SERVE

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
STOP_SECONDS = 60.0


def environment(**values: str) -> dict[str, str]:
    """Give the machine's environment without settings, and with those that are given."""
    ours = ("FERMATA_", "DATABASE_URL", "OPENAI_", "ANTHROPIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT), **values}


@dataclass(slots=True)
class Finished:
    """How a command ended."""

    code: int
    output: str
    errors: str


async def command(*arguments: str, place: Path, **values: str) -> Finished:
    """Run what `python -m app …` runs, in a folder of the test's own, to its end.

    It runs in a thread of this process, since a process of its own would mostly import. What it raises, it raises here.
    """
    kept = environment(**values)
    missing = dict.fromkeys(set(os.environ) - set(kept))

    def run() -> Finished:
        with chdir(place), logs_as_before():
            done = CliRunner().invoke(command_line.cli, arguments, env={**kept, **missing}, catch_exceptions=False)
        return Finished(done.exit_code, done.stdout, done.stderr)

    return await asyncio.to_thread(run)


class Service:
    """A process that serves; `said` is what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, said: list[str]) -> None:
        self.process = process
        self.address = address
        self.said = said

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ends(self) -> int:
        """Wait for the process to end; gives its exit code."""
        async with asyncio.timeout(STOP_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def service(place: Path, *, port: int = 0, **values: str) -> AsyncIterator[Service]:
    """Serve while the context is open, on a free port unless one is named; it is given little time to drain."""
    values = {"FERMATA_DRAIN_GRACE_SECONDS": "2", **values}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *SERVE,
        cwd=place, env=environment(FERMATA_PORT=str(port), **values), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said: list[str] = []
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(_listen(process, said, found))
    try:
        async with asyncio.timeout(START_SECONDS):
            address = await found
        yield Service(process, address, said)
    finally:
        await _end(process)
        await reading


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise


async def _listen(process: asyncio.subprocess.Process, said: list[str], found: asyncio.Future[str]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        said.append(line.decode())
        listening = re.search(r"Fermata listens on (http://\S+) ", said[-1])
        if listening and not found.done():
            found.set_result(listening[1])
    if not found.done():
        found.set_exception(AssertionError("The service ended before it listened:\n" + "".join(said)))
