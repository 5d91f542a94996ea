"""A Postgres of our own for those who set no DATABASE_URL: found, made, started, watched, stopped.

`supervisor` is what the app uses: it owns the data folder (`lock`) or attaches. The owner's `server` runs the found
`binaries` on the `cluster` as the chosen `identity`, in a `child` that its `launcher` ties to our life.
"""

from app.store.embedded.errors import EmbeddedPostgresError
from app.store.embedded.server import Patience
from app.store.embedded.supervisor import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "Patience"]
