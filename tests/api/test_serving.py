"""The service as a process: how it starts, what it says, how it goes."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import app.commands as command_line
from app.api.schemas.chunks import frame_schema
from app.settings import Settings
from tests.api.process import Service, command, service
from tests.api.serving import PATIENCE
from tests.databases import Databases
from tests.sse import check_whole, frames_of

COMMON_PROXY_SECONDS = 60
TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
WEATHER = {"input": "What is the weather in Berlin, and what time is it?", "tools": [TOOL]}


def calling(running: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=running.address, timeout=PATIENCE)


@pytest.fixture(scope="module")
async def running(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A service on the model that ships, for all tests that leave it running."""
    async with (
        databases.fresh() as database,
        service(tmp_path_factory.mktemp("serving"), DATABASE_URL=database) as started,
    ):
        yield started


async def test_it_says_where_it_listens_and_what_to_try(running: Service) -> None:
    async with calling(running) as client:
        ready = await client.get("/readyz")
    said = "".join(running.said)

    assert ready.status_code == 200
    assert said.count("curl") == 3
    assert f"{running.address}/v1/conversations/first/turns" in said


async def test_every_frame_of_a_turn_is_as_the_schema_says(running: Service) -> None:
    checker = Draft202012Validator(frame_schema())
    async with calling(running) as client:
        asked = await client.post("/v1/conversations/c/turns", json=WEATHER)
        pause = (await client.get("/v1/conversations/c/pending-request")).json()
        results = [{"tool_call_id": call["id"], "output": "sunny"} for call in pause["tool_calls"]]
        answered = await client.post(f"/v1/streams/{pause['stream_id']}/tool-results", json={"results": results})

    turn, continuation = frames_of(asked.content), frames_of(answered.content)
    check_whole(turn)
    check_whole(continuation)
    assert {frame.event for frame in (*turn, *continuation)} == {
        "system_progress",
        "metadata_update",
        "text_delta",
        "tool_call_request",
        "tool_result_emission",
        "final_response",
        "end",
    }
    for frame in (*turn, *continuation):
        assert [fault.message for fault in checker.iter_errors(frame.data)] == []


async def test_on_sigterm_a_reader_of_a_held_pause_is_cut_after_the_grace(database: str, tmp_path: Path) -> None:
    async with service(tmp_path, DATABASE_URL=database, FERMATA_DRAIN_GRACE_SECONDS="0.2") as running:
        async with calling(running) as client:
            await client.post("/v1/conversations/c/turns", json=WEATHER)
            pause = (await client.get("/v1/conversations/c/pending-request")).json()
            followed = f"/v1/streams/{pause['stream_id']}/events?follow=true"
            with pytest.raises(httpx.RemoteProtocolError):
                async with client.stream("GET", followed) as response:
                    read = b""
                    async for piece in response.aiter_raw():
                        read += piece
                        if b"event: end" in read:
                            running.tell(signal.SIGTERM)
        code = await running.ends()

    assert code == 0
    assert "Traceback" not in "".join(running.said)


async def test_an_idle_connection_is_kept_longer_than_proxies_keep_theirs_unless_set(
    database: str, tmp_path: Path
) -> None:
    assert Settings(_env_file=None).keep_alive_seconds > COMMON_PROXY_SECONDS
    async with service(tmp_path, DATABASE_URL=database, FERMATA_KEEP_ALIVE_SECONDS="1") as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(running.address).port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
        writer.close()

    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" not in said.lower()


async def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = await command("serve", place=tmp_path, FERMATA_PORT=str(port))

    assert ended.code == 1
    assert ended.errors.startswith(f"Can't listen on 127.0.0.1 port {port}:")
    assert "FERMATA_PORT" in ended.errors
    assert "Traceback" not in ended.errors + ended.output


def test_a_name_with_addresses_of_both_kinds_is_listened_at_by_one_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = socket.getaddrinfo

    def told(_: str, *rest: Any, **more: Any) -> Any:
        return [*ask("::1", *rest, **more), *ask("127.0.0.1", *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", told)
    with command_line._bind("localhost", 0, 20) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


async def test_a_database_that_is_away_is_told_in_a_sentence(tmp_path: Path) -> None:
    ended = await command(
        "serve", place=tmp_path, FERMATA_PORT="0", DATABASE_URL="postgresql://u:pass-word@127.0.0.1:1/nothing"
    )

    assert ended.code == 1
    assert len(ended.errors.strip().splitlines()) == 1
    assert "pass-word" not in ended.errors + ended.output
    assert "Traceback" not in ended.errors + ended.output


@pytest.mark.parametrize("verb", ["serve", "migrate"])
async def test_bad_settings_are_told_one_sentence_a_fault(verb: str, tmp_path: Path) -> None:
    ended = await command(verb, place=tmp_path, FERMATA_PORT="x", FERMATA_HSOT="127.0.0.1")

    assert ended.code == 2
    assert [line.partition(" ")[0] for line in ended.errors.splitlines()] == ["FERMATA_HSOT", "FERMATA_PORT:"]
    assert "Traceback" not in ended.errors


async def test_without_keys_another_address_is_refused(tmp_path: Path) -> None:
    ended = await command("serve", place=tmp_path, FERMATA_HOST="0.0.0.0")  # noqa: S104 - what is refused

    assert ended.code == 2
    assert "FERMATA_API_KEYS" in ended.errors


async def test_migrate_makes_the_tables_and_goes_past_a_pooler(databases: Databases, tmp_path: Path) -> None:
    async with databases.empty() as url:
        first = await command("migrate", place=tmp_path, DATABASE_URL=url)
        beside = {"DATABASE_URL": "postgresql://pooler@127.0.0.1:1/x", "FERMATA_LISTEN_DATABASE_URL": url}
        again = await command("migrate", place=tmp_path, **beside)

    assert [first.code, again.code] == [0, 0], again.errors
    assert "newest tables" in first.output


def test_the_description_is_written_and_drift_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command_line, "CONTRACT_FOLDER", tmp_path / "openapi")
    run = CliRunner()
    missing = run.invoke(command_line.cli, ["openapi", "--check"])
    written = run.invoke(command_line.cli, ["openapi"])
    same = run.invoke(command_line.cli, ["openapi", "--check"])
    (tmp_path / "openapi" / "openapi.json").write_text("{}", encoding="utf-8")
    stale = run.invoke(command_line.cli, ["openapi", "--check"])

    assert [missing.exit_code, written.exit_code, same.exit_code, stale.exit_code] == [1, 0, 0, 1]
    assert "openapi.json" in stale.output
    assert json.loads((tmp_path / "openapi" / "chunks.schema.json").read_text(encoding="utf-8"))["$defs"]
