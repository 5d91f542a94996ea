"""The OpenAPI document: version 3.2, which can describe the items of an event stream, and the schemas it shares."""

import json
import warnings
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.warnings import UnsupportedFieldAttributeWarning

from app.api.schemas.problems import ProblemOut

VERSION: Final = "3.2.0"
_REFERENCE: Final = "#/components/schemas/{model}"
_DESCRIPTION: Final = (
    "POST a turn and read the answer as Server-Sent Events. When the model asks for a tool that the host runs, the "
    "turn pauses, and the pause holds until its results are posted."
)


def document(app: FastAPI) -> dict[str, Any]:
    """Make the document once; later calls give the same one."""
    if app.openapi_schema is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)  # see `app.api.route`
            made = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version=VERSION,
                description=_DESCRIPTION,
                routes=app.routes,
            )
        schemas: dict[str, Any] = made.setdefault("components", {}).setdefault("schemas", {})
        frames = _frames(_REFERENCE)
        schemas.update(frames.pop("$defs", {}))
        schemas["FrameData"] = frames
        schemas["ProblemOut"] = TypeAdapter(ProblemOut).json_schema(ref_template=_REFERENCE, mode="serialization")
        made["components"]["schemas"] = dict(sorted(schemas.items()))
        made["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        # An empty requirement stands for a service without keys, which listens on its own machine alone.
        made["security"] = [{"bearer": []}, {"key": []}, {}]
        app.openapi_schema = made
    return app.openapi_schema


def contract_files(app: FastAPI) -> dict[str, str]:
    """Give what `openapi/` holds: each file's name and text, the same on every machine."""
    frames = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The data of a frame",
        **_frames(),
    }
    return {"openapi.json": _canonical(document(app)), "chunks.schema.json": _canonical(frames)}


def _frames(*reference: str) -> dict[str, Any]:
    from app.api.schemas.chunks import frame_schema  # noqa: PLC0415 - its models are for the description alone

    return frame_schema(*reference)


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
