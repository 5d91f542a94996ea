"""A model server for the benchmark: streams Chat Completions as providers do, at the pace that the model's name says.

`bench-200-50` answers with 200 tokens at 50 a second; a pace of 0 is as fast as it goes. `bench-pause-20` asks for the
host's tool first, and answers with 20 tokens once it has the result.
"""

import asyncio
import json
import sys
from typing import Any, cast

import uvloop

BATCH = 10
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(value: dict[str, Any] | str) -> bytes:
    """Give one event as an HTTP chunk."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    body = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Give a chunk of a completion."""
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


TOKEN = event(choice({"content": " token"}))
CALL = event(
    choice(
        {
            "tool_calls": [
                {"index": 0, "id": "call_b", "type": "function", "function": {"name": "host", "arguments": "{}"}}
            ]
        }
    )
)
TAIL = event(choice({}, "stop"))
CALL_TAIL = event(choice({}, "tool_calls"))
USAGE = event(
    {**choice({}), "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 200, "total_tokens": 210}}
)
LAST = USAGE + event("[DONE]") + b"0\r\n\r\n"


class Model(asyncio.Protocol):
    """One connection; requests come one after another."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._read = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop."""
        del exc
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read a request and answer it."""
        self._read += data
        head, separator, body = self._read.partition(b"\r\n\r\n")
        if not separator:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) < length:
            return
        self._read = body[length:]
        self._answer(json.loads(body[:length]))

    def _answer(self, request: dict[str, Any]) -> None:
        kind, first = request["model"].removeprefix("bench-").split("-")
        if kind == "pause":
            asked = request["messages"][-1]["role"] != "tool"
            self._write(HEAD + CALL + CALL_TAIL + LAST if asked else HEAD + TOKEN * int(first) + TAIL + LAST)
            return
        count, pace = int(kind), float(first)
        self._write(HEAD)
        if pace == 0:
            self._hurry(count)
        else:
            self._tick(count, 1 / pace, asyncio.get_running_loop().time())

    def _hurry(self, left: int) -> None:
        """Send without delay, a few tokens a packet."""
        self._write(TOKEN * min(left, BATCH))
        if left > BATCH:
            self._timer = asyncio.get_running_loop().call_later(0, self._hurry, left - BATCH)
        else:
            self._write(TAIL + LAST)

    def _tick(self, left: int, pause: float, due: float) -> None:
        if self._transport is None:
            return
        if left == 0:
            self._write(TAIL + LAST)
            return
        self._write(TOKEN)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(due + pause, self._tick, left - 1, pause, due + pause)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve() -> None:
    """Serve on a free port and say which."""
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
