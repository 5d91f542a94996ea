"""Pages of other origins: let in by a list, and by nothing else."""

import pytest
from structlog.testing import capture_logs

from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of

ORIGIN = "https://chat.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}


async def test_a_page_of_a_listed_origin_may_call_and_read_the_streams_name(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, cors_origins=[ORIGIN]), Origin=ORIGIN) as client:
        asked = await client.options("/v1/turns", headers=PREFLIGHT)
        response = await client.post("/v1/turns", json={"input": "a"})

    assert asked.status_code == 200
    assert asked.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    exposed = response.headers["Access-Control-Expose-Headers"]
    assert "X-Stream-Id" in exposed
    assert "X-Conversation-Id" in exposed
    assert "Retry-After" in exposed


async def test_a_page_of_a_listed_origin_may_read_refusals(runtime: FakeRuntime) -> None:
    runtime.refuses = ValueError("a bug")
    with capture_logs():
        async with client_of(application(runtime, cors_origins=[ORIGIN]), Origin=ORIGIN) as client:
            responses = [await client.get("/v1/conversations"), await client.post("/v1/turns", json={})]

    assert [response.status_code for response in responses] == [500, 422]
    assert [response.headers["Access-Control-Allow-Origin"] for response in responses] == [ORIGIN, ORIGIN]


@pytest.mark.parametrize("origins", [[], [ORIGIN]])
async def test_a_page_of_another_origin_is_told_nothing(origins: list[str], runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, cors_origins=origins), Origin="https://evil.example") as client:
        asked = await client.options("/v1/turns", headers=PREFLIGHT)
        response = await client.get("/v1/conversations")

    assert asked.status_code in {400, 405}
    assert "Access-Control-Allow-Origin" not in asked.headers
    assert "Access-Control-Allow-Origin" not in response.headers
