"""Event streams as a strict client reads them: every rule of a frame is checked, and none is forgiven."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_ID = re.compile(rb"id: ([1-9][0-9]*)-([1-9][0-9]*)")
_RETRY = re.compile(rb"retry: ([1-9][0-9]*)")
_EVENT = re.compile(rb"event: ([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: its place (`fence`, `n`), its type, its data, and the bytes it came as."""

    fence: int
    n: int
    event: str
    data: dict[str, Any]
    raw: bytes

    @property
    def id(self) -> str:
        return f"{self.fence}-{self.n}"


class FrameReader:
    """Takes bytes as they come and gives whole frames; raises AssertionError for anything that is none."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self.retry: int | None = None
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Give the frames that are whole now."""
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        return [frame for block in blocks if (frame := self._read(block)) is not None]

    def finish(self) -> None:
        """Check that the stream did not end in the middle of a frame."""
        assert self._rest == b"", f"the stream ends inside a frame: {self._rest!r}"

    def _read(self, block: bytes) -> Frame | None:
        assert b"\r" not in block, f"a carriage return in {block!r}"
        lines = block.split(b"\n")
        if retry := _RETRY.fullmatch(block):
            self.retry = int(retry[1])
            return None
        if block.startswith(b":"):
            assert len(lines) == 1, f"a comment of several lines: {block!r}"
            self.comments.append(block[1:].decode().strip())
            return None
        assert len(lines) == 3, f"not id, event and data: {block!r}"
        place, event = _ID.fullmatch(lines[0]), _EVENT.fullmatch(lines[1])
        assert place, lines[0]
        assert event, lines[1]
        assert lines[2].startswith(b"data: {"), lines[2]
        data = json.loads(lines[2].removeprefix(b"data: "))
        frame = Frame(int(place[1]), int(place[2]), event[1].decode(), data, block + b"\n\n")
        if frame.event == "end":
            assert data["last"] == frame.n, f"an end that counts wrongly: {block!r}"
        else:
            assert data["type"] == frame.event, f"a type that is not the event: {block!r}"
        return frame


def frames_of(raw: bytes) -> list[Frame]:
    """Read a whole stream."""
    reader = FrameReader()
    frames = reader.feed(raw)
    reader.finish()
    return frames


def check_order(frames: Iterable[Frame]) -> None:
    """Check that fences grow, that a fence's numbers neither skip nor repeat, and that nothing follows an end."""
    before: Frame | None = None
    for frame in frames:
        if before is None or frame.fence != before.fence:
            assert before is None or frame.fence > before.fence, f"{frame.id} after {before.id}"
        else:
            assert frame.n == before.n + 1, f"{frame.id} after {before.id}"
            assert before.event != "end", f"{frame.id} after the end {before.id}"
        before = frame


def check_whole(frames: Sequence[Frame]) -> None:
    """Check one operation's frames: from the first to its `end`, under one fence."""
    assert frames, "no frames"
    check_order(frames)
    assert [frame.n for frame in frames] == list(range(1, len(frames) + 1))
    assert [frame.event for frame in frames].count("end") == 1
    assert frames[-1].event == "end"


def text_of(frames: Iterable[Frame]) -> str:
    """Give the text that the deltas make."""
    return "".join(frame.data["text_delta"] for frame in frames if frame.event == "text_delta")


def only(frames: Iterable[Frame], event: str) -> Frame:
    """Give the one frame of that type."""
    found = [frame for frame in frames if frame.event == event]
    assert len(found) == 1, f"{len(found)} frames of type {event}"
    return found[0]
