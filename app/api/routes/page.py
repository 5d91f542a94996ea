"""The web console, the API reference and the OpenAPI document: static, without data, so without a key."""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from app.api.route import Route
from app.domain.errors import NotFoundError
from app.domain.jsontext import dumps

router = APIRouter(route_class=Route, include_in_schema=False)

FOLDER: Final = Path(__file__).parent.parent / "page"
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ASSETS: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@router.get("/")
async def console() -> Response:
    """Give the console."""
    return _document("console.html")


@router.get("/docs")
async def reference() -> Response:
    """Give the API reference; it draws itself from the OpenAPI document."""
    return _document("reference.html")


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """Give the OpenAPI document."""
    return Response(dumps(request.app.openapi()), media_type="application/json")


@router.get("/page/{name}")
async def asset(name: str) -> Response:
    """Give a script, a style or an image of the page."""
    known = {path.name: path for path in FOLDER.iterdir() if path.suffix in _ASSETS}
    if name not in known:
        message = f"The page has no file {name!r}."
        raise NotFoundError(message)
    path = known[name]
    return FileResponse(path, media_type=_ASSETS[path.suffix], headers={"Cache-Control": "no-cache"})


def _document(name: str) -> Response:
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _CONTENT_POLICY,
        "X-Frame-Options": "DENY",
    }
    return FileResponse(FOLDER / name, media_type="text/html", headers=headers)
