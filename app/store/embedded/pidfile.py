"""Reads `postmaster.pid`, in which a server says who it is and how far it has come. Only Postgres ever changes it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STATUS_LINE: Final = 7


@dataclass(frozen=True, slots=True)
class PidFile:
    """`ready` is what the server says of itself; whether `pid` still is that server is another question."""

    pid: int
    ready: bool


def read_pid_file(cluster: Path) -> PidFile | None:
    """Give what the file says, or None when there is none or it is half written (blocking)."""
    try:
        lines = (cluster / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        pid = abs(int(lines[0]))  # Postgres in single-user mode writes its negative
    except (FileNotFoundError, ValueError, IndexError):
        return None
    ready = len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"
    return PidFile(pid, ready)


def is_alive(pid: int) -> bool:
    """Say whether there is such a process that we may signal."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        # Not permitted: it belongs to somebody else, so it can't be the server of our folder.
        return False
    return True


def serves(pid: int, cluster: Path) -> bool:
    """Say whether the live process `pid` may be a server of this folder (blocking).

    After a crash or in a restarted container the number in the file can belong to some other process. A server stands
    in its folder; where that can't be seen, the answer is yes, which is the safe one.
    """
    if not is_alive(pid):
        return False
    try:
        return os.path.samestat(Path(f"/proc/{pid}/cwd").stat(), cluster.stat())
    except FileNotFoundError:
        return not Path("/proc/self/cwd").exists()
    except PermissionError:
        return True
