"""A call to a model provider over HTTP, and the limits that all of them keep to: values, without the client."""

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from app.domain.frozen import dataclass
from app.providers.sse import DEFAULT_LIMIT

ON_END: Final = "fermata.on_end"
"""The extension of a response that takes a callback for the end of its body, where its client can tell."""


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """Limits of the calls to providers; seconds and bytes.

    `first_event` counts from the start of the request, `idle` from the last event: comments and headers reset neither.
    `tail` is how long to wait for what may follow a whole answer, `drain` how long for the end after the last event.
    `gather` lies between two reads that bring text, see `app.providers.pace`; with 0, none waits for another.
    `max_connections` must be above what is admitted at a time, so that nothing ever waits for a connection.
    """

    transport: Literal["aiohttp", "httpx"] = "aiohttp"
    connect_seconds: float = 10.0
    first_event_seconds: float = 120.0
    idle_seconds: float = 60.0
    gather_seconds: float = 0.0
    tail_seconds: float = 5.0
    drain_seconds: float = 0.1
    whole_seconds: float = 120.0
    max_connections: int = 1000
    keepalive_seconds: float = 30.0
    event_bytes: int = DEFAULT_LIMIT
    error_bytes: int = 64 * 1024
    verify_tls: bool = True
    proxies: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Proxy addresses by pattern, see `app.providers.proxies`; they may hold a password."""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request to a provider: a POST, or a GET where there is no body. Its secrets are in no `repr`.

    `body` gives the document to post. It is made when it is sent and held no longer: it tells a whole conversation, and
    the answer may take minutes.
    """

    provider: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Callable[[], Mapping[str, Any]] | None = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    deadline: float = math.inf
    """Time of the event loop by which the answer must be whole."""
