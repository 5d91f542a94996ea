"""A program that runs as our direct child and dies with us, also when we are killed by SIGKILL."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Final

from app.store.embedded.errors import NotMainThreadError
from app.store.embedded.launcher import LIFELINE, Order

LAUNCHER: Final = Path(__file__).with_name("launcher.py")
TICK_SECONDS: Final = 0.02


class Child:
    """One running program. It is never waited for in a blocking way, so it suits an event loop."""

    def __init__(self, pid: int, lifeline: int | None) -> None:
        self.pid = pid
        self._lifeline = lifeline
        self._exit_code: int | None = None

    def exit_code(self) -> int | None:
        """Give the exit code (negative: the signal that ended it), or None while it runs."""
        if self._exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else in this process has waited for all children
                pid, status = self.pid, 0
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
                self._dismiss_watcher()
        return self._exit_code

    def send(self, signal_number: int) -> None:
        """Send a signal, unless the program is known to have ended."""
        if self.exit_code() is None:
            os.kill(self.pid, signal_number)

    async def wait(self) -> int:
        """Wait, without a bound, until the program ends; give its exit code."""
        while (code := self.exit_code()) is None:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(TICK_SECONDS)
        return code

    async def ends_within(self, seconds: float) -> bool:
        """Wait at most so long, and say whether the program has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        return self.exit_code() is not None

    def _dismiss_watcher(self) -> None:
        """Tell the watcher, if there is one, that it has nobody to interrupt any more."""
        if self._lifeline is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b".")
            os.close(self._lifeline)
            self._lifeline = None


def has_death_signal() -> bool:
    """Say whether the kernel can signal a child when its parent dies; elsewhere a watcher process does it."""
    return sys.platform == "linux"


def launch_command(order: Order) -> list[str]:
    """Give the command that carries out the order. Isolated Python: only the standard library, no site packages."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(order._asdict())]


def spawn(order: Order, *, output: int, environment: dict[str, str]) -> Child:
    """Start the order's command with its output going to the file descriptor `output`.

    Main thread only: a death signal comes when the *thread* that made the child ends, and only the main thread lives as
    long as the process. Raises `NotMainThreadError` elsewhere. A command that can't run is a child that ends at once.
    """
    if threading.current_thread() is not threading.main_thread():
        raise NotMainThreadError("The embedded Postgres can be started by the main thread only: start it from there.")
    command = launch_command(order)
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    reader, lifeline = os.pipe() if order.lifeline else (None, None)
    if reader is not None and lifeline is not None:
        os.set_blocking(lifeline, False)
        actions.append((os.POSIX_SPAWN_DUP2, reader, LIFELINE))
    try:
        pid = os.posix_spawn(command[0], command, environment, file_actions=actions, setsigmask=[])
    except BaseException:
        if lifeline is not None:
            os.close(lifeline)
        raise
    finally:
        if reader is not None:
            os.close(reader)
    return Child(pid, lifeline)
