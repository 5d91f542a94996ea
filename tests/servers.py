"""Real server processes on a free port: started, talked to over HTTP, and ended by pid."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, Final

import httpx

from tests.sse import Frame, FrameReader, frames_of

ROOT = Path(__file__).parents[1]
PATIENCE = 30.0
START_SECONDS = 90.0
"""A start takes one to three seconds; this only bounds a failure on a machine that is busy."""

SERVE: Final = ("-W", "error", "-W", "ignore::ResourceWarning", "-m", "app", "serve")
"""Warnings are errors, but for those of resources, which Python ignores: aiohttp gives one for each large body."""

CUT = (httpx.RemoteProtocolError, httpx.ReadError)
"""What a client gets whose response was not finished."""


class Server:
    """A process that serves on a database; `client` calls it and `log` holds what it has written."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, database: str | None) -> None:
        self.database = database or ""
        self.home = log.parent
        self._process = process
        self._log = log
        self.root = ""
        self.client = httpx.AsyncClient()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def until_listening(self) -> None:
        """Wait until the process says where it listens."""
        mark = "Fermata listens on "
        async with asyncio.timeout(START_SECONDS):
            while mark not in self.log:
                assert self._process.returncode is None, f"the server ended: {self.log}"
                await asyncio.sleep(0.02)
        self.root = self.log.split(mark, 1)[1].split(" ", 1)[0]
        self.client = httpx.AsyncClient(base_url=self.root, timeout=2 * PATIENCE, trust_env=False)

    async def says(self, words: str) -> None:
        """Wait until the log holds these words."""
        async with asyncio.timeout(PATIENCE):
            while words not in self.log:  # noqa: ASYNC110 - a state of another process
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End the process as the kernel does when memory runs out (SIGKILL)."""
        await self._end(SIGKILL)

    async def stop(self) -> int:
        """End the process with SIGTERM and give its exit code."""
        await self._end(SIGTERM)
        return self._process.returncode or 0

    async def ended(self) -> int:
        """Wait for the process to end by itself, after a signal, and give its exit code."""
        async with asyncio.timeout(START_SECONDS):
            return await self._process.wait()

    def signal(self, number: Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    async def _end(self, number: Signals) -> None:
        await self.client.aclose()
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(START_SECONDS):
            await self._process.wait()

    # Calls ------------------------------------------------------------------------------------------------------

    async def post(self, path: str, body: Mapping[str, Any]) -> list[Frame]:
        """Post and read the events of the answer to their end; the answer must be a stream."""
        response = await self.client.post(path, json=body)
        assert response.headers["content-type"].startswith("text/event-stream"), response.text
        assert response.status_code == httpx.codes.OK
        return frames_of(response.content)

    async def turn(self, conversation: str, text: str, **more: Any) -> list[Frame]:
        """Run a turn and give its frames."""
        return await self.post(f"/v1/conversations/{conversation}/turns", {"input": text, **more})

    async def results(self, stream_id: str, *results: Mapping[str, Any], **more: Any) -> list[Frame]:
        """Pass results on a stream and give the continuation's frames."""
        return await self.post(f"/v1/streams/{stream_id}/tool-results", {"results": list(results), **more})

    async def get(self, path: str, **query: Any) -> Any:
        """Get a JSON document; None for 204."""
        response = await self.client.get(path, params=query)
        assert response.is_success, response.text
        return None if response.status_code == httpx.codes.NO_CONTENT else response.json()

    async def replay(self, stream_id: str, after: str | None = None) -> bytes:
        """Give the bytes of a stream's events without comments, up to the last `end`."""
        query = {} if after is None else {"after": after}
        response = await self.client.get(f"/v1/streams/{stream_id}/events", params=query)
        return b"".join(frame.raw for frame in frames_of(response.content))

    @asynccontextmanager
    async def stream(self, method: str, path: str, **request: Any) -> AsyncIterator["LiveStream"]:
        """Open a stream to be read frame by frame; leaving closes the socket. Its reader bounds its waits itself."""
        patient = httpx.Timeout(2 * PATIENCE, read=None)
        async with self.client.stream(method, path, timeout=patient, **request) as response:
            yield LiveStream(response)


class LiveStream:
    """The events of one response, as they come. `frames` keeps those that were read."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.frames: list[Frame] = []
        self._reader = FrameReader()
        self._pieces = response.aiter_raw()
        self._waiting: list[Frame] = []

    @property
    def comments(self) -> list[str]:
        return self._reader.comments

    @property
    def retry(self) -> int | None:
        return self._reader.retry

    async def next(self, seconds: float = PATIENCE) -> Frame:
        """Give the next frame; StopAsyncIteration when the response has ended, one of `CUT` when it was cut."""
        async with asyncio.timeout(seconds):
            while not self._waiting:
                self._waiting = self._reader.feed(await anext(self._pieces))
        self.frames.append(self._waiting.pop(0))
        return self.frames[-1]

    async def until(self, event: str, seconds: float = PATIENCE) -> Frame:
        """Read up to the next frame of that type and give it."""
        async with asyncio.timeout(seconds):
            while (frame := await self.next(seconds)).event != event:
                pass
        return frame

    async def rest(self, seconds: float = PATIENCE) -> list[Frame]:
        """Read to the end of the response and give all frames of it."""
        async with asyncio.timeout(seconds):
            try:
                while True:
                    await self.next(seconds)
            except StopAsyncIteration:
                self._reader.finish()
        return self.frames


class Servers:
    """Starts servers; all of them have been ended when the context is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._started: list[Server] = []

    async def start(
        self, database: str | None, model_url: str | None = None, *, program: Sequence[str] = SERVE, **settings: str
    ) -> Server:
        """Start a server on a database (None: its own embedded one), with variables of its own, and wait for it.

        `program` is what Python is told to run, in place of the service's own command.
        """
        home = self._folder / f"server-{next(self._numbers)}"
        home.mkdir()
        log = home / "server.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *program,
                cwd=home,  # no .env of the developer's is read there
                env=environment(database, model_url, settings),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )
        server = Server(process, log, database)
        self._started.append(server)
        await server.until_listening()
        return server

    async def end(self) -> None:
        """End whatever still runs."""
        for server in self._started:
            await server.kill()


def environment(database: str | None, model_url: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Give a server's environment: nothing of this machine's settings, a free port, and what is asked for."""
    theirs = ("FERMATA_", "OPENAI_", "ANTHROPIC_", "DATABASE_URL", "PG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    asked = {"DATABASE_URL": database, "OPENAI_BASE_URL": model_url}
    if model_url is not None:
        asked |= {"OPENAI_API_KEY": "sk-test-of-the-mock", "FERMATA_DEFAULT_MODEL": "openai:mock"}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "FERMATA_PORT": "0",
        "FERMATA_DRAIN_GRACE_SECONDS": "1",
        "FERMATA_LOG_FORMAT": "json",
        **{name: value for name, value in asked.items() if value is not None},
        **settings,
    }
