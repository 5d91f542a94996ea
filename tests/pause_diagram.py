"""Draws the life of a pause from its table, into CONTRIBUTING.md: `python -m tests.pause_diagram`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app.domain.pause import TRANSITIONS, PauseEvent, PauseState

DOCUMENT: Final = Path(__file__).parents[1] / "CONTRIBUTING.md"
BEGIN: Final = "<!-- the life of a pause, drawn from app/domain/pause.py by tests/pause_diagram.py -->\n"
END: Final = "<!-- the end of the drawing -->\n"


def diagram(transitions: Mapping[tuple[PauseState, PauseEvent], PauseState] = TRANSITIONS) -> str:
    """Give the table as a Mermaid diagram, one arrow for each pair of states."""
    events: dict[tuple[PauseState, PauseState], list[str]] = {}
    for (before, event), after in transitions.items():
        events.setdefault((before, after), []).append(event.value)
    arrows = [f"    {before.value} --> {after.value}: {', '.join(names)}" for (before, after), names in events.items()]
    ends = [state for state in PauseState if all(before is not state for before, _ in transitions)]
    lines = ["stateDiagram-v2", f"    [*] --> {PauseState.HELD.value}", *arrows]
    return "\n".join([*lines, *(f"    {state.value} --> [*]" for state in ends)]) + "\n"


def drawn(document: str) -> str:
    """Give the document with the diagram of today between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}```mermaid\n{diagram()}```\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(drawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
