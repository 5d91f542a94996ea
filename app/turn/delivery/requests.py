"""Requests for calls that the host runs: held back until the GMI's output is known (R223 to R231)."""

from dataclasses import field

from app.domain.chunks import GmiOutput, ToolCallRequest
from app.domain.frozen import dataclass


@dataclass(slots=True)
class HeldRequests:
    """The host requests that a GMI streamed."""

    streamed: list[ToolCallRequest] = field(default_factory=list)

    def hold(self, request: ToolCallRequest) -> None:
        """Keep a request back; one that names no call is dropped."""
        if request.calls:
            self.streamed.append(request)

    def matching(self, output: GmiOutput) -> ToolCallRequest | None:
        """Give the streamed request that may go out: the only one, and naming exactly the calls of the stop."""
        if len(self.streamed) != 1:
            return None
        request = self.streamed[0]
        named = sorted(call.id for call in request.calls)
        return request if named == sorted(call.id for call in output.tool_calls) else None
