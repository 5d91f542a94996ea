"""Frames: bytes that can be told apart, whatever the text in them is."""

import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.chunks import ChunkType, StreamChunk
from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.streaming.frames import Envelope, cursor_of, encode_end, end_status, is_end, split

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ENVELOPE = Envelope(stream_id="st_1", gmi_instance_id="gmi_1", persona_id="demo")
NASTY = ["\n\nevent: end\n", "\r\n\r\n", "\nid: 9-9\n", "\u2028", "é\U0001f600", '"}\n\n', "data: {}"]


def delta(text: str, fence: int = 7, n: int = 1) -> bytes:
    return ENVELOPE.encode(fence, n, StreamChunk("text_delta", {"text_delta": text}), NOW)


@pytest.mark.parametrize("text", NASTY)
def test_text_can_neither_end_a_frame_nor_begin_one(text: str) -> None:
    frames = delta(text) + delta(text, n=2)
    assert list(split(frames)) == [delta(text), delta(text, n=2)]
    assert b"\r" not in frames
    assert not is_end(delta(text))
    data = json.loads(delta(text).split(b"data: ", 1)[1])
    assert data["text_delta"] == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_a_run_of_frames_is_taken_apart_as_it_was_put_together(texts: list[str]) -> None:
    frames = [delta(text, n=n) for n, text in enumerate(texts, start=1)]
    assert list(split(b"".join(frames))) == frames
    assert [cursor_of(frame) for frame in frames] == [Cursor(7, n) for n in range(1, len(texts) + 1)]


@pytest.mark.parametrize("status", StreamStatus)
def test_an_end_tells_its_status_and_counts_all_frames(status: StreamStatus) -> None:
    frame = encode_end(2**62, 10**6, status, {"reason": "x"})
    assert is_end(frame)
    assert end_status(frame) is status
    assert json.loads(frame.split(b"data: ", 1)[1]) == {"status": status.value, "reason": "x", "last": 10**6}


def test_a_chunks_own_metadata_goes_before_what_all_share_and_a_trace_is_with_three_types_alone() -> None:
    shared = {"language": "de", "more": 1}
    plain: dict[str, Any] = {"stream_id": "st_1", "gmi_instance_id": "gmi_1", "persona_id": "demo"}
    envelope = Envelope(**plain, metadata=shared, trace={"trace_id": "t"})

    def told(chunk: StreamChunk, by: Envelope = envelope) -> object:
        return json.loads(by.encode(1, 1, chunk, NOW).split(b"data: ", 1)[1]).get("metadata")

    trace = {"trace": {"trace_id": "t"}}
    for kind in get_args(ChunkType):
        is_told = kind in {"metadata_update", "final_response", "error"}
        assert told(StreamChunk(kind, {})) == ({**shared, **trace} if is_told else shared)
        assert told(StreamChunk(kind, {}), Envelope(**plain, trace=trace["trace"])) == (trace if is_told else None)
        assert told(StreamChunk(kind, {}), Envelope(**plain)) is None
    own = StreamChunk("tool_call_request", {}, {"language": "fr"})
    assert told(own) == {"language": "fr", "more": 1}
    assert told(own, Envelope(**plain)) == {"language": "fr"}


def test_another_frame_has_no_end_status() -> None:
    assert end_status(delta("event: end")) is None
