"""Spans of a turn's parts: which there are, what they tell, and that they tell nothing of what was said."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace

from app.domain.usage import Usage
from app.observability.spans import spanned_in_pieces
from app.providers.base import Finish
from app.providers.errors import failure
from app.providers.scripted import call
from tests.stage import running_stage, types


class Span(trace.NonRecordingSpan):
    """A span that can be read."""

    def __init__(self, name: str, attributes: Mapping[str, Any] | None) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name = name
        self.about = dict(attributes or {})
        self.error: str | None = None
        self.ended = False

    def set_attribute(self, key: str, value: Any) -> None:
        self.about[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.about |= attributes

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.error = description or str(status)

    def end(self, end_time: int | None = None) -> None:
        del end_time
        self.ended = True


class Tracer(trace.NoOpTracer):
    """Keeps the spans that it makes."""

    def __init__(self) -> None:
        self.made: list[Span] = []

    def start_span(self, name: str, *_: Any, attributes: Any = None, **__: Any) -> Span:
        self.made.append(Span(name, attributes))
        return self.made[-1]

    @contextmanager
    def start_as_current_span(self, name: str, *_: Any, attributes: Any = None, **__: Any) -> Iterator[Span]:  # type: ignore[override]
        span = self.start_span(name, attributes=attributes)
        yield span
        span.end()


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Tracer:
    made = Tracer()
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(trace, "get_tracer", lambda _: made)
    return made


async def test_steps_tools_and_the_outcome_of_a_turn_have_spans_that_name_models_and_count_tokens(
    tracer: Tracer, shared_database: str
) -> None:
    secret = "the heart of the matter"
    async with running_stage(shared_database) as stage:
        stage.provider.add(
            [call("current_time", {"timezone": 7}, id="c1"), Usage(7, 2), Finish("tool_calls", None, "m-1", "r-1")],
            [secret, Usage(9, 3)],
        )
        await stage.play(secret)
        model = stage.runtime._services.policy.default_model

    parts = [span for span in tracer.made if not span.name.startswith(("operation.turn", "preparation."))]
    assert [(span.name, span.ended, span.error) for span in parts] == [
        (f"chat {model}", True, None),
        ("execute_tool current_time", True, None),
        (f"chat {model}", True, None),
        ("operation.settle", True, None),
    ]
    first, tool, _, settled = (span.about for span in parts)
    assert first == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.provider.name": "scripted",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.id": "r-1",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "fermata.step": 0,
        "fermata.hop": 0,
        "fermata.finish_reason": "tool_calls",
    }
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.id"]) == ("current_time", "c1")
    assert tool["error.type"] == "TOOL_ARGUMENTS_INVALID"
    assert settled == {"fermata.status": "completed"}
    assert secret not in str([span.about for span in tracer.made])


async def test_a_step_that_fails_ends_its_span_with_the_errors_code(tracer: Tracer, shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        stage.provider.add([failure("invalid_request", "scripted", "No, and why not.")])
        assert "error" in types(await stage.play("Hi"))

    (step,) = [span for span in tracer.made if span.name.startswith("chat ")]
    assert (step.ended, step.error) == (True, "LLM_PROVIDER_ERROR")
    assert "why not" not in str(step.about)


def test_without_anything_that_reads_spans_none_is_made() -> None:
    with spanned_in_pieces("chat m", {}) as tell:
        tell({"a": 1})
