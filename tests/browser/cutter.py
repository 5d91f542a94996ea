"""A wire that can be cut: passes bytes on to a service, until a test cuts what goes through it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)


class Wire:
    """What stands between a browser and a service."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.address = ""
        self.connections = 0
        self._sockets: set[asyncio.StreamWriter] = set()
        self._cut_after: bytes | None = None
        self.cut_happened = asyncio.Event()

    def cut_after(self, mark: bytes) -> None:
        """Reset every connection once the service has sent these bytes; once."""
        self._cut_after = mark

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection's bytes both ways."""
        self.connections += 1
        target = urlsplit(self.service)
        try:
            back_reader, back_writer = await asyncio.open_connection(target.hostname, target.port)
        except OSError:
            writer.close()
            return
        self._sockets |= {writer, back_writer}
        with suppress(OSError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, back_writer, watched=False))
                tasks.create_task(self._pass(back_reader, writer, watched=True))
        self._sockets -= {writer, back_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, watched: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
                if watched and self._cut_after is not None and self._cut_after in data:
                    self._cut_after = None
                    self._cut()
        writer.close()

    def _cut(self) -> None:
        for writer in self._sockets:
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        self.cut_happened.set()


@asynccontextmanager
async def wire_to(service: str) -> AsyncIterator[Wire]:
    """Stand before a service, on a free port."""
    wire = Wire(service)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    wire.address = f"http://{host}:{port}"
    try:
        yield wire
    finally:
        server.close()
        wire._cut()
