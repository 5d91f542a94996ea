"""Faults of the connection, told in the words of `ProviderError`; what is told is where and what, never the request."""

import ssl
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.domain.errors import ProviderError
from app.providers.errors import failure

_DEPTH: Final = 8
_SILENCE: Final = (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout)


def fault_of(error: Exception, provider: str, url: str, *, opening: bool = False) -> ProviderError:
    """Make the error for whatever a client raised; `opening` tells that no response had begun."""
    place = _place(url)
    if isinstance(error, _SILENCE) or type(error) is httpx.TimeoutException:
        return failure("timeout", provider, f"The model provider {provider} at {place} kept silent for too long.")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        message = f"The base URL of the model provider {provider} is no http or https address."
        return failure("connect", provider, message, retryable=False)
    causes = _causes(error)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        message = f"The certificate of the model provider {provider} at {place} can't be trusted."
        return failure("connect", provider, message, retryable=False)
    if opening and _is_connect(error, causes):
        message = f"The model provider {provider} can't be reached at {place}; check its base URL and the network."
        return failure("connect", provider, message)
    name = type(causes[-1] if causes else error).__name__
    return failure("transport", provider, f"The connection to the model provider {provider} broke ({name}).")


def _is_connect(error: Exception, causes: list[BaseException]) -> bool:
    if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | OSError):
        return False
    # The aiohttp transport calls a server that hung up on a request a failed connection.
    return not any(type(cause).__name__ in {"ServerDisconnectedError", "ClientOSError"} for cause in causes)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < _DEPTH:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def _place(url: str) -> str:
    """Give scheme, host and port alone: a path or a query may hold a key."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "its base URL"
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "its base URL"
