"""Two servers that many tests share, with the model that both talk to: for tests that end neither of them.

And grounds for attacks, where processes are held, cut, frozen and killed.
"""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from tests.databases import Databases
from tests.live.battle import UNHURRIED, Ground, Two, open_ground
from tests.mock_model import ModelServer
from tests.servers import Server, Servers


@pytest.fixture(scope="session")
async def shared_mock() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
async def shared_pair(
    databases: Databases, shared_mock: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Server, Server]]:
    servers = Servers(tmp_path_factory.mktemp("pair"))
    async with databases.fresh() as url:
        try:
            first, second = await asyncio.gather(*(servers.start(url, shared_mock.base_url) for _ in range(2)))
            yield first, second
        finally:
            await servers.end()


@pytest.fixture
async def model(shared_mock: ModelServer) -> AsyncIterator[ModelServer]:
    """The model of the pair, with nothing scripted and nothing recorded. Whatever it is asked must be valid."""
    shared_mock.seen.scripts.clear()
    shared_mock.seen.requests.clear()
    shared_mock.seen.closed.clear()
    shared_mock.seen.answered.clear()
    shared_mock.seen.gates.clear()
    yield shared_mock
    assert [request["violations"] for request in shared_mock.seen.requests if request["violations"]] == []


@pytest.fixture
def pair(shared_pair: tuple[Server, Server], model: ModelServer) -> tuple[Server, Server]:
    """Two servers on one database. Other tests use them too: a conversation needs a name of its own."""
    return shared_pair


@pytest.fixture(scope="session")
async def shared_impatient(
    databases: Databases, shared_mock: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("impatient")
    (folder / "providers.yaml").write_text("limits: {attempts: 1}\n", encoding="utf-8")
    servers = Servers(folder)
    async with databases.fresh() as url:
        try:
            file = {"FERMATA_PROVIDERS_FILE": str(folder / "providers.yaml")}
            yield await servers.start(url, shared_mock.base_url, **file)
        finally:
            await servers.end()


@pytest.fixture
def impatient(shared_impatient: Server, model: ModelServer) -> Server:
    """A server that asks a model once and not again; other tests use it too."""
    return shared_impatient


@pytest.fixture
async def ground(servers: Servers, database: str, mock: ModelServer) -> AsyncIterator[Ground]:
    """A database of the test's own with points in front of it, and no process yet."""
    async with open_ground(servers, database, mock) as ready:
        yield ready


@pytest.fixture(scope="module")
async def two(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    """Two processes behind points, for all tests of a module; each test has conversations of its own."""
    servers = Servers(tmp_path_factory.mktemp("two"))
    async with databases.fresh() as database, ModelServer() as mock, open_ground(servers, database, mock) as ready:
        try:
            a, b = await asyncio.gather(*(ready.attacked(**UNHURRIED) for _ in range(2)))
            yield ready, a, b
        finally:
            await servers.end()
        assert [request["violations"] for request in mock.seen.requests if request["violations"]] == []


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the test's conversation."""
    return re.sub("[^A-Za-z0-9]+", "-", request.node.name)[:100]
