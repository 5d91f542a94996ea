"""The body of every refusal."""

from typing import Any

from pydantic import ConfigDict, Field

from app.api.schemas.base import Output


class FaultOut(Output):
    """One thing that is wrong with a request."""

    field: str = Field(description="Where it is.")
    message: str = Field(description="What is wrong, and what to do.")


class ProblemOut(Output):
    """A problem document (RFC 9457). Some codes add members of their own, such as `stream_id` or `reason`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="A name for the kind of problem.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened here, and what to do about it.")
    code: str = Field(description="The stable code; an `error` chunk of a stream has the same.")
    instance: str = Field(description="The address that was called.")
    request_id: str = Field(description="The request's id, as in the logs and in `X-Request-Id`.")


ProblemMembers = dict[str, Any]
