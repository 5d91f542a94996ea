"""Counts of this process, for a monitoring system."""

from typing import Final

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse

from app.api.body import DoorRoute
from app.api.deps import RuntimeDep, operating
from app.api.documents import refusals
from app.domain.errors import NotFoundError

router = APIRouter(route_class=DoorRoute, tags=["health"])

FORM: Final = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    dependencies=[Depends(operating)],
    response_class=PlainTextResponse,
    responses=refusals(NotFoundError),
)
async def read_metrics(runtime: RuntimeDep) -> PlainTextResponse:
    """Give the counts in Prometheus's text format; 404 where `FERMATA_METRICS` is not set."""
    counts = runtime.metrics()
    if counts is None:
        message = "Nothing is counted here; the operator can set FERMATA_METRICS=true."
        raise NotFoundError(message)
    return PlainTextResponse(counts, media_type=FORM)
