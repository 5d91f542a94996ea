"""Frames of a Fermata stream, read from bytes however they are cut."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its id (None for one that can't be read on from), its type, and its JSON object."""

    id: str | None
    type: str
    data: dict[str, Any]


class EventReader:
    """Takes bytes and gives the events that they complete; comments are dropped."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Take bytes; give whole events."""
        *frames, self._rest = (self._rest + chunk).split(b"\n\n")
        return [event for frame in frames if (event := _event(frame)) is not None]


def _event(frame: bytes) -> Event | None:
    fields: dict[str, str] = {}
    for line in frame.decode().split("\n"):
        name, colon, value = line.partition(": ")
        if colon and name:
            fields[name] = value
    if "data" not in fields:
        return None
    return Event(fields.get("id"), fields.get("event", "message"), json.loads(fields["data"]))
