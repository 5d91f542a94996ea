"""How much may be sent, told or not told beforehand."""

import asyncio
import json
from collections.abc import AsyncIterator

from dirty_equals import IsPartialDict

from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of, served

JSON = {"Content-Type": "application/json"}


async def test_a_body_over_the_limit_is_a_413(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/turns", json={"input": "x" * (11 * 2**20)})

    assert response.status_code == 413
    assert response.json() == IsPartialDict(code="SYS_PAYLOAD_TOO_LARGE", limit=10 * 2**20)
    assert runtime.asked == []


async def test_a_body_of_untold_length_is_stopped_at_the_limit(runtime: FakeRuntime) -> None:
    given_out = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given_out
        yield b'{"input": "'
        for _ in range(100):
            given_out += 1
            yield b"x" * 1000

    async with client_of(application(runtime, max_body_bytes=4096)) as client:
        response = await client.post("/v1/turns", content=endless(), headers=JSON)

    assert response.status_code == 413
    assert response.json()["code"] == "SYS_PAYLOAD_TOO_LARGE"
    assert given_out < 10


async def test_a_body_at_the_limit_is_taken(runtime: FakeRuntime) -> None:
    body = json.dumps({"input": ""}).encode()
    body = body.replace(b'""', b'"' + b"x" * (4096 - len(body)) + b'"')
    async with client_of(application(runtime, max_body_bytes=4096)) as client:
        response = await client.post("/v1/turns", content=body, headers=JSON)

    assert len(body) == 4096
    assert response.status_code == 200


async def test_over_a_socket_the_refusal_arrives_without_the_body_being_sent(runtime: FakeRuntime) -> None:
    async with served(application(runtime)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/turns HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 11000000\r\nExpect: 100-continue\r\n\r\n"
        )
        async with asyncio.timeout(30):
            status = await reader.readline()
        writer.close()

    assert status.startswith(b"HTTP/1.1 413")


async def test_a_large_body_is_read_like_a_small_one(runtime: FakeRuntime) -> None:
    text = "\u0416" * 400_000
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/turns", json={"input": text})

    assert response.status_code == 200
    assert runtime.asked[0].input == text
