"""Puts the pieces of tool calls together, however a server numbers and names them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from app.domain.frozen import dataclass
from app.domain.messages import ToolCall
from app.domain.text import Growing
from app.providers.base import CallPiece, CallStarted
from app.providers.wire import dumps_text, join_surrogates, parse_arguments


@dataclass(slots=True)
class _Slot:
    place: int
    id: str | None = None
    name: str | None = None
    arguments: Growing = field(default_factory=Growing)
    extra: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    begun: bool = False

    def told(self, piece: str) -> Iterator[CallStarted | CallPiece]:
        """Give the events of a piece; until the call has a name, its pieces wait."""
        if not self.name:
            return
        if not self.begun:
            self.begun = True
            yield CallStarted(self.place, join_surrogates(self.name), self.id)
            piece = str(self.arguments)
        if piece:
            yield CallPiece(self.place, join_surrogates(piece))

    def looks_complete(self) -> bool:
        text = str(self.arguments)
        return self.whole or (text[:1] == "{" and text.rstrip()[-1:] == "}" and parse_arguments(text) is not None)


class CallAssembler:
    """Collects the deltas of one response and gives each call once.

    Known habits: all parallel calls under index 0, indexes that are missing or begin at 1, ids that are missing or come
    later than the name, a name in every delta, arguments as an object, as nothing or not at all.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._given = 0
        self._ids: set[str] = set()

    @property
    def begun(self) -> bool:
        """Whether any piece of a call was seen."""
        return bool(self._slots)

    def push(self, delta: Mapping[str, Any]) -> list[CallStarted | CallPiece]:
        """Take one entry of `tool_calls`; give what it begins and adds."""
        function = delta.get("function")
        told: Mapping[str, Any] = function if isinstance(function, Mapping) else {}
        given_id = str(delta["id"]) if delta.get("id") else None
        name = str(told["name"]) if told.get("name") else None
        arguments = told.get("arguments")
        index = delta.get("index")
        slot = self._slot(index if isinstance(index, int) else None, given_id, name, has_arguments=bool(arguments))
        slot.id = slot.id or given_id
        slot.name = slot.name or name
        piece = ""
        if isinstance(arguments, str):
            if piece := arguments:
                slot.arguments.add(piece)
        elif arguments is not None:
            piece = "" if slot.whole else dumps_text(arguments)
            slot.arguments = Growing(dumps_text(arguments))
            slot.whole = True
        extra = delta.get("extra_content")
        if isinstance(extra, Mapping):
            slot.extra["extra_content"] = dict(extra)
        return list(slot.told(piece))

    def take(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Give the calls that were not given yet, in the model's order.

        With `cut` the answer hit its length limit: what is not a whole object then becomes an invalid call, and never
        a call with empty arguments. Pieces that never got a name are no call.
        """
        fresh = [slot for slot in self._slots[self._given :] if slot.name]
        self._given = len(self._slots)
        return tuple(self._call(slot, cut=cut) for slot in fresh)

    def _slot(self, index: int | None, given_id: str | None, name: str | None, *, has_arguments: bool) -> _Slot:
        if given_id is not None:
            found = next((slot for slot in self._candidates(index) if slot.id == given_id), None)
        else:
            found = None
        if found is None:
            last = self._by_index.get(index) if index is not None else (self._slots[-1] if self._slots else None)
            if last is not None and _continues(last, given_id, name, has_arguments=has_arguments):
                found = last
        if found is None:
            found = _Slot(len(self._slots))
            self._slots.append(found)
        if index is not None:
            self._by_index[index] = found
        return found

    def _candidates(self, index: int | None) -> list[_Slot]:
        if index is None:
            return self._slots
        other = {id(slot) for number, slot in self._by_index.items() if number != index}
        return [slot for slot in self._slots if id(slot) not in other]

    def _call(self, slot: _Slot, *, cut: bool) -> ToolCall:
        call_id = slot.id if slot.id and slot.id not in self._ids else self._new_id()
        self._ids.add(call_id)
        text = str(slot.arguments)
        nothing = text.strip() in {"", "null"}
        arguments = ({} if not cut else None) if nothing else parse_arguments(text)
        return ToolCall(
            id=call_id,
            name=join_surrogates(slot.name or ""),
            arguments=arguments or {},
            invalid=join_surrogates(text) if arguments is None else None,
            extra=slot.extra or None,
        )


def _continues(slot: _Slot, given_id: str | None, name: str | None, *, has_arguments: bool) -> bool:
    """Tell whether a delta without a known id goes on with this call rather than beginning another."""
    if given_id is not None and slot.id is not None:
        return False
    if name is None or slot.name is None:
        return True
    if name != slot.name:
        return not slot.arguments
    return not (has_arguments and slot.looks_complete())
