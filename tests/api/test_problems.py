"""Refusals: one form for all of them, with the error's own code and message."""

from collections.abc import Iterator
from http import HTTPStatus

import pytest
from dirty_equals import IsPartialDict, IsStr
from structlog.testing import capture_logs

from app.api.problems import problem_body, status_of
from app.domain.errors import (
    AppError,
    ClosedStreamError,
    ConversationBusyError,
    InternalError,
    InvalidStateError,
    Kind,
    ProviderError,
    RateLimitedError,
    UnavailableError,
)
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of


def family(error: type[AppError]) -> Iterator[type[AppError]]:
    yield error
    for child in error.__subclasses__():
        if child.__module__.startswith("app."):
            yield from family(child)


def test_every_kind_of_error_has_a_status() -> None:
    statuses = {kind: status_of(type("_Error", (AppError,), {"kind": kind})) for kind in Kind}

    assert set(statuses) == set(Kind)
    assert statuses[Kind.INVALID] == 422
    assert statuses[Kind.CONFLICT] == 409
    assert all(HTTPStatus(status) for status in statuses.values())


@pytest.mark.parametrize("error", sorted(set(family(AppError)), key=str))
def test_every_error_can_be_told_as_a_problem(error: type[AppError]) -> None:
    made = error("said so", reason="auth", provider="p") if issubclass(error, ProviderError) else error("said so")

    body = problem_body(made, instance="/v1/x", request_id="req_1")

    assert body == IsPartialDict(
        type=f"urn:fermata:problem:{error.code}",
        title=error.title,
        status=status_of(error),
        detail="said so",
        code=error.code,
        instance="/v1/x",
        request_id="req_1",
    )


def test_details_are_members_and_never_hide_the_problems_own() -> None:
    error = ConversationBusyError("busy", stream_id="st_9", status="running", code="x")

    body = problem_body(error, instance="/", request_id="r")

    assert body == IsPartialDict(
        stream_id="st_9", status=409, error_status="running", code="CONVERSATION_BUSY", error_code="x"
    )


async def test_a_refusal_of_the_facade_keeps_its_code_its_message_and_its_details(runtime: FakeRuntime) -> None:
    runtime.refuses = ClosedStreamError("The stream is closed.", reason="new_turn")
    body = {"results": [{"tool_call_id": "call_1", "output": 1}]}
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/streams/st_1/tool-results", json=body)

    assert response.status_code == 409
    assert response.json() == {
        "type": "urn:fermata:problem:TOOL_ERROR",
        "title": "The stream is closed",
        "status": 409,
        "detail": "The stream is closed.",
        "code": "TOOL_ERROR",
        "instance": "/v1/streams/st_1/tool-results",
        "request_id": IsStr(regex=r"req_[0-9a-f]{24}"),
        "reason": "new_turn",
    }


@pytest.mark.parametrize(
    "refusal", [RateLimitedError("slow", retry_after=2.4), UnavailableError("no", retry_after=0.1)]
)
async def test_a_refusal_that_knows_when_to_come_back_says_so(refusal: AppError, runtime: FakeRuntime) -> None:
    runtime.refuses = refusal
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/conversations")

    assert response.headers["Retry-After"] in {"1", "2"}


async def test_an_address_that_is_not_there_is_a_404_problem(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/nothing")
        slashed = await client.get("/v1/personas/")

    assert response.status_code == 404
    assert response.json() == IsPartialDict(code="SYS_RESOURCE_NOT_FOUND", instance="/v1/nothing")
    assert slashed.status_code == 404


async def test_a_method_that_is_not_taken_is_a_405_problem(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.put("/v1/turns")

    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"
    assert response.json() == IsPartialDict(code="SYS_METHOD_NOT_SUPPORTED", allow=["POST"])


async def test_a_bug_is_a_500_that_tells_nothing_and_a_log_line_that_tells_all(runtime: FakeRuntime) -> None:
    runtime.refuses = ValueError("the password is swordfish")
    with capture_logs() as lines:
        async with client_of(application(runtime)) as client:
            response = await client.get("/v1/conversations")

    assert response.status_code == 500
    assert response.json() == IsPartialDict(code="SYS_INTERNAL_SERVER_ERROR", detail=InternalError.title)
    assert "swordfish" not in response.text
    assert lines[0] == IsPartialDict(event="request.failed", exc_info=True)
    assert response.headers["X-Request-Id"] == response.json()["request_id"]


async def test_a_pause_that_can_not_take_results_is_a_409(runtime: FakeRuntime) -> None:
    runtime.refuses = InvalidStateError("continued", pause_id="p")
    body = {"results": [{"tool_call_id": "call_1", "output": 1}]}
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/streams/st_1/tool-results", json=body)

    assert response.status_code == 409
    assert response.json() == IsPartialDict(code="SYS_INVALID_STATE", pause_id="p")
