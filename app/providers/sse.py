"""Server-sent events from bytes: bytes in, (event, data) out; no I/O, no JSON, no text decoding.

Lines end at LF, CR LF or CR and at nothing else, so a JSON string that holds U+2028 or U+0085 stays whole, and since
an event is cut before it is decoded, a character that is split between two reads stays whole too.
"""

from typing import Final

RawEvent = tuple[str, bytes]
DEFAULT_LIMIT: Final = 16 * 1024 * 1024

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 10
_CR: Final = 13
_COLON: Final = 58
_TELLING: Final = frozenset({b"data", b"error"})


class EventTooLargeError(ValueError):
    """One event is larger than the limit; `before` has the events that were whole before it."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self.before: list[RawEvent] = []


class SseSplitter:
    """Splits a byte stream into events, however the bytes are cut.

    An event without data (a keep-alive, an `id:` or `retry:` alone, an empty `data:`) is dropped. Event names that are
    not UTF-8 are read with replacement. A field `error`, which some servers send in the place of an event of that name,
    is read as one. `feed` and `end` raise `EventTooLargeError`.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._after_cr = False
        self._begun = False
        self._event = ""
        self._data: list[bytes] = []
        self._data_size = 0

    @property
    def held(self) -> int:
        """Bytes of an event that is not complete; a comment counts as none, so it is no sign of progress."""
        if self._tail and self._tail[0][:1] == b":":
            return self._data_size
        return self._data_size + self._tail_size

    @property
    def _amid(self) -> bool:
        """Whether bytes of the chunks before belong to what comes next."""
        return bool(self._tail or self._data or self._event or self._after_cr)

    def feed(self, chunk: bytes) -> list[RawEvent]:
        """Take bytes; give the events that they complete."""
        usual = None if self._amid else _usual(chunk, self._limit)
        if usual is not None:
            self._begun = True
            return usual
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if not chunk:
            return []
        if b"\n" not in chunk and b"\r" not in chunk:
            self._keep(chunk)
            return []
        if self._tail:
            chunk = b"".join((*self._tail, chunk))
            self._tail.clear()
            self._tail_size = 0
        lines = chunk.splitlines()
        last = chunk[-1]
        self._after_cr = last == _CR
        rest = b"" if last in (_LF, _CR) else lines.pop()
        return self._read(lines, rest)

    def end(self) -> list[RawEvent]:
        """Tell that no more bytes come; give the last event although its blank line is missing."""
        lines = [b"".join(self._tail)] if self._tail else []
        self._tail.clear()
        self._tail_size = 0
        return self._read([*lines, b""])

    def _keep(self, rest: bytes) -> None:
        self._tail.append(rest)
        self._tail_size += len(rest)
        if self._tail_size + self._data_size > self._limit:
            raise EventTooLargeError

    def _read(self, lines: list[bytes], rest: bytes = b"") -> list[RawEvent]:
        """Read whole lines, and keep the `rest`, which is none yet."""
        if not self._begun and lines:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[RawEvent] = []
        try:
            for line in lines:
                if not line:
                    self._dispatch(events)
                elif line[0] != _COLON:
                    self._field(line)
            if rest:
                self._keep(rest)
        except EventTooLargeError as error:
            error.before = events
            raise
        return events

    def _dispatch(self, events: list[RawEvent]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            if data.strip():
                events.append((self._event, data))
            self._data.clear()
            self._data_size = 0
        self._event = ""

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"error":
            self._event = "error"
        if name in _TELLING:
            self._data.append(value)
            self._data_size += len(value)
            if self._data_size > self._limit:
                raise EventTooLargeError
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")


def _usual(chunk: bytes, limit: int) -> list[RawEvent] | None:
    """Read what nearly every chunk is: whole events, each with a line of data and perhaps one of its name before that.

    None for everything else, which is taken apart line by line.
    """
    if chunk[-2:] != b"\n\n" or b"\r" in chunk or len(chunk) > limit:
        return None
    if chunk[:6] == b"data: " and chunk[6:7] > b" " and chunk.count(b"\n") == 2:  # noqa: PLR2004 - one line, one end
        return [("", chunk[6:-2])]
    events: list[RawEvent] = []
    for lines in chunk[:-2].split(b"\n\n"):
        name, data = "", lines
        if lines[:7] == b"event: ":
            told, _, data = lines[7:].partition(b"\n")
            name = told.decode("utf-8", "replace")
        if data[:6] != b"data: " or data[6:7] <= b" " or b"\n" in data:
            return None
        events.append((name, data[6:]))
    return events
