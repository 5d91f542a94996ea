"""What a dialect is: pure translation between the protocol of `base` and one kind of wire; no I/O."""

from typing import Any, Protocol

from app.domain.usage import Usage
from app.providers.base import ModelRequest, ProviderEvent
from app.providers.refusals import Refusal


class Decoder(Protocol):
    """Turns the events of one response into provider events. It lives for one response."""

    finished: bool
    """The answer is whole: a connection that drops now costs nothing."""

    done: bool
    """The last event was seen: nothing that follows is read."""

    usage: Usage | None
    """The last running total that the provider told."""

    def feed(self, event: str, data: bytes) -> list[ProviderEvent]:
        """Take one event. Raises `ProviderError` for an in-band error and for what is no event of the dialect."""
        ...

    def end(self) -> list[ProviderEvent]:
        """Give the last events, `Finish` last of all. Raises `ProviderError` when the answer is not whole."""
        ...


class Dialect(Protocol):
    """One wire format."""

    format_fields: tuple[str, ...]
    """Where the body says in which form the answer is to be, as paths of names with dots."""

    refusals: tuple[Refusal, ...]
    """Optional fields of the body that servers or models are known to refuse, and how they say so."""

    def path(self, request: ModelRequest) -> str:
        """Give what comes after the base URL."""
        ...

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Give the dialect's own headers, with the key where there is one."""
        ...

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Give the request's JSON document."""
        ...

    def decoder(self, provider: str, secrets: tuple[str, ...]) -> Decoder:
        """Start reading one response; `secrets` never appear in an error."""
        ...
