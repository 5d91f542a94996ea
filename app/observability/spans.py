"""Spans of OpenTelemetry, where the process has set up something that reads them; otherwise they cost nothing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

Tell = Callable[[Mapping[str, AttributeValue]], None]
"""Adds attributes to a span."""


def tracer(name: str) -> trace.Tracer | None:
    """Give what makes spans; None while nothing is set up that would read them."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace.get_tracer(name)


def spanned(name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Make what runs inside a span of its own."""
    found = tracer("fermata.operation")
    return found.start_as_current_span(name, attributes=attributes) if found is not None else nullcontext()


def spanned_in_pieces(name: str, attributes: Mapping[str, AttributeValue]) -> AbstractContextManager[Tell]:
    """Make a span around what a generator gives in pieces; gives what tells the span more.

    It is nobody's current span, since a generator may be closed elsewhere than it was begun. Of an error it has the
    code alone.
    """
    found = tracer("fermata.operation")
    return nullcontext(_unheard) if found is None else _span(found, name, attributes)


@contextmanager
def _span(found: trace.Tracer, name: str, attributes: Mapping[str, AttributeValue]) -> Iterator[Tell]:
    span = found.start_span(name, attributes=attributes)
    try:
        yield span.set_attributes
    except Exception as error:
        span.set_status(trace.StatusCode.ERROR, str(getattr(error, "code", type(error).__name__)))
        raise
    finally:
        span.end()


def _unheard(_: Mapping[str, AttributeValue]) -> None:
    """Tell nobody: no span is made."""


def here() -> dict[str, str] | None:
    """Give the span that we are in as chunks tell it, with W3C Trace Context's `traceparent`; None outside of any."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    trace_id, span_id = trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
    flags = f"{context.trace_flags:02x}"
    return {"trace_id": trace_id, "span_id": span_id, "traceparent": f"00-{trace_id}-{span_id}-{flags}"}
