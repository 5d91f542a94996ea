"""A provider that follows a script, for tests of everything above it. It ships, so that hosts can test with it too."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from app.domain.errors import ProviderError
from app.domain.messages import ToolCall
from app.domain.usage import Usage
from app.providers.base import (
    CallsReady,
    Finish,
    ModelRequest,
    ProviderEvent,
    TextPiece,
    UsageReport,
)


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


Piece = str | ToolCall | Usage | ProviderEvent | ProviderError | Hold
"""A text, a call, a usage report, any event, an error to raise, or a point to wait at."""

Step = Sequence[Piece] | str | Callable[[ModelRequest], Sequence[Piece] | str]
"""One request's answer, or what makes it of the request. Calls that stand together are given together."""


class ScriptedProvider:
    """Answers each request with the next step of its script, and keeps a deep copy of each request.

    A step without a `Finish` ends with the one that fits. `assert_used_up` fails when steps are left, and when more
    was asked than the script has.
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

    def assert_used_up(self) -> None:
        """Raise `ScriptError` unless the script was followed to its end and not further."""
        if self._too_many:
            message = f"The script has {len(self._steps)} steps and was asked {self._too_many} times more."
            raise ScriptError(message)
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


def _events(pieces: Sequence[Piece]) -> Iterable[ProviderEvent | ProviderError | Hold]:
    calls: list[ToolCall] = []
    called = finished = False
    for piece in pieces:
        if isinstance(piece, ToolCall):
            calls.append(piece)
            continue
        if calls:
            yield CallsReady(tuple(calls))
            calls, called = [], True
        if isinstance(piece, str):
            yield TextPiece(piece)
        elif isinstance(piece, Usage):
            yield UsageReport(piece)
        else:
            called = called or isinstance(piece, CallsReady)
            finished = finished or isinstance(piece, Finish)
            yield piece
    if calls:
        yield CallsReady(tuple(calls))
        called = True
    if not finished:
        yield Finish("tool_calls" if called else "stop")
