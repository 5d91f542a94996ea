"""Where Alembic meets the tables: on a connection it is given, or on one made from DATABASE_URL."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from app.store.database import driver_url
from app.store.tables import metadata


def run(connection: Connection) -> None:
    """Run the migrations that were asked for on this connection."""
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_run() -> None:
    """Run them on a connection of our own."""
    url = context.config.attributes.get("url") or os.environ.get("DATABASE_URL")
    if not url:
        raise SystemExit("Set DATABASE_URL to the database to migrate, or run `make migrate`.")
    engine = create_async_engine(driver_url(url))
    try:
        async with engine.connect() as connection:
            await connection.run_sync(run)
            await connection.commit()
    finally:
        await engine.dispose()


given = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif given is not None:
    run(given)
else:
    asyncio.run(connect_and_run())
