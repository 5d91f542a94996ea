"""The processes of a benchmark: the model, the relay, Fermata and its Postgres; what each of them cost."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import httpx

from app.store.embedded.supervisor import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60
MANY_READERS = {f"FERMATA_MAX_READERS{of}": "6000" for of in ("", "_PER_STREAM", "_PER_USER")}
APART = {"FERMATA_GATHER_MILLISECONDS": "0"}
"""Each piece of text is told as the model cut it."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A server process on a port of 127.0.0.1."""

    pid: int
    port: int
    ready_seconds: float = 0.0

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return ("127.0.0.1", self.port)

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        """Bytes of memory that it holds."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """Give a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def postgres() -> AsyncIterator[str]:
    """Give the URL of a Postgres with its usual durability, in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="fb", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder) / "data")
        await server.start()
        try:
            yield server.dsn
        finally:
            await server.stop()


@asynccontextmanager
async def model() -> AsyncIterator[Process]:
    """Run the model server."""
    async with _process([sys.executable, "-m", "tests.bench.model"], {}, pipe=True) as child:
        assert child.stdout is not None
        line = await asyncio.to_thread(child.stdout.readline)
        yield Process(child.pid, int(line))


@asynccontextmanager
async def relay(model: Process) -> AsyncIterator[Process]:
    """Run the bare relay."""
    port = free_port()
    env = {"MODEL": f"http://127.0.0.1:{model.port}/v1/chat/completions", "PORT": str(port)}
    async with _process([sys.executable, "-m", "tests.bench.relay"], env) as child:
        await _listens(port)
        yield Process(child.pid, port)


@asynccontextmanager
async def fermata(model: Process, database: str, **settings: str) -> AsyncIterator[Process]:
    """Run Fermata on the database."""
    port = free_port()
    env = {
        "DATABASE_URL": database,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{model.port}/v1",
        "OPENAI_API_KEY": "bench",
        "FERMATA_PORT": str(port),
        "FERMATA_AUTO_MIGRATE": "true",
        "FERMATA_LOG_LEVEL": "warning",
        "FERMATA_DEFAULT_MODEL": "openai:bench-200-0",
        **settings,
    }
    began = perf_counter()
    async with _process([sys.executable, "-m", "app", "serve"], env) as child:
        await _ready(port)
        yield Process(child.pid, port, perf_counter() - began)


@asynccontextmanager
async def _process(
    command: list[str], env: dict[str, str], *, pipe: bool = False
) -> AsyncIterator[subprocess.Popen[bytes]]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    output = subprocess.PIPE if pipe else subprocess.DEVNULL
    child = subprocess.Popen(command, cwd=ROOT, env={**kept, **env}, stdout=output)
    try:
        yield child
    finally:
        child.terminate()
        await asyncio.to_thread(child.wait, 60)


async def _listens(port: int) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def _ready(port: int) -> None:
    async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient() as client:
        while True:
            try:
                if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
