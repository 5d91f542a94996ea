"""What a load balancer asks; answered without a key."""

from http import HTTPStatus

from fastapi import APIRouter, Response

from app.api.deps import RuntimeDep
from app.api.route import Route
from app.api.schemas.health import LiveOut, ReadyOut

router = APIRouter(route_class=Route, tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=LiveOut)
async def live() -> object:
    """Tell that the process answers; nothing else is asked."""
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=ReadyOut, responses={503: {"model": ReadyOut, "description": "A check fails."}})
async def ready(response: Response, runtime: RuntimeDep) -> object:
    """Tell whether turns can be sent here; 503 while a check fails."""
    checks = await runtime.readiness()
    well = all(checks.values())
    if not well:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE.value
    return {"status": "ok" if well else "unavailable", "checks": checks}
