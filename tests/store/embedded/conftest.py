"""Data folders to start on, in-process servers that are always stopped, and owner processes that are always ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from app.store.embedded.supervisor import EmbeddedPostgres
from tests.postgres import passable_folder
from tests.store.embedded.processes import Owner, standing_in, until


class Make(Protocol):
    def __call__(self, data_dir: Path, **options: Any) -> EmbeddedPostgres: ...


class StartOwner(Protocol):
    async def __call__(self, data_dir: Path, *options: str) -> Owner: ...


@pytest.fixture(scope="session")
def shared_dir() -> Iterator[Path]:
    """A data folder that has been started and stopped once. Making one takes longer than all else in most tests."""
    with passable_folder() as folder, asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        server = EmbeddedPostgres(folder / "data", fast=True)
        try:
            runner.run(server.start())
        finally:
            runner.run(server.stop())
        yield folder / "data"


@pytest.fixture
def empty_dir() -> Iterator[Path]:
    """A path for a data folder that does not exist yet, in a folder that every user may pass through."""
    with passable_folder() as folder:
        yield folder / "data"


@pytest.fixture
def data_dir(shared_dir: Path) -> Path:
    """A data folder with a database in it, in a folder that every user may pass through. A test leaves it sound."""
    return shared_dir


@pytest.fixture
def move(data_dir: Path) -> Iterator[Callable[[Path], Path]]:
    """Move the data folder to another path while the test runs; give the path."""
    moved: list[Path] = []

    def to(path: Path) -> Path:
        moved.append(data_dir.rename(path))
        return path

    yield to
    for path in moved:
        path.rename(data_dir)


@pytest.fixture
async def postgres(move: object) -> AsyncIterator[Make]:
    """Make servers of this process (not started yet); all are stopped in the end, before any folder moves."""
    made = []

    def make(data_dir: Path, **options: Any) -> EmbeddedPostgres:
        made.append(EmbeddedPostgres(data_dir, fast=options.pop("fast", True), **options))
        return made[-1]

    yield make
    for server in made:
        await server.stop()


@pytest.fixture
async def owner(move: object) -> AsyncIterator[StartOwner]:
    """Start processes that own or share a data folder; all are killed in the end, and their servers outwaited."""
    started: list[tuple[Owner, Path]] = []

    async def start(data_dir: Path, *options: str) -> Owner:
        process = await Owner.start(data_dir, *options)
        started.append((process, data_dir / "postgres"))
        return process

    yield start
    for process, _ in started:
        await process.kill()
    for _, cluster in started:
        await until(lambda cluster=cluster: not standing_in(cluster))  # type: ignore[misc]
