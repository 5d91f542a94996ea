"""The load: many posts at once over raw sockets, each read to its end, with the times of what came."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

DELTA = b"event: text_delta\n"
WORD = b" token"
TOKEN = b'"content":"' + WORD + b'"'
EVENT_END = b"\n\n"
ENDS = (b"event: end\n", b"data: [DONE]")
CARRY = 40


@dataclass(slots=True)
class Read:
    """What one response was: seconds to its first token, the times of tokens, its bytes.

    `tokens` counts words of the model's: those that it sent together may come in one event.
    """

    status: int = 0
    first: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    size: int = 0
    longest_gap: float = 0.0
    body: bytearray = field(default_factory=bytearray)
    rest: bytes = b""

    def take(self, chunk: bytes, began: float, last: float) -> float:
        """Count a piece of the response; gives the time of the newest token."""
        whole, end, self.rest = (self.rest + chunk).rpartition(EVENT_END)
        found = words_in(whole + end)
        now = perf_counter()
        if not found:
            return last
        if not self.tokens:
            self.first = now - began
        else:
            self.longest_gap = max(self.longest_gap, now - last)
        self.tokens += found
        return now


def words_in(events: bytes) -> int:
    """Count the model's words in the pieces of text of a run of events, a service's or a model's."""
    pieces = events.split(DELTA)
    told = sum(piece[: piece.find(EVENT_END)].count(WORD) for piece in pieces[1:])
    return told + (pieces[0].count(TOKEN) if len(pieces) == 1 else 0)


async def post(
    address: tuple[str, int],
    path: str,
    body: dict[str, Any],
    *,
    keep: bool = False,
    on_token: Callable[[], None] | None = None,
) -> Read:
    """Post JSON and read the answer to its end; `on_token` is called for each read that brings one."""
    read, began = Read(), perf_counter()
    reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
    text = json.dumps(body).encode()
    lines = ["Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(text)}", "", ""]
    writer.write(f"POST {path} HTTP/1.1\r\n".encode() + "\r\n".join(lines).encode() + text)
    last, rest = began, b""
    try:
        while chunk := await reader.read(1 << 18):
            if not read.status:
                read.status = int(chunk[9:12])
            read.size += len(chunk)
            if keep:
                read.body += chunk
            before, last = read.tokens, read.take(chunk, began, last)
            if on_token is not None and read.tokens > before:
                on_token()
            tail = rest + chunk
            if any(end in tail for end in ENDS) or read.status >= 400:
                break
            rest = tail[-CARRY:]
    finally:
        writer.close()
    read.seconds = perf_counter() - began
    return read


async def at_once(count: int, make: Any) -> list[Read]:
    """Do `make(i)` for all at once."""
    return list(await asyncio.gather(*(make(index) for index in range(count))))


async def in_flight(total: int, width: int, make: Any) -> tuple[list[Read], float]:
    """Do `make(i)` for `total`, `width` at a time; gives the reads and the seconds it took."""
    reads: list[Read] = []
    numbers = iter(range(total))

    async def worker() -> None:
        reads.extend([await make(number) for number in numbers])

    began = perf_counter()
    await asyncio.gather(*(worker() for _ in range(width)))
    return reads, perf_counter() - began
