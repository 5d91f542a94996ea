"""What the door logs with: a logger, and ids on every line.

The library is imported with the first line, since it brings rich along wherever that is installed.
"""

from typing import Any


def log(name: str) -> Any:
    """Give the logger of a module: its methods are the levels, and take an event with keys and values."""
    import structlog  # noqa: PLC0415 - see above

    return structlog.get_logger(name)


class bound:  # noqa: N801 - it reads as a verb: `with bound(request_id=…)`
    """Puts ids on every line that this task logs inside the block."""

    __slots__ = ("_ids", "_tokens")

    def __init__(self, **ids: Any) -> None:
        """Nothing is bound before the block begins."""
        self._ids = ids

    def __enter__(self) -> None:
        from structlog.contextvars import bind_contextvars  # noqa: PLC0415 - see above

        self._tokens = bind_contextvars(**self._ids)

    def __exit__(self, *_: object) -> None:
        from structlog.contextvars import reset_contextvars  # noqa: PLC0415 - see above

        reset_contextvars(**self._tokens)
