"""The command line: `python -m app serve`, `migrate`, `openapi`."""

import asyncio
import signal
import socket
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn

import typer
import uvicorn

from app.api.openapi import contract_files
from app.api.sse import CutResponseError
from app.bootstrap import database_url
from app.domain.errors import AppError
from app.main import create_app, live
from app.observability.logging import configure_logging, leave_out
from app.settings import PREFIX, Settings, SettingsError, load_settings
from app.store.embedded import EmbeddedPostgresError
from app.store.migrate import upgrade_async

FAILED: Final = 1
BAD_SETTINGS: Final = 2
DRAIN_MARGIN_SECONDS: Final = 2
"""Readers are cut when the grace is over; the server waits a little longer, so that it sees them go."""

CONTRACT_FOLDER: Final = Path(__file__).parents[1] / "openapi"
WEATHER_TOOL: Final = (
    '{"name": "get_weather", "description": "Tell the weather of a city", "input_schema": '
    '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}'
)

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Fermata: an agent runtime whose pauses hold.",
)


@cli.command()
def serve() -> None:
    """Serve over HTTP until SIGTERM or Ctrl-C; the settings say where."""
    settings = _settings()
    configure_logging(settings.log_level, settings.log_format)
    leave_out("uvicorn.error", (CutResponseError, asyncio.CancelledError))
    listener = _bind(settings.host, settings.port)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(settings.drain_grace_seconds) + DRAIN_MARGIN_SECONDS,
    )
    server = _Server(config, _invitation(settings, listener))
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(live(app), server, listener))
    except (AppError, EmbeddedPostgresError) as error:
        _give_up(str(error))
    except KeyboardInterrupt:
        _give_up("Stopped before it was ready.")
    finally:
        listener.close()


@cli.command()
def migrate() -> None:
    """Bring the database to the newest tables: that of DATABASE_URL, or the embedded one."""
    settings = _settings()
    configure_logging(settings.log_level, settings.log_format)
    try:
        asyncio.run(_migrate(settings))
    except (AppError, EmbeddedPostgresError, OSError) as error:
        _give_up(str(error))
    typer.echo("The database has the newest tables.")


@cli.command()
def openapi(
    *, check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a file is out of date.")] = False
) -> None:
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
    typer.echo(f"Written: {', '.join(stale)}." if stale else "Nothing has changed.")


class _Server(uvicorn.Server):
    """Says where it listens once it does, and ends without an exit code of its own on SIGTERM and Ctrl-C."""

    def __init__(self, config: uvicorn.Config, invitation: str) -> None:
        super().__init__(config)
        self._invitation = invitation

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        sys.stdout.write(self._invitation)
        sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        """Drain on the first signal; on the second Ctrl-C, leave at once."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


async def _serve(life: AbstractAsyncContextManager[object], server: uvicorn.Server, listener: socket.socket) -> None:
    """Hold the application's lifespan around the server, so that a failed start is an exception and not a log line."""
    async with life:
        await server.serve(sockets=[listener])


async def _migrate(settings: Settings) -> None:
    async with database_url(settings) as url:
        await upgrade_async(url)


def _settings() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        for fault in error.faults:
            typer.echo(fault, err=True)
        raise typer.Exit(BAD_SETTINGS) from None


def _bind(host: str, port: int) -> socket.socket:
    """Take the port before anything is started: whether it is free is quick to say."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
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
        f"\nFermata listens on {address} and answers with {settings.chosen_model}.\n"
        f"Open {address}/ in a browser, or try:\n\n"
        f'  {post} -d \'{{"input": "Hello!"}}\'\n\n'
        f'  {post} \\\n    -d \'{{"input": "What is the weather in Berlin?", "tools": [{WEATHER_TOOL}]}}\'\n\n'
        f"  curl{key} {address}/v1/conversations/first/pending-request\n\n"
    )


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _give_up(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(FAILED)


if __name__ == "__main__":
    cli()
