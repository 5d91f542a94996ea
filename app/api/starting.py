"""The route of calls that start an operation: declared like any other, and solved here.

The framework solves any signature and asks of each parameter anew what kind of thing it is, which takes as long as all
else that the door does for a turn. Here that is known when the route is made: some values of the address and the
headers, one body, and the `Call` that is made of them.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.body import DoorRoute
from app.domain.errors import AppError
from app.domain.frozen import dataclass

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Fault = Mapping[str, Any]
_NO_BODY: Final[Fault] = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}


class StartingRoute(DoorRoute):
    """A route whose function takes parameters of the path, one body, and one dependency that has none of its own."""

    def handler(self) -> Handler:
        """Give what answers as the framework would: the same values, and the same faults in the same order."""
        (needed,), (body,) = self.dependant.dependencies, self.dependant.body_params
        make: Callable[..., Coroutine[Any, Any, Any]] = needed.call  # type: ignore[assignment]
        path = _parameters("path", self.dependant.path_params)
        query, headers = _parameters("query", needed.query_params), _parameters("header", needed.header_params)

        async def handle(request: Request) -> Response:
            sent = await _body(request)
            faults: list[Fault] = []
            asked = {
                **_read(query, request.query_params, faults),
                **_read(headers, request.headers, faults),
            }
            call = None if faults else await make(request, **asked)
            named = _read(path, request.path_params, faults)
            value, wrong = body.validate(sent[0], {}, loc=("body",)) if sent else (None, [_NO_BODY])
            faults += wrong
            if faults:
                raise RequestValidationError(faults)
            response: Response = await self.endpoint(**named, **{body.name: value, str(needed.name): call})
            return response

        return handle


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    alias: str
    place: tuple[str, str]
    required: bool
    field: Any


def _parameters(kind: str, fields: Iterable[Any]) -> tuple[_Parameter, ...]:
    return tuple(
        _Parameter(field.name, field.alias, (kind, field.alias), field.field_info.is_required(), field)
        for field in fields
    )


def _read(parameters: Iterable[_Parameter], given: Mapping[str, Any], faults: list[Fault]) -> dict[str, Any]:
    """Give the values of parameters by their names; what is wrong with them is added to the faults."""
    values = {}
    for one in parameters:
        value = given.get(one.alias)
        if value is None and not one.required:
            continue  # the function's own default holds
        values[one.name], wrong = one.field.validate(value, {}, loc=one.place)
        faults += wrong
    return values


async def _body(request: Request) -> tuple[Any] | None:
    """Read the body; None when there is none."""
    try:
        return (await request.json(),) if await request.body() else None
    except AppError:
        raise
    except Exception as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST) from error
