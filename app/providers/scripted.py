"""A provider that follows a script, for tests of everything above it. It ships, so that hosts can test with it too."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import field
from typing import Any, Self

from app.domain.errors import ProviderError
from app.domain.frozen import dataclass
from app.domain.messages import ToolCall
from app.domain.usage import Usage
from app.providers.base import (
    CallPiece,
    CallsReady,
    CallStarted,
    Finish,
    ModelRequest,
    ProviderEvent,
    TextPiece,
    UsageReport,
)
from app.providers.wire import dumps_text


class ScriptError(AssertionError):
    """The script and what was asked do not fit; the test that wrote the script is to fail."""


@dataclass(slots=True)
class Hold:
    """A point at which the answer waits: `reached` is set when it is there, `release` lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def release(self) -> None:
        """Let the answer go on; may be called before it gets here."""
        self.left.set()

    async def wait(self) -> None:
        """Wait for the release; `closed` tells afterwards that the reader went away first."""
        self.reached.set()
        try:
            await self.left.wait()
        except BaseException:
            self.closed = True
            raise


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds of silence."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Split:
    """A call whose arguments come in so many pieces before it is ready. A `broken` one is begun and never ready."""

    call: ToolCall
    pieces: int = 2
    broken: bool = False


Piece = str | ToolCall | Split | Usage | ProviderEvent | ProviderError | Hold | Pause
"""A text, a call, a usage report, any event, an error to raise, a point to wait at, or silence.

A `Usage` is the running total, so the last one counts; where it stands last, it is the tail after the answer. A `Hold`
that nobody releases is a model that hangs.
"""

Step = Sequence[Piece] | str | Callable[[ModelRequest], Sequence[Piece] | str]
"""One request's answer, or what makes it of the request. Calls that stand together are given together."""


class ScriptedProvider:
    """Answers each request with the next step of its script, and keeps a deep copy of each request.

    A step without a `Finish` ends with the one that fits. As a context manager it fails at its end when steps are
    left, or when more was asked than the script has; `assert_used_up` does the same by hand, and
    `assert_not_overdrawn` the second alone.
    """

    def __init__(self, script: Iterable[Step] = (), name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._steps: list[Step] = list(script)
        self._next = 0
        self._too_many = 0

    def add(self, *steps: Step) -> None:
        """Append steps to the script."""
        self._steps.extend(steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:  # what went wrong inside says more
            self.assert_used_up()

    def assert_not_overdrawn(self) -> None:
        """Raise `ScriptError` when more was asked than the script has."""
        if self._too_many:
            message = f"The script has {len(self._steps)} steps and was asked {self._too_many} times more."
            raise ScriptError(message)

    def assert_used_up(self) -> None:
        """Raise `ScriptError` unless the script was followed to its end and not further."""
        self.assert_not_overdrawn()
        if self._next < len(self._steps):
            message = f"{len(self._steps) - self._next} of {len(self._steps)} steps of the script were not asked for."
            raise ScriptError(message)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        """See `Provider.stream`; raises `ScriptError` when there is no step left."""
        self.requests.append(deepcopy(request))
        if self._next >= len(self._steps):
            self._too_many += 1
            message = f"The script has {len(self._steps)} steps and was asked for one more."
            raise ScriptError(message)
        step = self._steps[self._next]
        self._next += 1
        told = step(request) if callable(step) else step
        pieces: Sequence[Piece] = [told] if isinstance(told, str) else told
        output = False
        usage: Usage | None = None
        for piece in _events(pieces):
            match piece:
                case Hold():
                    await piece.wait()
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case ProviderError():
                    piece.after_output = output
                    piece.usage = piece.usage or usage
                    raise piece
                case UsageReport(told_usage):
                    usage = told_usage
                    yield piece
                case _:
                    output = True
                    yield piece

    async def aclose(self) -> None:
        """See `Provider.aclose`; there is nothing to give back."""


def call(name: str, arguments: Mapping[str, Any] | None = None, *, id: str) -> ToolCall:  # noqa: A002 - the wire's word
    """Make a call for a script."""
    return ToolCall(id=id, name=name, arguments=dict(arguments or {}))


def _events(pieces: Sequence[Piece]) -> Iterator[ProviderEvent | ProviderError | Hold | Pause]:
    ready: list[ToolCall] = []
    place = 0
    called = finished = False
    for piece in pieces:
        if isinstance(piece, Split):
            yield from _split(piece, place)
            place += 1
        if isinstance(piece, ToolCall):
            place += 1
            ready.append(piece)
        elif isinstance(piece, Split):
            ready += [] if piece.broken else [piece.call]
        else:
            if ready:
                yield CallsReady(tuple(ready))
                ready, called = [], True
            called = called or isinstance(piece, CallsReady)
            finished = finished or isinstance(piece, Finish)
            yield _event(piece)
    if ready:
        yield CallsReady(tuple(ready))
        called = True
    if not finished:
        yield Finish("tool_calls" if called else "stop")


def _event(
    piece: str | Usage | ProviderEvent | ProviderError | Hold | Pause,
) -> ProviderEvent | ProviderError | Hold | Pause:
    if isinstance(piece, str):
        return TextPiece(piece)
    return UsageReport(piece) if isinstance(piece, Usage) else piece


def _split(split: Split, place: int) -> Iterator[ProviderEvent]:
    """Give a call as it comes over the wire: its name, then its arguments in pieces of about one length."""
    made = split.call
    yield CallStarted(place, made.name, made.id)
    text = made.invalid if made.invalid is not None else dumps_text(dict(made.arguments))
    size = max(1, -(-len(text) // split.pieces))
    for begin in range(0, len(text), size):
        yield CallPiece(place, text[begin : begin + size])
