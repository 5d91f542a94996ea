"""Becomes a Postgres program that can't outlive its owner.

The app runs this file as a script (`child.py`): it changes the user, ties its life to its owner's, then replaces itself
with the program, which so is a direct child of the owner. It knows nothing of the app, since root may be the only one
who can read that, and it imports what it needs before it changes the user.
"""

import json
import os
import signal
import sys
from ctypes import CDLL, get_errno
from typing import Final, NamedTuple

PR_SET_PDEATHSIG: Final = 1
CLONE_NEWUSER: Final = 0x10000000
LIFELINE: Final = 3


class Order(NamedTuple):
    """What to become: `command`, standing in `folder`, for the process `owner`.

    `uid` and `gid` are the user to change to; with `namespace` they are only what the process sees itself as, in a user
    namespace of its own. With `lifeline`, file descriptor 3 is a pipe that closes when the owner dies.
    """

    owner: int
    command: list[str]
    folder: str = "/"
    uid: int | None = None
    gid: int | None = None
    namespace: bool = False
    lifeline: bool = False


def main(argument: str) -> None:
    order = Order(**json.loads(argument))
    libc = CDLL(None, use_errno=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would note a death signal, and lose it in the exec
    os.setsid()  # so that Ctrl-C in a terminal reaches the owner alone, which then stops Postgres in good order
    os.closerange(LIFELINE + order.lifeline, 65536)
    try:
        change_user(order, libc)
        tie_to_owner(order, libc)
        os.chdir(order.folder)
        # Python ignores these two, and what is ignored stays so in the program.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execv(order.command[0], order.command)  # noqa: S606 - a program that the app has found, and no shell
    except OSError as error:
        sys.exit(f"fermata could not start {order.command[0]}: {error}")


def change_user(order: Order, libc: CDLL) -> None:
    if order.uid is None or order.gid is None:
        return
    if order.namespace:
        outside = os.geteuid(), os.getegid()
        if libc.unshare(CLONE_NEWUSER) != 0:
            raise OSError(get_errno(), "no user namespace can be made")
        for name, words in (
            ("setgroups", b"deny"),  # the kernel asks for this before a group map
            ("uid_map", b"%d %d 1" % (order.uid, outside[0])),
            ("gid_map", b"%d %d 1" % (order.gid, outside[1])),
        ):
            map_file = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(map_file, words)
            os.close(map_file)
        return
    os.setgroups([])
    os.setgid(order.gid)
    os.setuid(order.uid)


def tie_to_owner(order: Order, libc: CDLL) -> None:
    """Have SIGINT, Postgres' fast shutdown, come when the owner dies. A change of user would clear the death signal."""
    if order.lifeline:
        _watch_lifeline(os.getpid())
        os.set_inheritable(LIFELINE, False)
    elif libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0) != 0:
        raise OSError(get_errno(), "no death signal can be set")
    if os.getppid() != order.owner:
        sys.exit("fermata's process died before Postgres was started")


def _watch_lifeline(program: int) -> None:
    """Leave a process behind that reads the pipe, and interrupts `program` when it ends without a word.

    It is nobody's child (its parent ends at once), since Postgres knows all of its own children.
    """
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    if os.fork():
        os._exit(0)
    os.closerange(0, LIFELINE)
    try:
        if not os.read(LIFELINE, 1):
            os.kill(program, signal.SIGINT)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
