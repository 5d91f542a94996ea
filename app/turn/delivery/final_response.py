"""The one builder of `final_response`, for turns and continuations alike (R36 to R52)."""

from typing import Any

from app.domain.chunks import GmiOutput
from app.domain.persona import Persona
from app.domain.usage import Usage
from app.turn.delivery.plain_text import PlainText


def build(
    output: GmiOutput,
    *,
    usage: Usage,
    turn_id: str,
    message_id: str | None,
    persona: Persona,
    plain_text: PlainText,
) -> dict[str, Any]:
    """Give the payload. `usage` is the whole turn's, earlier operations included (R304: also of a failed one)."""
    text = output.response_text
    structured = {"structured": dict(output.structured)} if output.structured is not None else {}
    return {
        "final_response_text": text,
        "final_response_text_plain": None if text is None else plain_text.render(text),
        "final_tool_calls": [call.public() for call in output.tool_calls] or None,
        "final_ui_commands": [dict(command) for command in output.ui_commands] or None,
        "usage": usage.to_json(),
        "rag_sources": [dict(source) for source in output.rag_sources] or None,
        "error": output.error.to_json() if output.error else None,
        "active_persona_details": {
            "id": persona.id,
            "name": persona.name,
            "description": persona.description,
        },
        "turn_id": turn_id,
        "message_id": message_id,
        **structured,
    }
