"""Where the server is reached, and whether it can be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import asyncpg

from app.store.embedded.folder import PORT

USER: Final = "fermata"
DATABASE: Final = "fermata"
CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """The folder of a socket; the database and the user (a superuser: extensions need one) are both `fermata`."""

    sockets: Path

    @property
    def url(self) -> str:
        """The address as libpq, asyncpg and SQLAlchemy (with its driver's name put in) read it."""
        return f"postgresql://{USER}@/{DATABASE}?host={quote(str(self.sockets), safe='/')}&port={PORT}"

    async def answers(self) -> bool:
        """Say whether the server takes a connection to our database right now."""
        try:
            connection = await self._connect(DATABASE)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        await connection.close(timeout=CONNECT_SECONDS)
        return True

    async def make_database(self) -> None:
        """Create our database unless it is there. Raises what asyncpg raises."""
        connection = await self._connect("postgres")
        try:
            if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        finally:
            await connection.close(timeout=CONNECT_SECONDS)

    async def _connect(self, database: str) -> asyncpg.Connection:
        # Password and TLS are told, so that no file or variable of the user's is looked at for them.
        return await asyncpg.connect(
            host=str(self.sockets),
            port=PORT,
            user=USER,
            database=database,
            password="",
            ssl=False,
            timeout=CONNECT_SECONDS,
        )
