"""What tests of all folders share: databases, runtimes on them, server processes, and a model to talk to."""

from collections.abc import AsyncIterator, Iterator
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import create_engine

from tests.databases import Databases, databases
from tests.mock_model import ModelServer
from tests.servers import Servers
from tests.stage import Stage, running_stage


@pytest.fixture(scope="session", autouse=True)
def short_logs() -> None:
    """Show failures without the local variables of every frame, which would take seconds each."""
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.stdlib.add_log_level, plain])


class Compiled(dict[Any, Any]):
    """Statements that any engine of this process has compiled; without the dialect, which is always the same one."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    """Let the many runtimes of one process share what each would otherwise work out anew when it is made."""
    with pytest.MonkeyPatch.context() as patch:
        engine = partial(create_engine, execution_options={"compiled_cache": Compiled()})
        patch.setattr("app.store.database.create_engine", engine)
        patch.setattr("app.tools.functions.entry_points", cache(entry_points))
        yield


@pytest.fixture(scope="session", name="databases")
def databases_of_this_process() -> Iterator[Databases]:
    with databases() as made:
        yield made


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database of the test's own, with all tables and no rows."""
    async with databases.fresh() as url:
        yield url


@pytest.fixture
async def shared_database(databases: Databases) -> AsyncIterator[str]:
    """The same, but quicker: a database that other tests use before and after, so its tables must stay as they are."""
    async with databases.shared() as url:
        yield url


@pytest.fixture
async def stage(shared_database: str) -> AsyncIterator[Stage]:
    """A running runtime with a script to be written."""
    async with running_stage(shared_database) as running:
        yield running


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    """Starts server processes; none outlives the test."""
    starting = Servers(tmp_path)
    yield starting
    await starting.end()


@pytest.fixture
async def mock() -> AsyncIterator[ModelServer]:
    """A model server in this process's loop, with a script to be written. Whatever it was asked must be valid."""
    async with ModelServer() as server:
        yield server
    assert [request["violations"] for request in server.seen.requests if request["violations"]] == []
