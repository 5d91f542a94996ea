"""Calls that start an operation: what they say beside their body, as the one dependency of a `StartingRoute`."""

from typing import Annotated, cast

from fastapi import Depends, Header, Request
from starlette.datastructures import Headers

from app.api.deps import OrganizationQuery, UserQuery, asker_of, chatting
from app.api.negotiation import form_of
from app.api.operations import Exchange
from app.api.policy import Asker, Door
from app.api.runtime import Runtime
from app.api.schemas.tool_results import ResumeBody, ToolResultsBody
from app.api.schemas.turns import TurnBody
from app.domain.errors import MalformedError
from app.domain.frozen import dataclass
from app.domain.views import Cursor

LONGEST_KEY = 255


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is admitted: its idempotency key, and the last event that a client has which sends it again."""

    runtime: Runtime
    door: Door
    asker: Asker
    key: str | None
    last: Cursor | None
    headers: Headers

    def exchange(self, body: TurnBody | ToolResultsBody | ResumeBody) -> Exchange:
        """Say for whom the operation is, and how it is answered. Raises what `form_of` and `Asker.caller` raise."""
        form = form_of(self.headers)
        caller = self.asker.caller(body.user_id, body.organization_id)
        return Exchange(form, self.runtime, self.door, caller, self.last, body.on_disconnect)


async def call_of(
    request: Request,
    user_id: UserQuery = None,
    organization_id: OrganizationQuery = None,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="Names the request: sent again with the same body it attaches to what it started before.",
        ),
    ] = None,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="Reads on after this event of a repeated request.")
    ] = None,
) -> Call:
    """Read the call. MalformedError for a key or a cursor of a form that is not taken."""
    asker = await chatting(await asker_of(request, user_id, organization_id))
    if key is not None and not (0 < len(key.strip()) <= LONGEST_KEY and key.isprintable()):
        message = f"Idempotency-Key must have 1 to {LONGEST_KEY} printable characters."
        raise MalformedError(message)
    state = request.app.state
    cursor = Cursor.parse(last) if last else None
    return Call(cast("Runtime", state.runtime), cast("Door", state.door), asker, key, cursor, request.headers)


Starting = Annotated[Call, Depends(call_of)]
