"""The one rule that says when a turn stops for its host (R23 to R30)."""

from app.domain.chunks import GmiOutput


def stops_for_host(output: GmiOutput) -> bool:
    """Tell whether the output is a pause: it is not final and it names calls. Nothing else counts."""
    return not output.is_final and bool(output.tool_calls)
