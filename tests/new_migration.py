"""Writes a migration for `make migration`: Alembic compares the code with a Postgres that has the newest tables."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.operations.ops import MigrationScript
from alembic.runtime.migration import MigrationContext

from app.store.migrate import upgrade
from tests.postgres import throwaway_postgres

ROOT = Path(__file__).parents[1]


def write(message: str) -> list[Path]:
    """Write the migration and format it; gives its file, or nothing when the code and the migrations agree."""

    def drop_if_empty(_: MigrationContext, __: Iterable[str | None], scripts: list[MigrationScript]) -> None:
        if all(script.upgrade_ops is None or script.upgrade_ops.is_empty() for script in scripts):
            scripts.clear()

    with throwaway_postgres() as url:
        upgrade(url)
        config = Config(ROOT / "alembic.ini")
        config.attributes["url"] = url
        script = command.revision(config, message, autogenerate=True, process_revision_directives=drop_if_empty)
    made = [Path(one.path) for one in (script if isinstance(script, list) else [script]) if one is not None]
    for action in (["check", "--fix", "--quiet"], ["format", "--quiet"]):
        if made:
            subprocess.run([sys.executable, "-m", "ruff", *action, *made], check=True)
    return made


if __name__ == "__main__":
    written = write(sys.argv[1])
    sys.stdout.write(f"Read it before you keep it: {written[0].relative_to(ROOT)}\n" if written else "No difference.\n")
