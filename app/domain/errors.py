"""Errors with a stable code and a kind.

The kind decides the HTTP status (once, in `app.api.problems`); the code and the message are the same in a problem
document and in an `error` chunk. A message says what to do about it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from app.domain.usage import Usage


class Kind(StrEnum):
    """Who must act, and how a refusal is told over HTTP."""

    MALFORMED = "malformed"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    GONE = "gone"
    TOO_LARGE = "too_large"
    NOT_ACCEPTABLE = "not_acceptable"
    LIMITED = "limited"
    UPSTREAM = "upstream"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    INTERNAL = "internal"


class AppError(Exception):
    """Base of all errors that a caller may read. Subclasses fix `code`, `kind` and a default `title`."""

    code: str = "SYS_INTERNAL_SERVER_ERROR"
    kind: ClassVar[Kind] = Kind.INTERNAL
    title: ClassVar[str] = "Something went wrong inside the service"

    def __init__(self, message: str | None = None, **details: Any) -> None:
        """Keep the message (or the title) and the details that go beside it."""
        super().__init__(message or self.title)
        self.message = message or self.title
        self.details: Mapping[str, Any] = details


class InternalError(AppError):
    """A failure that is the service's own fault."""


class MalformedError(AppError):
    """The request can't be read at all: not JSON, a bad header, a bad cursor."""

    code = "SYS_PARSING_ERROR"
    kind = Kind.MALFORMED
    title = "The request can't be read"


class ValidationError(AppError):
    """The request is read, and asks for something that is not allowed."""

    code = "SYS_VALIDATION_ERROR"
    kind = Kind.INVALID
    title = "The request is not valid"


class TooLargeError(AppError):
    """A body or a result is over its limit."""

    code = "SYS_PAYLOAD_TOO_LARGE"
    kind = Kind.TOO_LARGE
    title = "The request is too large"


class NotAcceptableError(AppError):
    """The call can't answer in any form the client accepts."""

    code = "SYS_NOT_ACCEPTABLE"
    kind = Kind.NOT_ACCEPTABLE
    title = "The call does not answer in the form that was asked for"


class MethodNotAllowedError(AppError):
    """The address is known, the method is not."""

    code = "SYS_METHOD_NOT_SUPPORTED"
    kind = Kind.MALFORMED
    title = "This address does not take that method"


class UnauthenticatedError(AppError):
    """No key, or a key that is not known."""

    code = "AUTH_AUTHENTICATION_REQUIRED"
    kind = Kind.UNAUTHENTICATED
    title = "A valid API key is required"


class ForbiddenError(AppError):
    """The key is known and may not do this."""

    code = "AUTH_PERMISSION_DENIED"
    kind = Kind.FORBIDDEN
    title = "This key may not do that"


class GuardrailBlockedError(AppError):
    """A guardrail blocks the input (R20, R306). `code` is the guard's own, where it gave one."""

    code = "GUARDRAIL_BLOCKED"
    kind = Kind.FORBIDDEN
    title = "A guardrail does not let this pass"

    def __init__(self, message: str | None = None, *, code: str | None = None, **details: Any) -> None:
        """Keep the guard's code."""
        super().__init__(message, **details)
        self.code = code or self.code


class GuardrailMissingError(AppError):
    """A guardrail without which nothing may run is not active (R18, R19)."""

    code = "SYS_GUARDRAIL_REQUIRED_MISSING"
    kind = Kind.UNAVAILABLE
    title = "A required guardrail is not active"


class OrganizationRefusedError(AppError):
    """The service serves one organization, and the call is for another (R115)."""

    code = "SYS_VALIDATION_ERROR"
    kind = Kind.FORBIDDEN
    title = "This organization is not served"


class NotFoundError(AppError):
    """Nothing by that name that this caller may see (another's things look the same)."""

    code = "SYS_RESOURCE_NOT_FOUND"
    kind = Kind.NOT_FOUND
    title = "Nothing was found under that name"


class PersonaNotFoundError(AppError):
    """No persona has that id."""

    code = "GMI_PERSONA_NOT_FOUND"
    kind = Kind.NOT_FOUND
    title = "There is no such persona"


class AlreadyExistsError(AppError):
    """The name is taken."""

    code = "SYS_RESOURCE_ALREADY_EXISTS"
    kind = Kind.CONFLICT
    title = "That name is taken"


class InvalidStateError(AppError):
    """The pause is not in the state that the call needs (R81, R82, R83, R191, R192)."""

    code = "SYS_INVALID_STATE"
    kind = Kind.CONFLICT
    title = "The pause can't take that now"


