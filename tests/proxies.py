"""What stands between clients, servers and databases in real life: nginx and PgBouncer, as Debian packages them."""

import asyncio
import os
import pwd
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.servers import PATIENCE


def program(name: str, package: str) -> str:
    """Give the program's path; a machine without it skips the test with a sentence, and CI fails."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        message = f"{name} is not installed: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def nginx(folder: Path, upstream: str, location: str = "") -> AsyncIterator[str]:
    """Run nginx with its defaults in front of a server; `location` is added to the one there is. Gives its address."""
    port = free_port()
    own = "user root;" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"""{own} daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ }}
        http {{
            access_log off; {temporary}
            server {{
                listen 127.0.0.1:{port};
                location / {{ proxy_pass {upstream}; {location} }}
            }}
        }}""",
        encoding="utf-8",
    )
    arguments = ("-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log"))
    async with _running(program("nginx", "nginx-light"), *arguments, port=port):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def pgbouncer(folder: Path, database: str) -> AsyncIterator[str]:
    """Run PgBouncer in transaction mode in front of a database; gives the URL to reach it by."""
    port = free_port()
    url = urlsplit(database)
    host = parse_qs(url.query)["host"][0]
    name = url.path.lstrip("/")
    (folder / "users.txt").write_text("", encoding="utf-8")
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
{name} = host={host} port=5432 user={url.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = 4
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
""",
        encoding="utf-8",
    )
    arguments = [str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:
        # It will not run as root, and the database's socket is for the user alone who runs the database.
        owner = pwd.getpwuid(Path(host).stat().st_uid)
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        arguments = ["-u", owner.pw_name, *arguments]
    async with _running(program("pgbouncer", "pgbouncer"), *arguments, port=port):
        yield f"postgresql://{url.username}@127.0.0.1:{port}/{name}"


@asynccontextmanager
async def _running(path: str, *arguments: str, port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        path, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not await _listens(port):
                assert process.returncode is None, f"{path} ended with {process.returncode}"
                await asyncio.sleep(0.02)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
