"""Which form a client takes an operation in: events, one object at the end, or its name alone."""

from enum import Enum, auto
from typing import Final

from starlette.datastructures import Headers

from app.domain.errors import NotAcceptableError

EVENT_STREAM: Final = "text/event-stream"
JSON: Final = "application/json"


class Form(Enum):
    """How an operation is answered."""

    EVENTS = auto()
    OBJECT = auto()
    ASYNC = auto()


def form_of(headers: Headers) -> Form:
    """Read `Prefer` and `Accept`. Events are the default, and win where both forms are as welcome.

    Raises NotAcceptableError when neither form is.
    """
    if any(_asks_for_the_name(word) for value in headers.getlist("prefer") for word in value.split(",")):
        return Form.ASYNC
    accept = ",".join(headers.getlist("accept"))
    events, whole = quality(accept, EVENT_STREAM), quality(accept, JSON)
    if max(events, whole) <= 0:
        message = f"This call answers as {EVENT_STREAM} or as {JSON}; Accept is {accept[:200]!r}."
        raise NotAcceptableError(message)
    return Form.OBJECT if whole > events else Form.EVENTS


def _asks_for_the_name(preference: str) -> bool:
    """Parameters behind a preference are unknown and pass; an empty value is the same as none (RFC 7240)."""
    name, _, value = preference.partition(";")[0].partition("=")
    return name.strip().lower() == "respond-async" and value.strip() in ("", '""')


def quality(accept: str, media_type: str) -> float:
    """Give how welcome a media type is, from 0 to 1: the most specific range that covers it decides."""
    if not accept.strip():
        return 1.0
    whole, kind = media_type, media_type.partition("/")[0] + "/*"
    best, best_rank = 0.0, 0
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        rank = {whole: 3, kind: 2, "*/*": 1}.get(name, 0)
        if rank > best_rank:
            best, best_rank = _weight(parameters), rank
    return best


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
