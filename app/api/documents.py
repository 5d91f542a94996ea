"""How routes document what they answer: refusals by their error classes, streams by the schema of their frames."""

from typing import Any, Final

from app.api.problems import MEDIA_TYPE, status_of
from app.api.schemas.problems import ProblemOut
from app.api.schemas.streams import StreamOut
from app.api.schemas.turns import StartedOut
from app.domain.errors import (
    AppError,
    ForbiddenError,
    InternalError,
    MalformedError,
    NotAcceptableError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    ValidationError,
)

Responses = dict[int | str, dict[str, Any]]

_ALWAYS: Final[tuple[type[AppError], ...]] = (
    MalformedError,
    UnauthenticatedError,
    ForbiddenError,
    ValidationError,
    InternalError,
    UnavailableError,
)

EVENT_ITEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One event. Comments (lines that begin with a colon) keep the connection open and mean nothing.",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string", "description": "`<fence>-<n>`; send the last one back to read on after it."},
        "event": {"type": "string", "description": "The type of the chunk, or `end`."},
        "data": {
            "type": "string",
            "description": "One JSON object.",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/FrameData"},
        },
    },
}
EVENT_STREAM_CONTENT: Final[dict[str, Any]] = {"text/event-stream": {"itemSchema": EVENT_ITEM}}
STREAM_HEADERS: Final[dict[str, Any]] = {
    "X-Stream-Id": {"description": "The stream.", "schema": {"type": "string"}},
    "X-Conversation-Id": {"description": "The conversation.", "schema": {"type": "string"}},
}


def refusals(*errors: type[AppError], body: bool = False) -> Responses:
    """Give the documentation of the refusals of a route, those that every route has included."""
    kinds = [*_ALWAYS, *([TooLargeError] if body else []), *errors]
    by_status: dict[int, list[type[AppError]]] = {}
    for kind in kinds:
        by_status.setdefault(status_of(kind), []).append(kind)
    return {
        status: {
            "description": "\n\n".join(f"`{kind.code}` {kind.title}." for kind in dict.fromkeys(group)),
            "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemOut.__name__}"}}},
        }
        for status, group in sorted(by_status.items())
    }


def operation_responses(*errors: type[AppError]) -> Responses:
    """Give the documentation of a route that runs an operation: events, or the end as an object, or 202."""
    return {
        200: {
            "model": StreamOut,
            "description": (
                "The operation's events up to its `end`; with `Accept: application/json` the stream's state once the "
                "operation has ended (white space may come first, and a failure is then told by `status`)."
            ),
            "content": EVENT_STREAM_CONTENT,
            "headers": STREAM_HEADERS,
        },
        202: {
            "model": StartedOut,
            "description": "With `Prefer: respond-async`: the operation runs; follow it by its stream's events.",
            "headers": STREAM_HEADERS,
        },
        **refusals(NotAcceptableError, *errors, body=True),
    }
