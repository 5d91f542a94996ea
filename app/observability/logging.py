"""Logs: one structured line per event on standard output, uvicorn's and other libraries' lines included.

JSON unless standard output is a terminal. Ids that are bound with `bound` appear on every line of their task.
"""

import logging
import sys
from typing import Any, Final, Literal

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

_LIBRARIES: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
_QUIET: Final = ("sse_starlette", "httpx", "httpcore", "aiohttp", "sqlalchemy", "alembic")


def configure_logging(level: LogLevel = "info", form: LogFormat = "auto") -> None:
    """Send the logs of this process, structlog's and the standard library's, to standard output."""
    as_json = form == "json" or (form == "auto" and not sys.stdout.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        _without_noise,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(as_json=as_json)],
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = []
        library.propagate = True
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def _renderers(*, as_json: bool) -> list[Processor]:
    if not as_json:
        # The renderer's own way prints the local variables of every frame, keys and messages among them.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), exception_formatter=plain)]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("event"),
        structlog.processors.JSONRenderer(serializer=_dump),
    ]


def _dump(line: EventDict, **_: Any) -> str:
    return orjson.dumps(line, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _without_noise(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Leave out what uvicorn adds for its own coloured output."""
    line.pop("color_message", None)
    return line


def leave_out(logger_name: str, errors: tuple[type[BaseException], ...]) -> None:
    """Drop a library's lines about exceptions that have been told already, or that are part of going away."""

    def keep(record: logging.LogRecord) -> bool:
        told = record.exc_info[1] if record.exc_info else None
        return not isinstance(told, errors)

    logging.getLogger(logger_name).addFilter(keep)
