"""A transaction whose commit was not answered: it may have landed, and is asked about until that is known."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.errors import DatabaseError
from app.store.database import Connection, Database, OutcomeUnknownError


@pytest.fixture
async def store(shared_database: str) -> AsyncIterator[Database]:
    found = Database(shared_database, pool_size=1)
    yield found
    await found.close()


class Away:
    """A transaction, and the look for it, of which the database answers those alone that are not lost."""

    def __init__(self, *answered: str) -> None:
        self.met: list[str] = []
        self._answered = answered

    async def work(self, _: Connection) -> str:
        return self._meet("work")

    async def landed(self, _: Connection) -> str:
        return self._meet("landed")

    def _meet(self, what: str) -> str:
        self.met.append(what)
        if f"{what} {self.met.count(what)}" not in self._answered:
            raise ConnectionResetError
        return what


async def test_what_may_have_landed_is_asked_about_beyond_all_patience(store: Database) -> None:
    away = Away("landed 3", "work 2")
    landed = await store.land(away.work, away.landed, give_up=lambda: False, patience=0, alone=True)
    assert (landed, away.met) == ("landed", ["work", "landed", "landed", "landed"])


async def test_what_can_not_have_landed_is_refused_when_patience_is_over(store: Database) -> None:
    away = Away()
    with pytest.raises(DatabaseError):
        await store.land(away.work, away.landed, give_up=lambda: False, patience=0)
    assert away.met == ["work"]


@pytest.mark.parametrize("alone", [True, False])
async def test_who_may_not_go_on_asking_learns_that_the_outcome_is_not_known(
    store: Database,
    alone: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    away, asked = Away(), iter([False, True])
    async with asyncio.timeout(20):
        with pytest.raises(OutcomeUnknownError):
            await store.land(away.work, away.landed, give_up=lambda: next(asked), alone=alone)
    assert away.met == ["work", "landed" if alone else "work"]
