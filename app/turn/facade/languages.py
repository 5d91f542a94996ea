"""Settles a turn's language before it starts (R13): from the host's words, or from what its text looks like."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final, Protocol

import structlog

from app.domain.language import Detected, LanguagePolicy, negotiate
from app.domain.messages import text_of
from app.domain.turn import TurnInput

PATIENCE_SECONDS: Final = 0.5
"""How long a turn waits for a detector, which may still be loading its model: that turn goes without."""

WARMING: Final = "This is looked at so that the detector is ready."

LEAST_CONFIDENCE: Final = 0.6
LOOKED_AT: Final = 2000
"""How many characters of an input a detector is shown."""


class Detector(Protocol):
    """Tells which languages a text may be in, the likeliest first; may take its time, and is called in a thread."""

    def detect(self, text: str) -> Sequence[Detected]: ...


class Languages:
    """Settles languages; without a policy no turn has one."""

    def __init__(self, policy: LanguagePolicy | None, make: Callable[[], Detector] | None = None) -> None:
        """`make` makes the detector when it is first needed."""
        self._policy = policy
        self._make = make
        self._making = Lock()
        self._detector: Detector | None = None
        self._log = structlog.get_logger(__name__)

    async def settle(self, turn: TurnInput) -> TurnInput:
        """Give the turn with its language. A detector that fails or is slow only means that nothing was detected."""
        policy = self._policy
        if policy is None:
            return turn
        detected: Sequence[Detected] = turn.detected_languages
        if not turn.language_hint and not detected and policy.detect:
            detected = await self._detected(text_of(turn.input)[:LOOKED_AT])
        settled = negotiate(policy, hint=turn.language_hint, detected=detected, target=turn.target_language)
        return replace(turn, language=settled)

    @property
    def detects(self) -> bool:
        """Tell whether texts are looked at, so that there is something to make ready."""
        return self._policy is not None and self._policy.detect and self._make is not None

    async def warm(self) -> None:
        """Make the detector ready, so that the first turn need not go without; a failure is only logged."""
        looking = asyncio.create_task(asyncio.to_thread(self._look, WARMING))
        looking.add_done_callback(self._looked)
        await asyncio.wait({looking})

    async def _detected(self, text: str) -> Sequence[Detected]:
        if self._make is None or not text.strip():
            return ()
        looking = asyncio.create_task(asyncio.to_thread(self._look, text))
        looking.add_done_callback(self._looked)
        await asyncio.wait({looking}, timeout=PATIENCE_SECONDS)
        if not looking.done() or looking.cancelled() or looking.exception() is not None:
            return ()
        return [found for found in looking.result() if found.confidence >= LEAST_CONFIDENCE]

    def _look(self, text: str) -> Sequence[Detected]:
        with self._making:
            if self._detector is None and self._make is not None:
                self._detector = self._make()
        return self._detector.detect(text) if self._detector is not None else ()

    def _looked(self, task: asyncio.Task[Sequence[Detected]]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log.warning("language.not_detected", error=repr(task.exception()))
