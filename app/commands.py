"""The commands of the command line: `serve`, `migrate`, `doctor`, `openapi`."""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click
import uvicorn

from app.api.middleware import CutResponseError
from app.api.openapi import contract_files
from app.bootstrap import database_url, direct_url, examine_models
from app.domain.errors import AppError
from app.main import create_app, live
from app.observability.logging import configure_logging, leave_out
from app.providers.doctor import table
from app.providers.setup import set_up
from app.settings import PREFIX, Settings, SettingsError, load_settings
from app.store.embedded.errors import EmbeddedPostgresError
from app.store.migrate import upgrade_async

FAILED: Final = 1
BAD_SETTINGS: Final = 2
CLOSING_SECONDS: Final = 3
"""After a drain every reader has been cut; the server waits this long for what is left of other requests."""

CONNECTION: Final = "app.api.connection:Connection"
"""Only `serve` needs it and what it brings along."""

CONTRACT_FOLDER: Final = Path(__file__).parents[1] / "openapi"
WEATHER_TOOL: Final = (
    '{"name": "get_weather", "description": "Tell the weather of a city", "input_schema": '
    '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}'
)


@click.group()
def cli() -> None:
    """Fermata: an agent runtime whose pauses hold."""


@cli.command()
def serve() -> None:
    """Serve over HTTP until SIGTERM or Ctrl-C; the settings say where."""
    settings = _settings()
    configure_logging(settings.log_level, settings.log_format)
    leave_out("uvicorn.error", (CutResponseError, asyncio.CancelledError))
    listener = _bind(settings.host, settings.port, settings.blocked_send_seconds)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=CONNECTION,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    try:
        config.load()  # before a thread makes the models' client: the two would share one core
        server = _Server(config, _invitation(settings, listener))
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(live(app), lambda: app.state.runtime.drain(), server, listener))  # noqa: PLW0108
    except (AppError, EmbeddedPostgresError) as error:
        _give_up(str(error))
    except KeyboardInterrupt:
        _give_up("Stopped before it was ready.")
    finally:
        listener.close()


@cli.command()
def migrate() -> None:
    """Bring the database to the newest tables.

    That is the one of DATABASE_URL, without its pooler where FERMATA_LISTEN_DATABASE_URL says how, or the embedded one.
    """
    settings = _settings()
    configure_logging(settings.log_level, settings.log_format)
    try:
        asyncio.run(_migrate(settings))
    except (AppError, EmbeddedPostgresError, OSError) as error:
        _give_up(str(error))
    click.echo("The database has the newest tables.")


@cli.command()
@click.option("--check", is_flag=True, help="Write nothing; fail when a file is out of date.")
def openapi(*, check: bool) -> None:
    """Write the API's description into openapi/."""
    files = contract_files(create_app(Settings(_env_file=None)))
    stale = [name for name, text in files.items() if _read(CONTRACT_FOLDER / name) != text]
    if check:
        if stale:
            _give_up(f"Out of date in openapi/: {', '.join(stale)}. Run make openapi and commit what it writes.")
        return
    CONTRACT_FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (CONTRACT_FOLDER / name).write_text(files[name], encoding="utf-8")
    click.echo(f"Written: {', '.join(stale)}." if stale else "Nothing has changed.")


@cli.command()
@click.argument("models", nargs=-1, metavar="[PROVIDER:MODEL]...")
def doctor(models: tuple[str, ...]) -> None:
    """Ask each model one short question; tell which answer.

    Without names it asks all models that are set up. It costs a few tokens.
    """
    settings = _settings()
    configure_logging("error", settings.log_format)
    try:
        findings = asyncio.run(examine_models(settings, models))
    except AppError as error:
        _give_up(str(error))
    click.echo(table(findings))
    if not all(finding.well for finding in findings):
        raise click.exceptions.Exit(FAILED)


class _Server(uvicorn.Server):
    """Says where it listens once it does, and goes on serving while it drains after SIGTERM or Ctrl-C."""

    def __init__(self, config: uvicorn.Config, invitation: str) -> None:
        super().__init__(config)
        self._invitation = invitation
        self.leaving = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signalled = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        sys.stdout.write(self._invitation)
        sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        """Drain on the first signal; on the second Ctrl-C, leave at once."""
        if sig == signal.SIGINT and self._signalled:
            self.should_exit = self.force_exit = True
        self._signalled = True
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self.leaving.set)


async def _serve(
    life: AbstractAsyncContextManager[object],
    drain: Callable[[], Awaitable[None]],
    server: _Server,
    listener: socket.socket,
) -> None:
    """Hold the application's lifespan around the server, so that a failed start is an exception and not a log line."""
    sys.set_asyncgen_hooks(
        firstiter=None
    )  # every generator is closed where it is left; a list of all costs each 170 bytes
    async with life:
        leaving = asyncio.create_task(_leave(server, drain), name="drain")
        try:
            await server.serve(sockets=[listener])
        finally:
            leaving.cancel()


async def _leave(server: _Server, drain: Callable[[], Awaitable[None]]) -> None:
    """Wait for the signal, then drain while the server still answers, and only then let it close."""
    await server.leaving.wait()
    try:
        await drain()
    finally:
        server.should_exit = True


async def _migrate(settings: Settings) -> None:
    async with database_url(settings) as url:
        await upgrade_async(direct_url(settings, url))


def _settings() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        for fault in error.faults:
            click.echo(fault, err=True)
        raise click.exceptions.Exit(BAD_SETTINGS) from None


def _bind(host: str, port: int, blocked_seconds: float) -> socket.socket:
    """Take the port before anything is started: whether it is free is quick to say.

    A name that has addresses of both kinds is listened at by one of IPv4, so that `localhost` is 127.0.0.1. Where the
    system can, it resets a connection whose peer has taken nothing for `blocked_seconds`: closing alone would wait for
    the peer to read.
    """
    listener: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(blocked_seconds * 1000))
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        _give_up(
            f"Can't listen on {host} port {port}: {error.strerror}. Stop what listens there, or set another "
            f"{PREFIX}HOST or {PREFIX}PORT."
        )
    return listener


def _invitation(settings: Settings, listener: socket.socket) -> str:
    """Say where the service listens and what to try next."""
    host, port = listener.getsockname()[:2]
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104 - compared
    address = f"http://{shown}:{port}"
    key = " -H 'Authorization: Bearer YOUR_KEY'" if settings.api_keys else ""
    post = f"curl -N{key} -H 'Content-Type: application/json' {address}/v1/conversations/first/turns"
    return (
        f"\nFermata listens on {address} and answers with {set_up(settings.models).roles.chat}.\n"
        f"Open {address}/ in a browser, or try:\n\n"
        f'  {post} -d \'{{"input": "Hello!"}}\'\n\n'
        f'  {post} \\\n    -d \'{{"input": "What is the weather in Berlin?", "tools": [{WEATHER_TOOL}]}}\'\n\n'
        f"  curl{key} {address}/v1/conversations/first/pending-request\n\n"
    )


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _give_up(sentence: str) -> NoReturn:
    click.echo(sentence, err=True)
    raise click.exceptions.Exit(FAILED)
