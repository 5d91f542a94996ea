"""Refusals as `application/problem+json`: one mapping of kinds to statuses, for every error there is."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.schemas.parts import PARTS_TAG, TEXT_TAG
from app.domain.errors import (
    AppError,
    ForbiddenError,
    InternalError,
    Kind,
    MalformedError,
    MethodNotAllowedError,
    NotFoundError,
    UnauthenticatedError,
    ValidationError,
)
from app.domain.jsontext import dumps
from app.observability.lines import log

MEDIA_TYPE: Final = "application/problem+json"
FAULTS_SHOWN: Final = 20

_STATUSES: Final[Mapping[Kind, HTTPStatus]] = {
    Kind.MALFORMED: HTTPStatus.BAD_REQUEST,
    Kind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Kind.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Kind.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.GONE: HTTPStatus.GONE,
    Kind.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Kind.NOT_ACCEPTABLE: HTTPStatus.NOT_ACCEPTABLE,
    Kind.LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    Kind.UPSTREAM: HTTPStatus.BAD_GATEWAY,
    Kind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Kind.TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
    Kind.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_RESERVED: Final = frozenset({"type", "title", "status", "detail", "code", "instance", "request_id"})


def status_of(error: AppError | type[AppError]) -> int:
    """Give the HTTP status of an error. A wrong method is the one malformed request with a status of its own."""
    kind = error if isinstance(error, type) else type(error)
    if issubclass(kind, MethodNotAllowedError):
        return HTTPStatus.METHOD_NOT_ALLOWED.value
    return _STATUSES[kind.kind].value


def problem_body(error: AppError, *, instance: str, request_id: str) -> dict[str, Any]:
    """Give the problem document; the error's details become members, under their own names where those are free."""
    members = {f"error_{name}" if name in _RESERVED else name: value for name, value in error.details.items()}
    return {
        "type": f"urn:fermata:problem:{error.code}",
        "title": error.title,
        "status": status_of(error),
        "detail": error.message,
        "code": error.code,
        "instance": instance,
        "request_id": request_id,
        **members,
    }


def problem_response(error: AppError, scope: Mapping[str, Any]) -> Response:
    """Give the whole response, with the headers that its status asks for."""
    request_id = scope.get("state", {}).get("request_id", "")
    body = problem_body(error, instance=scope["path"], request_id=request_id)
    headers = {"Cache-Control": "no-store"}
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    if (seconds := error.details.get("retry_after")) is not None:
        headers["Retry-After"] = str(max(1, round(seconds)))
    if (allowed := error.details.get("allow")) is not None:
        headers["Allow"] = ", ".join(allowed)
    return Response(dumps(body), status_of(error), headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of a call with a problem document. What escapes here is caught by the middleware."""
    app.add_exception_handler(AppError, _on_app_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_app_error(request: Request, error: Exception) -> Response:
    told = error if isinstance(error, AppError) else InternalError()
    if told.kind is Kind.INTERNAL:
        log(__name__).error("request.failed", code=told.code, detail=told.message)
    return problem_response(told, request.scope)


async def _on_invalid(request: Request, error: Exception) -> Response:
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    return problem_response(refusal_of(faults), request.scope)


async def _on_http(request: Request, error: Exception) -> Response:
    """Turn the framework's own refusals into ours; one that wraps an error of ours gives that."""
    if isinstance(error.__cause__, AppError):
        return problem_response(error.__cause__, request.scope)
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    path, method = request.scope["path"], request.scope["method"]
    told: AppError
    match status:
        case HTTPStatus.NOT_FOUND:
            told = NotFoundError(f"There is nothing at {path}; see /docs for the calls there are.")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            headers = getattr(error, "headers", None) or {}
            allow = [name.strip() for name in headers.get("Allow", "").split(",") if name.strip()]
            told = MethodNotAllowedError(f"{path} does not take {method}; it takes {', '.join(allow)}.", allow=allow)
        case HTTPStatus.FORBIDDEN:
            told = ForbiddenError()
        case HTTPStatus.BAD_REQUEST:
            told = MalformedError("The body can't be read; send one JSON object in UTF-8.")
        case _:
            log(__name__).error("request.unexpected_status", status=status)
            told = InternalError()
    return problem_response(told, request.scope)


def refusal_of(faults: Sequence[Mapping[str, Any]]) -> AppError:
    """Make one error of the framework's list of faults: malformed for headers and an empty body, else invalid."""
    shown = [{"field": _place(fault["loc"]), "message": _advice(fault)} for fault in faults[:FAULTS_SHOWN]]
    sentences = " ".join(f"{fault['field']}: {fault['message']}" for fault in shown)
    if any(fault["loc"] == ("body",) and fault["type"] == "missing" for fault in faults):
        return MalformedError("The body is empty; send one JSON object.")
    if any(fault["loc"][:1] == ("header",) for fault in faults):
        return MalformedError(sentences, errors=shown)
    return ValidationError(sentences, errors=shown)


def _place(loc: Sequence[int | str]) -> str:
    """Write a fault's place as a path in the body, or as the name of a parameter."""
    parts: list[str] = []
    skip = -1
    for index, part in enumerate(loc[1:], start=1):
        if index == skip or part == TEXT_TAG:
            continue
        if part == PARTS_TAG:
            # After the index of a part comes the name of its type, which is no field.
            skip = index + 2
            continue
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return "".join(parts).removeprefix(".") or str(loc[0] if loc else "request")


def _advice(fault: Mapping[str, Any]) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "this field is not known here; take it out, or see /docs for those there are."
        case "missing":
            return "this field is missing; add it."
        case "union_tag_invalid":
            return f"its type must be one of {fault['ctx']['expected_tags']}."
        case "union_tag_not_found":
            return "its type is missing; say what kind of part it is."
        case _:
            return f"{fault['msg'].removeprefix('Value error, ').rstrip('.')}."
