"""The logs of a test's process: what a test sets up for itself is undone behind it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def logs_as_before() -> Iterator[None]:
    """Undo what the block does to the logs of its process.

    The library's own way is not what was before: it prints the local variables of every frame, which can take minutes.
    """
    root, shape = logging.getLogger(), structlog.get_config()
    handlers, level = [*root.handlers], root.level
    try:
        yield
    finally:
        root.handlers, root.level = handlers, level
        structlog.configure(**shape)
