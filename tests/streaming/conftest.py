from collections.abc import AsyncIterator

import pytest

from tests.streaming.scene import Process, process_on


@pytest.fixture
async def process(database: str) -> AsyncIterator[Process]:
    """One process on a database of its own."""
    async with process_on(database) as made:
        yield made


@pytest.fixture
async def other(database: str) -> AsyncIterator[Process]:
    """A second process on the same database."""
    async with process_on(database) as made:
        yield made
