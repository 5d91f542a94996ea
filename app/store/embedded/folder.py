"""The data folder: where everything lies, what may be created, and where the socket goes."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.store.embedded.errors import DataFolderError, SocketFolderError

PORT: Final = 5432  # only a part of the socket's name: nothing listens on TCP
LONGEST_SOCKET_PATH: Final = 103  # bytes; Linux allows 107, macOS 103
PRIVATE: Final = 0o700
SHARED_TEMPORARY: Final = Path("/tmp")  # noqa: S108 - only ever a folder of mode 0700 in it, whose owner is checked


@dataclass(frozen=True, slots=True)
class DataFolder:
    """`root` is the setting, absolute and without symbolic links, so that all processes mean the same by it."""

    root: Path

    @property
    def cluster(self) -> Path:
        """Postgres' own folder."""
        return self.root / "postgres"

    @property
    def lock(self) -> Path:
        return self.root / "postgres.lock"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def sockets(self) -> Path:
        """The folder of the socket, for every process the same: in the data folder unless its path is unfit."""
        near = self.root / "run"
        if is_fit_for_socket(near):
            return near
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        base = SHARED_TEMPORARY if SHARED_TEMPORARY.is_dir() else Path(tempfile.gettempdir())
        return base / f"fermata-{digest}"

    def is_initialised(self) -> bool:
        return (self.cluster / "PG_VERSION").exists()

    def data_owner(self) -> int | None:
        """Give the uid to whom the data belongs, or None when there is no data."""
        return self.cluster.stat().st_uid if self.is_initialised() else None


def open_folder(setting: Path) -> DataFolder:
    """Make the data folder when it is not there, and give it (blocking).

    A new folder is closed to others, except that root lets them pass through, so that the user who runs Postgres gets
    to the folders which are then given to it. A folder that was there keeps its mode.
    """
    try:
        root = setting.resolve()
        if not root.exists():
            root.mkdir(parents=True)
            root.chmod(0o711 if os.geteuid() == 0 else PRIVATE)
    except OSError as error:
        raise DataFolderError(
            f"The data folder {setting} can't be made: {error.strerror}. Set FERMATA_DATA_DIR to a folder that this "
            "user may write."
        ) from error
    if not root.is_dir():
        raise DataFolderError(f"The data folder {root} is a file. Set FERMATA_DATA_DIR to a folder.")
    return DataFolder(root)


def is_fit_for_socket(folder: Path) -> bool:
    """Say whether a socket can be in the folder: a path may not be too long, and an address divides hosts at commas."""
    path = os.fsencode(folder / f".s.PGSQL.{PORT}")
    return len(path) <= LONGEST_SOCKET_PATH and b"," not in path


def make_socket_folder(folder: Path, owner: tuple[int, int], former: int | None) -> None:
    """Make the folder with mode 0700 for the user and group `owner` (blocking).

    One that is there is taken only if it is a real folder that belongs to us, to that user, or to the `former` one who
    ran Postgres; else `SocketFolderError`. Checked and changed through one file descriptor, so that it can't be swapped
    in between.
    """
    try:
        folder.mkdir(mode=PRIVATE, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise SocketFolderError(
            f"The folder {folder}, meant for Postgres' socket, can't be used: {error.strerror}. Remove what is there, "
            "or set FERMATA_DATA_DIR to another folder."
        ) from error
    try:
        found = os.fstat(descriptor).st_uid
        if found not in {os.geteuid(), owner[0], former}:
            raise SocketFolderError(
                f"The folder {folder}, meant for Postgres' socket, belongs to another user (uid {found}). Remove it, "
                "or set FERMATA_DATA_DIR to another folder."
            )
        if found != owner[0] and os.geteuid() == 0:
            for name in os.listdir(descriptor):  # noqa: PTH208 - a descriptor, no path
                os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)
            os.fchown(descriptor, *owner)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != PRIVATE:
            os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)


def hand_over(folder: Path, owner: tuple[int, int]) -> None:
    """Give a tree of ours to the user and group who runs Postgres (blocking); nothing happens when it has it.

    Symbolic links are changed themselves, never what they point to.
    """
    if folder.stat().st_uid == owner[0] or os.geteuid() != 0:
        return
    for path in _tree(folder):
        os.chown(path, *owner, follow_symlinks=False)


def remove_leftovers(root: Path, prefix: str) -> None:
    """Remove the folders in `root` that an interrupted start has left (blocking)."""
    for folder in root.glob(f"{prefix}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _tree(folder: Path) -> Iterator[Path]:
    # The top comes last: as long as it has the old owner, an interrupted change is begun again.
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))
    yield folder
