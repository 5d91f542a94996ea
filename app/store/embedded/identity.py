"""Chooses whom Postgres runs as. It refuses to be root, and needs a user that the system knows by name.

No user is made, and nothing outside the data folder changes its owner or mode: an existing unprivileged user who gets
to the data folder and to the binaries is used, else a user namespace in which we only look like such a user.
"""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.store.embedded.binaries import Binaries
from app.store.embedded.child import launch_command
from app.store.embedded.errors import NoUserError
from app.store.embedded.folder import DataFolder
from app.store.embedded.launcher import Order

# Users that systems have, best first: one made for Postgres, then those that own nothing.
UNPRIVILEGED_USERS: Final = ("postgres", "_postgres", "nobody", "daemon")


@dataclass(frozen=True, slots=True)
class Identity:
    """A way to run Postgres: as we are (no ids), as another user, or in a user namespace that shows us as one."""

    words: str
    uid: int | None = None
    gid: int | None = None
    namespace: bool = False

    @property
    def owner(self) -> tuple[int, int]:
        """The user and group, seen from outside, to whom Postgres' files must belong."""
        if self.uid is None or self.gid is None or self.namespace:
            return os.geteuid(), os.getegid()
        return self.uid, self.gid

    def order(self, command: list[str], *, folder: str = "/", lifeline: bool = False) -> Order:
        """Give the order to run the command this way, for this process."""
        return Order(os.getpid(), command, folder, self.uid, self.gid, self.namespace, lifeline)


def choose_identity(binaries: Binaries, folder: DataFolder) -> Identity:
    """Give the first way in which the binaries run and the data folder is reached (blocking; it tries them).

    The user who has the data already comes first. Raises `NoUserError` when there is no way.
    """
    for identity in candidates(folder):
        if _works(identity, binaries, folder):
            return identity
    if os.geteuid() == 0:
        raise NoUserError(
            f"Postgres refuses to run as root, none of the users {', '.join(UNPRIVILEGED_USERS)} gets to both "
            f"{folder.root} and {binaries.folder}, and user namespaces are not allowed here. Run Fermata as another "
            "user, or set FERMATA_DATA_DIR to a folder that other users may pass through (and keep the environment in "
            "one), or set DATABASE_URL to a server that runs elsewhere."
        )
    raise NoUserError(
        f"Postgres needs a user that the system knows by name, there is none for uid {os.geteuid()}, and user "
        "namespaces are not allowed here. Run Fermata as a user with an entry in /etc/passwd, or set DATABASE_URL to a "
        "server that runs elsewhere."
    )


def candidates(folder: DataFolder) -> Iterator[Identity]:
    """Give the ways that may work, best first (blocking)."""
    if os.geteuid() != 0:
        if _user(os.geteuid()) is not None:
            yield Identity("the user of this process")
        yield from _namespace()
        return
    data_owner = folder.data_owner()
    if data_owner == 0:
        yield from _namespace()
    # A folder in somebody's home may be closed to all others, and even to root without its powers in a namespace.
    nearby = [place.stat().st_uid for place in (folder.root, *folder.root.parents)]
    users = (
        *([] if data_owner is None else [_user(data_owner)]),
        *(_user_named(name) for name in UNPRIVILEGED_USERS),
        *(_user(uid) for uid in nearby),
    )
    for user in dict.fromkeys(users):
        if user is not None and user.pw_uid != 0:
            yield Identity(f"the user {user.pw_name}", user.pw_uid, user.pw_gid)
    if data_owner != 0:
        yield from _namespace()


def _user(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _user_named(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _namespace() -> Iterator[Identity]:
    """Give a user namespace where there can be one. Inside, Postgres looks its user up by number, so it must exist."""
    if sys.platform == "linux":
        for user in pwd.getpwall():
            if user.pw_uid != 0 and user.pw_gid != 0:
                yield Identity("a user namespace", user.pw_uid, user.pw_gid, namespace=True)
                return


def _works(identity: Identity, binaries: Binaries, folder: DataFolder) -> bool:
    """Try it: change the user, stand in the data folder, run the binary with its libraries."""
    if identity.uid is None:
        return True
    order = identity.order([str(binaries.postgres), "--version"], folder=str(folder.root))
    try:
        answer = subprocess.run(launch_command(order), capture_output=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0
