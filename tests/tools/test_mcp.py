"""MCP servers, real ones by the official SDK: over standard input and output, and over HTTP on this machine."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.messages import ToolCall
from app.domain.turn import Caller
from app.providers.scripted import call as asked
from app.tools.base import ToolContext, ToolError
from app.tools.executor import ToolExecutor
from app.tools.mcp import LONGEST_NAME, McpServer, McpServers, told_name
from app.tools.mcp_file import McpServerPart
from app.tools.registry import ToolRegistry
from app.tools.web import read_tools_file
from tests.stage import one, running_stage

PATIENCE = 60.0

pytestmark = pytest.mark.timeout(180)
CONTEXT = ToolContext(Caller("ada"), "c", "s", "demo", "turn_1")
PROGRAM = (sys.executable, "-m", "tests.tools.mcp_server")


async def until(holds: Callable[[], Any]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


def part(**more: Any) -> McpServerPart:
    here = str(Path(__file__).parents[2])
    return McpServerPart(**{"name": "shop", "command": PROGRAM, "cwd": here, "connect_seconds": 20, **more})


@asynccontextmanager
async def running(*servers: McpServer, connected: bool = True) -> AsyncIterator[McpServers]:
    """Keep servers connected while the context is open."""
    source = McpServers(servers)
    task = asyncio.create_task(source.run())
    try:
        if connected:
            await until(lambda: all(server.tools for server in servers))
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def served(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Serve the server over HTTP in a process of its own."""
    program, *arguments = (*PROGRAM, str(port))
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def call(source: McpServers, tool: str, **arguments: Any) -> Any:
    return await source.tools()[tool].execute(arguments, CONTEXT)


async def test_a_program_offers_its_tools_under_its_name_and_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    note = tmp_path / "pid"
    bounds: dict[str, Any] = {"timeout_seconds": 5, "max_output_bytes": 100, "requires_approval": ("ech*",)}
    tools = ("a*", "e*", "fail", "hang")
    server = McpServer(part(env={"MCP_PID_FILE": str(note), "SHOP": "open"}, tools=tools, **bounds))
    async with running(server) as source:
        offers = sorted(source.tools())
        assert offers == [f"shop__{name}" for name in ("add", "echo", "environment", "fail", "hang")]
        assert [name for name in offers if source.tools()[name].rules.requires_approval] == ["shop__echo"]
        offered = source.tools()["shop__add"].spec
        assert (offered.description, set(offered.input_schema["properties"])) == ("Add two numbers.", {"a", "b"})
        assert await call(source, "shop__add", a=2, b=3) == {"result": 5}
        assert await call(source, "shop__echo", text="hé") == {"result": "hé"}
        assert await call(source, "shop__environment", name="SHOP") == {"result": "open"}
        assert await call(source, "shop__environment", name="OPENAI_API_KEY") == {"result": "not set"}
        with pytest.raises(ToolError, match="Error executing tool fail"):
            await call(source, "shop__fail")
        with pytest.raises(ToolError):
            await call(source, "shop__hang")
        executor = ToolExecutor(ToolRegistry([], [source]), timeout=30)
        assert [spec.name for spec in executor.registry.specs(["shop__a*", "none__*"])] == ["shop__add"]
        large = await executor.run(ToolCall("call_1", "shop__echo", {"text": "x" * 200}), CONTEXT)
        assert (large.error_details or {})["code"] == "TOOL_OUTPUT_TOO_LARGE"
        wrong = await executor.run(ToolCall("call_2", "shop__add", {"a": "one"}), CONTEXT)
        assert (wrong.error_details or {})["code"] == "TOOL_ARGUMENTS_INVALID"
        pid = int(note.read_text())
        assert alive(pid)
    await until(lambda: not alive(pid))


@pytest.mark.slow
async def test_a_server_that_dies_is_started_again_and_takes_only_its_own_tools_along() -> None:
    server, other = McpServer(part()), McpServer(part(name="other"))
    missing = McpServer(part(name="gone", command=("/no/such/program",), connect_seconds=0.5))
    async with running(server, other, missing, connected=False) as source:
        await until(lambda: server.tools and other.tools)
        with pytest.raises(ToolError, match="can't be reached"):
            await call(source, "shop__die")
        assert await call(source, "other__add", a=1, b=1) == {"result": 2}
        assert await call(source, "shop__add", a=2, b=2) == {"result": 4}
        with pytest.raises(ToolError, match="the call was not run"):
            await missing.call("anything", {})


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.slow)])
async def test_a_tool_that_is_new_is_offered_soon(mode: str) -> None:
    server = McpServer(part(), mode=mode)
    async with running(server) as source:
        before = set(source.tools())
        await call(source, "shop__grow")
        await until(lambda: set(source.tools()) - before == {"shop__grown"})
        assert await call(source, "shop__grown") == "new"


