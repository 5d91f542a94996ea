"""A model server for tests: real sockets, Chat Completions streams, and every way in which a provider goes wrong.

`python -m tests.mock_model` serves on a free port of 127.0.0.1 and prints its address. `ModelServer` is the same inside
a test's own loop, `running_mock_model` starts it as a process. Every POST is a model call, except these:

    POST /script   {"answers": [Answer, …], "model"?: for this model alone}   queues answers, first in first out
    GET  /requests?count=n   the recorded requests, once there are n   {"requests": [{path, headers, body, violations}]}
    GET  /closed?count=n     the answers whose client went away, once n did   {"closed": [index of the request, …]}
    POST /reset              forgets all of that

An Answer is `{"status"?, "headers"?, "body"?}` (a plain response: JSON, or text as it is) or `{"steps": [Step, …],
"bare"?: true, "headers"?}`. A Step has one key: `text`, `reasoning`, `call` ({name, arguments?, id?, index?, pieces?}),
`usage` ({prompt, completion}), `event` (any JSON), `raw` (sent as it is), `wait` (seconds), `gate` (stands still until
`ModelServer.open` names it), `finish` (reason), `done` (`[DONE]`), or an ending: `hang` (silence until the client
leaves), `reset` (RST), `cut` (closed in the middle of the response), `eof` (the response ends in order, the answer does
not). Unless it is `bare`, an answer gets the finish, the usage and the `[DONE]` that it lacks. Without a script the
server answers by itself: `mock_answers.default_steps`.
"""

import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.mock_answers import Ending, Gate, actions, default_steps
from tests.oracle import check_request

