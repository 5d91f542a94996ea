"""Sessions as tests look at them: a GMI that keeps a mood, a trace read by pages, the prompt, a persona of a file."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from app.domain.chunks import FinalResponseMarker, GmiChunk, GmiOutput
from app.domain.session import SessionState
from app.domain.turn import Caller
from app.domain.views import TraceEntryView
from app.turn.gmi.base import GmiTurnInput
from tests.stage import ADA, CHAT, Stage, wire
from tests.turn.playing import Playing, end


class Noting(Playing):
    """A host's GMI that keeps a mood, and notes what it does. `found` is what each turn found of its session."""

    def __init__(self, *moods: str, notes: int = 0) -> None:
        super().__init__(*([end()] for _ in range(20)))
        self.moods = list(moods)
        self.notes = notes
        self.found: list[SessionState] = []
        self.told: list[list[Any]] = []

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        self.found.append(turn.session.state)
        self.told.append([message.content for message in turn.messages][1:])
        if self.moods:
            turn.session.change(mood=self.moods.pop(0), task_context={"turns": len(self.found)})
        for number in range(self.notes):
            turn.session.trace.note("warning", f"note {number}")
        yield FinalResponseMarker()
        yield GmiOutput(is_final=True, response_text="Done.", history=turn.messages)


async def trace(stage: Stage, session: str = CHAT, caller: Caller = ADA, most: int = 200) -> list[TraceEntryView]:
    """Give a session's whole trace, read by pages."""
    found: list[TraceEntryView] = []
    cursor: str | None = None
    while True:
        page = await stage.runtime.session_trace(caller, session, cursor=cursor, limit=most, descending=False)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def kinds(entries: list[TraceEntryView]) -> list[str]:
    return [entry.type for entry in entries]


def prompt(stage: Stage) -> str:
    """Give the system's prompt of the last request."""
    (first,) = [message for message in wire(stage.provider.requests[-1]) if message["role"] == "system"]
    return str(first["content"])


def persona(folder: Path, **more: Any) -> dict[str, Any]:
    """Write one persona into the folder and give the settings that select it."""
    lines = [f"{name}: {value}" for name, value in more.items()]
    (folder / "p.yaml").write_text("\n".join(["id: p", "name: P", "system_prompt: Be brief.", *lines]))
    return {"personas_dir": folder, "default_persona_id": "p"}