async def test_a_server_over_http_is_found_again_and_a_private_address_is_not_reached_unless_it_may_be() -> None:
    port = free_port()
    place: dict[str, Any] = {"command": None, "cwd": None}
    server = McpServer(part(url=f"http://localhost:{port}/mcp", **place), private=True)
    refused = [
        McpServer(part(url=f"http://{host}:{port}/mcp", **place, connect_seconds=0.5))
        for host in ("localhost", "127.0.0.1")
    ]
    async with running(server, *refused, connected=False) as source:
        async with served(port) as process:
            await until(lambda: server.tools)
            assert await call(source, "shop__add", a=2, b=3) == {"result": 5}
            for one_of in refused:
                with pytest.raises(ToolError, match="the call was not run"):
                    await one_of.call("add", {"a": 1, "b": 1})
            process.kill()
            await process.wait()
            with pytest.raises(ToolError, match="can't be reached"):
                await call(source, "shop__add", a=2, b=3)
        async with served(port), asyncio.timeout(PATIENCE):
            while True:
                try:
                    assert await call(source, "shop__add", a=2, b=3) == {"result": 5}
                except ToolError:
                    await asyncio.sleep(0.05)
                else:
                    return


async def test_a_host_is_reached_by_whichever_of_its_addresses_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    ask = socket.getaddrinfo

    def told(host: Any, *rest: Any, **more: Any) -> Any:
        # As most machines tell of it, whatever this one does; of the first two addresses nobody listens at either.
        named = [f"127.0.0.{number}" for number in (3, 2, 1)] if host == "localhost" else [host]
        return [one_of for name in named for one_of in ask(name, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", told)
    server = McpServer(part(url=f"http://localhost:{port}/mcp", command=None, cwd=None), private=True)
    async with running(server, connected=False) as source, served(port):
        await until(lambda: server.tools)
        assert await call(source, "shop__add", a=2, b=3) == {"result": 5}


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        ({"name": "a"}, "either command or url"),
        ({"name": "a", "command": ["x"], "url": "http://shop/mcp"}, "either command or url"),
        ({"name": "a", "command": []}, "at least 1 item"),
        ({"name": "a", "command": ["x"], "headers": {"b": "c"}}, "headers go with url"),
        ({"name": "a", "url": "http://shop/mcp", "env": {"b": "c"}}, "env and cwd go with command"),
        ({"name": "a_b", "command": ["x"]}, "pattern"),
        ({"name": "a", "url": "http://other/mcp"}, "not among the allowed_hosts"),
        ({"name": "a", "url": "http://shop/mcp", "headers": {"x": "${NOT_SET}"}}, "variable NOT_SET"),
        ({"name": "a", "command": ["x"], "env": {"x": "${NOT_SET}"}}, "variable NOT_SET"),
        ({"name": "a", "comand": ["x"]}, "comand"),
    ],
)
def test_a_server_that_is_declared_wrongly_is_told_with_its_place(server: dict[str, Any], sentence: str) -> None:
    text = json.dumps({"allowed_hosts": ["shop"], "mcp_servers": [server]})
    with pytest.raises(ConfigurationError, match=r"tools\.yaml") as told:
        read_tools_file(text, {}, "tools.yaml")
    assert sentence in str(told.value)


def test_servers_are_read_with_their_variables_and_two_of_one_name_are_refused() -> None:
    server = {"name": "a", "url": "http://shop/mcp", "headers": {"authorization": "Bearer ${KEY}"}}
    file = {"allowed_hosts": ["shop"], "private_hosts": ["shop"], "mcp_servers": [server]}
    _, [(read, private)] = read_tools_file(json.dumps(file), {"KEY": "k"})
    assert (read.headers, private) == ({"authorization": "Bearer k"}, True)
    with pytest.raises(ConfigurationError, match="two MCP servers"):
        read_tools_file(json.dumps({**file, "mcp_servers": [server, server]}), {"KEY": "k"})


def test_names_are_such_that_every_model_takes_them() -> None:
    assert told_name("shop", "read.file/now") == "shop__read_file_now"
    long = {told_name("shop", "x" * 100 + ending) for ending in ("a", "b")}
    assert {len(name) for name in long} == {LONGEST_NAME}
    assert len(long) == 2


async def test_a_turn_calls_a_tool_of_a_server(shared_database: str, tmp_path: Path) -> None:
    server = {"name": "shop", "command": list(PROGRAM), "cwd": str(Path(__file__).parents[2]), "connect_seconds": 20}
    file = tmp_path / "tools.txt"
    file.write_text(json.dumps({"mcp_servers": [server]}))
    persona = {
        "id": "clerk",
        "name": "Clerk",
        "system_prompt": "You sell.",
        "tools": ["shop__a*"],
        "model": "scripted:x",
    }
    (tmp_path / "clerk.json").write_text(json.dumps(persona))
    settings: dict[str, Any] = {"tools_file": file, "personas_dir": tmp_path, "default_persona_id": "clerk"}
    async with running_stage(shared_database, **settings) as stage:
        registry = stage.runtime._services.tools.registry
        await until(lambda: "shop__add" in registry.names)
        stage.provider.add([asked("shop__add", {"a": 2, "b": 3}, id="call_1")], "It is 5.")
        chunks = await stage.play("What is 2 and 3?")
        assert one(chunks, "final_response")["final_response_text"] == "It is 5."
        assert [tool.name for tool in stage.provider.requests[0].tools] == ["shop__add"]
        assert '"result":5' in str(stage.provider.requests[1].messages[-1].content).replace(" ", "").replace("'", '"')


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
