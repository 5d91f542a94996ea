"""Postgres' own folder and options: made by `initdb` once, whole or not at all; checked before each start."""

import asyncio
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.store.embedded.address import USER
from app.store.embedded.binaries import Binaries
from app.store.embedded.child import Child
from app.store.embedded.errors import DataFolderError, InitialiseError, VersionMismatchError
from app.store.embedded.folder import PORT, DataFolder, hand_over, remove_leftovers
from app.store.embedded.identity import Identity
from app.store.embedded.logfile import ServerLog

UNFINISHED: Final = "postgres.unfinished-"
INITIALISE_SECONDS: Final = 120.0

# For data that may be lost: tests.
FAST_OPTIONS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


def check_version(folder: DataFolder, binaries: Binaries) -> None:
    """Raise `VersionMismatchError` when another major version has written the data (blocking)."""
    written = (folder.cluster / "PG_VERSION").read_text(encoding="ascii").strip()
    if written != str(binaries.major):
        raise VersionMismatchError(
            f"The data in {folder.cluster} was written by PostgreSQL {written}, and the binaries found in "
            f"{binaries.folder} are PostgreSQL {binaries.version}. Install PostgreSQL {written} in their place; or "
            f"dump the data with the pg_dumpall of PostgreSQL {written}, move the folder away so that a new one is "
            "made, and read the dump into that."
        )


def server_command(binaries: Binaries, folder: DataFolder, *, fast: bool) -> list[str]:
    """Give the command that serves the folder: no TCP, one socket, log to the standard output."""
    options = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": _quoted(folder.sockets),
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_destination": "stderr",
        "log_line_prefix": "%m [%p] ",
        "max_connections": "200",
        **(FAST_OPTIONS if fast else {}),
    }
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    return [str(binaries.postgres), "-D", str(folder.cluster), *settings]


def initialise_command(binaries: Binaries, target: Path, *, fast: bool) -> list[str]:
    """Give the command that makes a new folder.

    Who gets to the socket needs no password: its folder has mode 0700 and belongs to the user who owns the data files,
    so whoever gets there can read those as well. Comparing users instead (peer) fails between root and the user whom
    root runs Postgres as.
    """
    command = [str(binaries.initdb), "-D", str(target), f"--username={USER}", "--encoding=UTF8", "--locale=C"]
    command += ["--auth-local=trust", "--auth-host=reject", "--data-checksums", "--no-instructions"]
    return [*command, "--no-sync"] if fast else command


async def initialise(
    folder: DataFolder,
    binaries: Binaries,
    identity: Identity,
    *,
    run: Callable[[list[str]], Child],
    log: ServerLog,
    fast: bool,
) -> None:
    """Make Postgres' folder beside its place and move it there when it is whole.

    So a folder that is in its place is one that Postgres can start on, whenever we are killed. `run` starts a command.
    Raises `InitialiseError` with the last lines that initdb wrote.
    """
    target = folder.root / f"{UNFINISHED}{secrets.token_hex(4)}"
    await asyncio.to_thread(_make_target, folder, target, identity)
    since = await asyncio.to_thread(log.size)
    child = run(initialise_command(binaries, target, fast=fast))
    try:
        if not await child.ends_within(INITIALISE_SECONDS) or child.exit_code() != 0:
            written = await asyncio.to_thread(log.tail, since)
            raise InitialiseError(f"Postgres' folder could not be made in {folder.root}. initdb wrote:\n{written}")
        await asyncio.to_thread(_move_into_place, target, folder.cluster)
    finally:
        child.send(signal.SIGKILL)  # what is left of its folder goes with the next try


def _make_target(folder: DataFolder, target: Path, identity: Identity) -> None:
    if folder.cluster.exists() and any(folder.cluster.iterdir()):
        raise DataFolderError(
            f"{folder.cluster} holds files but no Postgres data. Move them away, or set FERMATA_DATA_DIR to another "
            "folder."
        )
    remove_leftovers(folder.root, UNFINISHED)
    target.mkdir(mode=0o700)
    hand_over(target, identity.owner)


def _move_into_place(target: Path, place: Path) -> None:
    target.rename(place)
    parent = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _quoted(folder: Path) -> str:
    """Quote the path as an item of a list, since the option takes several."""
    return '"' + str(folder).replace('"', '""') + '"'
