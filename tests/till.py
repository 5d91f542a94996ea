"""A till on loopback, and the files by which a service offers it as a tool that is run only when a person agrees."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

PERSONA: Final = """
id: cashier
name: Cashier
system_prompt: Pay back what is due.
tools: [pay_back]
"""
TOOL: Final = """
allowed_hosts: [127.0.0.1]
private_hosts: [127.0.0.1]
tools:
  - name: pay_back
    description: Pays money back
    method: POST
    url: {address}/pay
    requires_approval: true
    input_schema:
      type: object
      properties: {{cents: {{type: integer, minimum: 1}}}}
      required: [cents]
"""


class Till:
    """What was asked of it is in `paid`. While `opened` is not set, it takes a request and does not answer."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.opened = asyncio.Event()
        self.opened.set()
        self.asked = asyncio.Event()
        self.address = ""

    def settings(self, folder: Path) -> dict[str, str]:
        """Write the files and give the variables that name them."""
        personas = folder / "personas"
        personas.mkdir(exist_ok=True)
        (personas / "cashier.yaml").write_text(PERSONA, encoding="utf-8")
        tools = folder / "tools.yaml"
        tools.write_text(TOOL.format(address=self.address), encoding="utf-8")
        return {
            "FERMATA_PERSONAS_DIR": str(personas),
            "FERMATA_DEFAULT_PERSONA_ID": "cashier",
            "FERMATA_TOOLS_FILE": str(tools),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        self.paid.append(json.loads(await reader.readexactly(size))["cents"])
        self.asked.set()
        await self.opened.wait()
        body = json.dumps({"paid": self.paid[-1]}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def till() -> AsyncIterator[Till]:
    """Open a till."""
    made = Till()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(made.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1")
    made.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        made.opened.set()
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)


def wants_back(*cents: int) -> dict[str, Any]:
    """Make a model's answer that asks to pay back so much, once for each amount."""
    return {
        "steps": [
            {"call": {"name": "pay_back", "arguments": {"cents": amount}, "id": f"call-{amount}", "index": place}}
            for place, amount in enumerate(cents)
        ]
    }
