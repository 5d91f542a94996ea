"""One owner per data folder: a file lock, which the kernel takes back when its holder dies, however it dies."""

import fcntl
import os
from pathlib import Path

from app.store.embedded.errors import DataFolderError


class FolderLock:
    """The lock of one data folder. The file stays where it is; only its lock means something."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Try once and say whether the lock is ours now (it never waits)."""
        if self._descriptor is not None:
            return True
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise DataFolderError(
                f"{self._path} can't be locked: {error.strerror}. Set FERMATA_DATA_DIR to a folder on a local disk."
            ) from error
        if not os.fstat(descriptor).st_nlink:
            # The file was removed meanwhile; a lock on it keeps nobody out.
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataFolderError(
                f"The lock {self._path} can't be opened: {error.strerror}. Run Fermata as the user who made the data "
                "folder, or set FERMATA_DATA_DIR to another one."
            ) from error
