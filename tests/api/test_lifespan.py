"""The application's lifespan: it is where the runtime begins, and where what it lacks is told."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.api.runtime import Runtime
from app.main import create_app, live
from app.settings import Settings
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import client_of, given


async def test_a_runtime_that_cannot_be_imported_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(given())
    monkeypatch.setitem(sys.modules, "app.bootstrap", None)
    with pytest.raises(ImportError, match=r"app\.bootstrap"):
        async with live(app):
            pass
    assert not hasattr(app.state, "runtime")


async def test_a_runtime_of_ones_own_needs_nothing_of_the_service_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "app.bootstrap", None)
    told = given()
    begun: list[Settings] = []

    @asynccontextmanager
    async def running(settings: Settings) -> AsyncIterator[Runtime]:
        begun.append(settings)
        yield FakeRuntime()

    app = create_app(told, runtime=running)
    assert begun == []
    async with live(app), client_of(app) as client:
        assert (await client.get("/healthz")).status_code == 200
    assert begun == [told]
