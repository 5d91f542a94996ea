"""All routes, the middleware and the problem handlers, put onto one application."""

from typing import Final

from starlette.middleware.cors import CORSMiddleware

from app.api import problems
from app.api.body import REPLACED_HEADER
from app.api.lasting import Lasting
from app.api.middleware import REQUEST_ID_HEADER, BodyLimit, Requests
from app.api.openapi import document
from app.api.policy import Door, DoorPolicy
from app.api.routes import (
    conversations,
    documents,
    health,
    memories,
    metrics,
    page,
    pending_requests,
    personas,
    sessions,
    streams,
    tool_results,
    turns,
    users,
)

METHODS: Final = ("GET", "POST", "PATCH", "DELETE")
REQUEST_HEADERS: Final = (
    "Authorization", "X-API-Key", "Content-Type", "Accept", "Prefer", "Last-Event-ID", REQUEST_ID_HEADER,
)  # fmt: skip
EXPOSED_HEADERS: Final = (
    "X-Stream-Id", "X-Conversation-Id", "Retry-After", "Location", REQUEST_ID_HEADER, REPLACED_HEADER,
)  # fmt: skip


def install(app: Lasting, policy: DoorPolicy) -> None:
    """Make an application the door. The middleware that is added last is passed first."""
    app.state.door = Door(policy)
    chatting = (
        turns,
        tool_results,
        pending_requests,
        streams,
        conversations,
        documents,
        memories,
        sessions,
        personas,
        users,
    )
    for module in (*chatting, health, metrics, page):
        # As they are: the framework would work each of them out anew for the application that takes them.
        app.router.routes.extend(module.router.routes)
    problems.install(app)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    app.add_middleware(BodyLimit, limit=policy.max_body_bytes)
    app.add_middleware(Requests)
    if policy.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=policy.cors_origins,
            allow_methods=METHODS,
            allow_headers=REQUEST_HEADERS,
            expose_headers=EXPOSED_HEADERS,
            max_age=600,
        )
