"""What Postgres writes to its standard output: one file, kept below a size, and its last lines for our errors."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

LARGEST_BYTES: Final = 4 * 1024 * 1024
TAIL_BYTES: Final = 8 * 1024
TAIL_LINES: Final = 15


class ServerLog:
    """The log of one data folder; when it gets too large, it moves to a second file, `.1`, and begins anew."""

    def __init__(self, path: Path, *, largest: int = LARGEST_BYTES) -> None:
        self._path = path
        self._largest = largest

    def open(self) -> int:
        """Give a file descriptor that appends; the caller closes it (blocking)."""
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def keep_small(self) -> None:
        """Begin anew when the file has got too large (blocking).

        Copied and cut, not renamed, because the server holds it open and appends to it; a line that it writes in
        between is lost.
        """
        if self.size() > self._largest:
            with contextlib.suppress(OSError):
                shutil.copyfile(self._path, self._path.with_name(f"{self._path.name}.1"))
                os.truncate(self._path, 0)

    def tail(self, since: int = 0) -> str:
        """Give the last lines that were written after the size `since` (blocking)."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(since, self.size() - TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-TAIL_LINES:])
