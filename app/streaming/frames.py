"""Frames: one stream chunk as the bytes that every reader gets.

A frame is `id: <fence>-<n>`, `event: <type>`, `data: <one JSON object>` and an empty line, with LF alone. JSON never
holds a raw line end, so frames can be told apart in a run of bytes by the empty line.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from app.domain.chunks import FINAL_TYPES, ChunkType, StreamChunk
from app.domain.jsontext import dumps, loads, stamp
from app.domain.turn import StreamStatus
from app.domain.views import Cursor

PING: Final = b": ping\n\n"
OPENING: Final = b": ok\n\n"
RETRY: Final = b"retry: 1000\n\n"
"""Tells an `EventSource` how soon to come back, in milliseconds."""

SEPARATOR: Final = b"\n\n"
_END_MARK: Final = b"\nevent: end\n"
_DATA: Final = b"\ndata: "
_DELTA_MARK: Final = b"\nevent: text_delta\n"
_END_REACH: Final = 60
"""The mark of an `end` frame lies within this many bytes: an id is two numbers of at most 19 digits."""
_TRACED: Final[frozenset[ChunkType]] = frozenset({"metadata_update", "final_response", "error"})


class Envelope:
    """What all frames of one operation share, encoded once: stream, GMI and persona, and metadata if there is some."""

    def __init__(
        self,
        *,
        stream_id: str,
        gmi_instance_id: str,
        persona_id: str,
        metadata: Mapping[str, Any] | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> None:
        """Encode the constant part. A chunk's own metadata goes before the shared one.

        `trace` joins the metadata of chunks that tell how the operation stands or ends, and of no others.
        """
        plain = dict(metadata or {})
        traced = {**plain, "trace": dict(trace)} if trace else plain
        self._plain = (plain, _encoded(plain))
        self._traced = (traced, _encoded(traced)) if trace else self._plain
        shared = {"stream_id": stream_id, "gmi_instance_id": gmi_instance_id, "persona_id": persona_id}
        self._shared = dumps(shared)[1:-1]
        self._of_text: tuple[bytes, bytes] | None = None

    def encode(self, fence: int, n: int, chunk: StreamChunk, now: datetime) -> bytes:
        """Give the chunk's frame. The chunk's own fields come last, so that a reader sees the envelope first."""
        if chunk.type != "text_delta" or chunk.metadata or chunk.speaker is not None:
            begin, metadata = self._constant(chunk)
        else:
            # The one type of which there are many; of the others it would take more memory than it saves time.
            begin, metadata = self._of_text = self._of_text or self._constant(chunk)
        body = dumps(chunk.fields)[1:-1]
        return b'id: %d-%d\n%b%b"%b%b%b}\n\n' % (fence, n, begin, stamp(now), b"," if body else b"", body, metadata)

    def _constant(self, chunk: StreamChunk) -> tuple[bytes, bytes]:
        """Give what stands before and behind that which differs."""
        shared, metadata = self._traced if chunk.type in _TRACED else self._plain
        if chunk.speaker is not None:
            parts = {**loads(b"{%b}" % self._shared), "gmi_instance_id": chunk.speaker}
            begin = self._begin(chunk.type, dumps(parts)[1:-1])
        else:
            begin = self._begin(chunk.type, self._shared)
        if chunk.metadata:
            metadata = _encoded({**shared, **chunk.metadata})
        return begin, metadata

    @staticmethod
    def _begin(name: ChunkType, shared: bytes) -> bytes:
        """Give what the frames of one type have in common: everything from behind the id to the first that differs."""
        type_, final = name.encode(), b"true" if name in FINAL_TYPES else b"false"
        return b'event: %b\ndata: {"type":"%b",%b,"is_final":%b,"timestamp":"' % (type_, type_, shared, final)


def _encoded(metadata: Mapping[str, Any]) -> bytes:
    return b',"metadata":' + dumps(metadata) if metadata else b""


def encode_end(fence: int, n: int, status: StreamStatus, extra: Mapping[str, Any] | None = None) -> bytes:
    """Give the last frame of an operation; `n` is its own number, so `last` counts every frame of the fence."""
    data = dumps({"status": status.value, **(extra or {}), "last": n})
    return b"id: %d-%d\nevent: end\ndata: %b\n\n" % (fence, n, data)


def is_end(frame: bytes) -> bool:
    """Tell whether a frame is an operation's last one."""
    return frame.find(_END_MARK, 0, _END_REACH) > 0


def end_status(frame: bytes) -> StreamStatus | None:
    """Give how a frame says that its operation ended; None for any other frame."""
    return StreamStatus(loads(frame[frame.index(_DATA) + len(_DATA) :])["status"]) if is_end(frame) else None


def split(frames: bytes) -> Iterator[bytes]:
    """Take a run of frames apart."""
    start = 0
    while start < len(frames):
        stop = frames.index(SEPARATOR, start) + len(SEPARATOR)
        yield frames[start:stop]
        start = stop


def cursor_of(frame: bytes) -> Cursor:
    """Read a frame's place."""
    line = frame[len(b"id: ") : frame.index(b"\n")]
    return Cursor.parse(line.decode())


def redacted(frames: bytes) -> bytes:
    """Give a run of frames whose pieces of text are gone; their ids and all other frames are the same."""
    if _DELTA_MARK not in frames:
        return frames
    return b"".join(_without_text(frame) if _DELTA_MARK in frame else frame for frame in split(frames))


def _without_text(frame: bytes) -> bytes:
    place = frame.index(_DATA) + len(_DATA)
    shown = {**loads(frame[place:]), "text_delta": "", "redacted": True}
    return frame[:place] + dumps(shown) + SEPARATOR