PATIENCE: Final = 30.0
Answer = dict[str, Any]
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def document(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(slots=True)
class _Seen:
    scripts: dict[str | None, deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    requests: list[dict[str, Any]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    connections: int = 0
    gates: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))


class ModelServer:
    """The server; use it as an async context manager. `seen` holds what it was asked; port 0 is a free one."""

    def __init__(self, port: int = 0) -> None:
        self.seen = _Seen()
        self._port = port
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def root(self) -> str:
        """The address without a path."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def base_url(self) -> str:
        """The base URL of the Chat Completions dialect."""
        return f"{self.root}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def script(self, *answers: Answer, model: str | None = None) -> None:
        """Queue answers, for any model or for one."""
        self.seen.scripts[model].extend(answers)

    def open(self, gate: str) -> None:
        """Let the answers that stand at this gate go on, and those that come to it later pass."""
        self.seen.gates[gate].set()

    async def requests(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait for `count` requests and give all that there are."""
        return await self._until(self.seen.requests, count)

    async def closed(self, count: int = 1) -> list[int]:
        """Wait until `count` clients went away before the end of their answer."""
        return await self._until(self.seen.closed, count)

    async def answered(self, count: int = 1) -> list[int]:
        """Wait until `count` answers have been sent to their end, whether or not anybody read them."""
        return await self._until(self.seen.answered, count)

    async def idle(self) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: not self._tasks)

    async def _until(self, entries: list[Entry], count: int) -> list[Entry]:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: len(entries) >= count)
        return entries

    async def _note(self, entries: list[Entry], entry: Entry) -> None:
        entries.append(entry)
        async with self._changed:
            self._changed.notify_all()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.seen.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                if not await self._serve(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            writer.close()
            self._tasks.discard(task)
            async with self._changed:
                self._changed.notify_all()

    async def _serve(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; tells whether the connection can be used again."""
        try:
            control = await self._control(request)
        except TimeoutError:
            await _plain(writer, 504, {}, "What was waited for did not happen.")
            return True
        if control is not None:
            await _plain(writer, 200, {}, control)
            return True
        document = request.document()
        body = document if isinstance(document, dict) else {}
        model = str(body.get("model", ""))
        index = len(self.seen.requests)
        chat = request.path.endswith("/chat/completions")
        violations = check_request(body.get("messages") or []) if chat else []
        recorded = {
            "path": request.path,
            "query": request.query,
            "headers": request.headers,
            "body": document,
            "violations": violations,
        }
        await self._note(self.seen.requests, recorded)
        answer = self._next(model) or {"steps": default_steps(body)}
        if "steps" not in answer:
            await _plain(writer, int(answer.get("status", 200)), answer.get("headers") or {}, answer.get("body", ""))
            return True
        return await self._race(self._stream(writer, answer, model), index, reader)

    async def _race(self, answering: Any, index: int, reader: asyncio.StreamReader) -> bool:
        """Answer until the answer ends or the client goes away, whichever is first."""
        answer = asyncio.ensure_future(answering)  # noqa: TID251 - both tasks end in here
        gone = asyncio.ensure_future(reader.read(1))  # noqa: TID251 - both tasks end in here
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and answer.exception() is None:
                await self._note(self.seen.answered, index)
                return bool(answer.result())
            await self._note(self.seen.closed, index)
            return False
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    async def _stream(self, writer: asyncio.StreamWriter, answer: Answer, model: str) -> bool:
        """Send the steps, each in a chunk of its own; tells whether the response ended in order."""
        headers = {"content-type": "text/event-stream", **(answer.get("headers") or {}), "transfer-encoding": "chunked"}
        writer.write(_head(200, headers))
        for action in actions(answer["steps"], model, bare=bool(answer.get("bare"))):
            match action:
                case bytes():
                    writer.write(b"%x\r\n%b\r\n" % (len(action), action))
                    await writer.drain()
                case Gate():
                    await self.seen.gates[action].wait()
                case float():
                    await asyncio.sleep(action)
                case Ending.HANG:
                    await asyncio.get_running_loop().create_future()
                case Ending.RESET:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    return False
                case Ending.CUT:
                    return False
                case Ending.EOF:
                    break
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _next(self, model: str) -> Answer | None:
        for name in (model, None):
            if self.seen.scripts[name]:
                return self.seen.scripts[name].popleft()
        return None

    async def _control(self, request: _Request) -> Any:
        count = int(request.query.get("count", ["0"])[0])
        match request.method, request.path:
            case "POST", "/script":
                told = request.document()
                self.script(*told["answers"], model=told.get("model"))
                return {"queued": len(told["answers"])}
            case "POST", "/reset":
                self.seen.scripts.clear()
                self.seen.requests.clear()
                self.seen.closed.clear()
                return {}
            case "GET", "/requests":
                return {"requests": await self.requests(count), "connections": self.seen.connections}
            case "GET", "/closed":
                return {"closed": await self.closed(count)}
            case _:
                return None


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    return _Request(method, parts.path, parse_qs(parts.query), headers, body)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase if status < 529 else 'Overloaded'}\r\n{lines}\r\n".encode()


async def _plain(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], body: Any) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/html" if isinstance(body, str) else "application/json"
    sent = {"content-type": kind, **headers, "content-length": str(len(content))}
    writer.write(_head(status, sent) + content)
    await writer.drain()


class MockModel:
    """A client of a server that runs as a process."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.base_url = f"{root}/v1"
        self._client = httpx.AsyncClient(base_url=root, timeout=2 * PATIENCE, trust_env=False)

    async def script(self, *answers: Answer, model: str | None = None) -> None:
        """Queue answers."""
        told = {"answers": list(answers), "model": model}
        (await self._client.post("/script", json=told)).raise_for_status()

    async def requests(self, count: int = 0) -> list[dict[str, Any]]:
        """Wait for `count` requests and give all that there are."""
        return list(await self._get("requests", count))

    async def closed(self, count: int = 0) -> list[int]:
        """Wait until `count` clients went away before the end of their answer."""
        return list(await self._get("closed", count))

    async def reset(self) -> None:
        """Forget scripts and records."""
        (await self._client.post("/reset")).raise_for_status()

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def _get(self, name: str, count: int) -> Any:
        response = await self._client.get(f"/{name}", params={"count": count})
        return response.raise_for_status().json()[name]


@contextlib.asynccontextmanager
async def running_mock_model() -> AsyncIterator[MockModel]:
    """Start the server as a process of its own, and stop it at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mock_model", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(2 * PATIENCE):
            root = (await process.stdout.readline()).decode().strip()
        client = MockModel(root)
        try:
            yield client
        finally:
            await client.aclose()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _main() -> None:
    async with ModelServer() as server:
        print(server.root, flush=True)  # noqa: T201 - whoever started the process reads the address
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_main())