class ClosedStreamError(AppError):
    """Results for a stream that is closed (R84 to R88); `reason` says what closed it."""

    code = "TOOL_ERROR"
    kind = Kind.CONFLICT
    title = "The stream is closed"


class ConversationBusyError(AppError):
    """Another operation runs on the conversation; `stream_id` names it."""

    code = "CONVERSATION_BUSY"
    kind = Kind.CONFLICT
    title = "The conversation is busy"


class PauseHeldError(AppError):
    """The conversation holds a pause, and the turn asked not to end it."""

    code = "PAUSE_HELD"
    kind = Kind.CONFLICT
    title = "The conversation waits for tool results"


class KeyReusedError(AppError):
    """An idempotency key came again with another body."""

    code = "IDEMPOTENCY_KEY_REUSED"
    kind = Kind.CONFLICT
    title = "The idempotency key was used for another request"


class RateLimitedError(AppError):
    """Too many of something; `retry_after` says when to come back."""

    code = "SYS_RATE_LIMIT_EXCEEDED"
    kind = Kind.LIMITED
    title = "Too many requests"


class UnavailableError(AppError):
    """The service can't take this now, and may later."""

    code = "SYS_SERVICE_UNAVAILABLE"
    kind = Kind.UNAVAILABLE
    title = "The service can't do this right now"


class DatabaseError(AppError):
    """The database refused or was out of reach."""

    code = "SYS_DATABASE_ERROR"
    kind = Kind.UNAVAILABLE
    title = "The database is out of reach"


class GoneError(AppError):
    """The events are past their retention; the stream's state is in the details."""

    code = "SYS_EVENTS_EXPIRED"
    kind = Kind.GONE
    title = "The stream's events are past their retention"


class TurnTimeoutError(AppError):
    """The operation took longer than it may."""

    code = "TURN_TIMEOUT"
    kind = Kind.TIMEOUT
    title = "The turn took too long"


class TurnInterruptedError(AppError):
    """The process that ran the operation went away, and another one ended it."""

    code = "TURN_INTERRUPTED"
    kind = Kind.UNAVAILABLE
    title = "The turn was interrupted"


class ConfigurationError(AppError):
    """The operator must set or correct something."""

    code = "SYS_CONFIGURATION_ERROR"
    kind = Kind.INTERNAL
    title = "The service is not configured for this"


class PlanningError(AppError):
    """A turn that fails closed could not be planned; nothing of it is stored (R250)."""

    code = "SYS_PROCESSING_ERROR"
    kind = Kind.INTERNAL
    title = "The turn could not be planned"


class ProcessingError(AppError):
    """A failure inside the GMI turn that carries no code of its own (R297)."""

    code = "GMI_PROCESSING_ERROR"
    kind = Kind.INTERNAL
    title = "The turn failed"


class ToolFailedError(AppError):
    """A runtime tool failed in a turn that must not go on without it; `tool_call_id` and `tool` say which."""

    code = "TOOL_ERROR"
    kind = Kind.UPSTREAM
    title = "A tool that the turn can't do without has failed"


class StructuredOutputError(AppError):
    """The model's replies do not fit the schema that the turn asks for; `issues` say why."""

    code = "GMI_STRUCTURED_OUTPUT_INVALID"
    kind = Kind.UPSTREAM
    title = "The reply does not fit its schema"


class ProviderError(AppError):
    """The model's provider failed or refused (R299).

    `reason` is a stable word: `connect`, `timeout`, `auth`, `quota`, `rate_limited`, `overloaded`, `context_length`,
    `invalid_request`, `content_filter`, `protocol`, `truncated`, `transport`, `server`. `after_output` tells that
    text or calls had already been given out; `usage` is what the failed request was billed, where the provider told.
    """

    code = "LLM_PROVIDER_ERROR"
    kind = Kind.UPSTREAM
    title = "The model provider failed"

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        provider: str,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        **details: Any,
    ) -> None:
        """Keep what a gateway decides by; only `reason`, `provider` and `status` are told to a client."""
        shown: dict[str, Any] = {"reason": reason, "provider": provider, **details}
        if status is not None:
            shown["status"] = status
        super().__init__(message, **shown)
        self.reason = reason
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.after_output = False
        self.usage: Usage | None = None


class ProviderUnavailableError(AppError):
    """No provider can serve the model that was asked for."""

    code = "LLM_PROVIDER_UNAVAILABLE"
    kind = Kind.UNAVAILABLE
    title = "No provider serves this model"
