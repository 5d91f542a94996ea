"""One real server for all tests of the client, with a model to script; each test has a conversation of its own."""

from collections.abc import AsyncIterator
from itertools import count

import pytest

from app.client import Connection
from tests.databases import Databases
from tests.mock_model import ModelServer
from tests.servers import Server, Servers

NUMBERS = count(1)


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
async def server(
    databases: Databases, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    async with databases.fresh() as database:
        starting = Servers(tmp_path_factory.mktemp("client"))
        yield await starting.start(database, model.base_url)
        await starting.end()


@pytest.fixture
def mock(model: ModelServer) -> ModelServer:
    """The model without a script; whatever it is asked must be valid."""
    model.seen.scripts.clear()
    model.seen.requests.clear()
    return model


@pytest.fixture
def chat() -> str:
    return f"chat-{next(NUMBERS)}"


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    async with Connection(server.root, user_id="ada") as made:
        yield made
