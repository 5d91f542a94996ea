"""The application: the door, and a lifespan that holds the runtime behind it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from app.domain.importing import lean

with lean():
    from fastapi import FastAPI

    from app.api.lasting import Lasting
    from app.api.policy import DoorPolicy, key_of
    from app.api.readers import ReaderLimits
    from app.api.router import install
    from app.api.runtime import Runtime
    from app.settings import Settings

Running = Callable[[Settings], AbstractAsyncContextManager[Runtime]]


def create_app(settings: Settings, *, runtime: Running | None = None) -> FastAPI:
    """Make the application. Nothing is built, opened or started before its lifespan begins.

    Nor is the service's own runtime imported, which is what it has when no other is given.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        begin = runtime or _own_runtime()
        async with begin(settings) as live:
            app.state.runtime = live
            yield

    app = Lasting(
        title="Fermata",
        version=release(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    install(app, door_policy(settings))
    return app


def _own_runtime() -> Running:
    """Import all that lies behind the door, at once: nothing of it may be missing only when a request needs it."""
    with lean():
        from app.bootstrap import running  # noqa: PLC0415 - the door is there without it
    return running


def live(app: FastAPI) -> AbstractAsyncContextManager[object]:
    """Give the application's lifespan, to hold it open around a server that does not."""
    return app.router.lifespan_context(app)


def door_policy(settings: Settings) -> DoorPolicy:
    """Give the door its part of the settings."""
    return DoorPolicy(
        keys=tuple(key_of(key.name, key.sha256, key.organization, key.scopes) for key in settings.api_keys),
        cors_origins=tuple(settings.cors_origins),
        allowed_hosts=tuple(settings.allowed_hosts),
        max_body_bytes=settings.max_body_bytes,
        heartbeat_seconds=settings.heartbeat_seconds,
        readers=ReaderLimits(
            per_stream=settings.max_readers_per_stream,
            per_user=settings.max_readers_per_user,
            per_process=settings.max_readers,
            blocked_seconds=settings.blocked_send_seconds,
        ),
    )


def release() -> str:
    """Give the version that is installed; a checkout that is not installed has the next one."""
    try:
        return version("fermata")
    except PackageNotFoundError:
        return "0.1.0"
