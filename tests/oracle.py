"""What a strict model server refuses in a list of messages; the same rules for every test that sends one."""

from collections.abc import Mapping, Sequence
from typing import Any

Wire = Mapping[str, Any]


def check_request(messages: Sequence[Wire]) -> list[str]:
    """Give the rules that a Chat Completions message list breaks, one sentence each; none for a good request."""
    broken: list[str] = []
    spoken = [message for message in messages if message.get("role") not in {"system", "developer"}]
    if not spoken:
        broken.append("there is no message besides system messages")
    elif spoken[0].get("role") != "user":
        broken.append(f"the first message after the system messages is from {spoken[0].get('role')}, not from the user")
    seen: set[str] = set()
    place = 0
    while place < len(messages):
        message = messages[place]
        broken.extend(f"message {place}: {sentence}" for sentence in _own_faults(message))
        place += 1
        if message.get("role") == "assistant" and message.get("tool_calls"):
            place = _round(messages, place, seen, broken)
        elif message.get("role") == "tool":
            broken.append(
                f"message {place - 1}: a result for {message.get('tool_call_id')!r} without its call before it"
            )
    return broken


def _round(messages: Sequence[Wire], begin: int, seen: set[str], broken: list[str]) -> int:
    """Check the results that follow the calls of the message before `begin`; give the place after them."""
    at = begin - 1
    asked = [str(call.get("id")) for call in messages[at]["tool_calls"]]
    for call_id in asked:
        if call_id in seen:
            broken.append(f"message {at}: the call id {call_id!r} was used before")
        seen.add(call_id)
    place = begin
    answered: list[str] = []
    while place < len(messages) and messages[place].get("role") == "tool":
        broken.extend(f"message {place}: {sentence}" for sentence in _own_faults(messages[place]))
        call_id = str(messages[place].get("tool_call_id"))
        if call_id in answered:
            broken.append(f"message {place}: a second result for {call_id!r}")
        elif call_id not in asked:
            broken.append(f"message {place}: a result for {call_id!r} without its call before it")
        answered.append(call_id)
        place += 1
    broken.extend(
        f"message {at}: the call {call_id!r} has no result right after it"
        for call_id in asked
        if call_id not in answered
    )
    known = [call_id for call_id in answered if call_id in asked]
    if known != [call_id for call_id in asked if call_id in known] and len(set(known)) == len(known):
        broken.append(f"message {at}: the results are not in the order of the calls")
    return place


def _own_faults(message: Wire) -> list[str]:
    """Give what is wrong with one message by itself."""
    role, content = message.get("role"), message.get("content")
    if role not in {"system", "developer", "user", "assistant", "tool"}:
        return [f"the role {role!r} is not known"]
    faults = []
    if role == "assistant":
        if not content and not message.get("tool_calls"):
            faults.append("an assistant message without text and without calls")
        for call in message.get("tool_calls") or ():
            faults.extend(_call_faults(call))
    elif role == "tool":
        if not message.get("tool_call_id"):
            faults.append("a result without the id of its call")
        if not isinstance(content, str | list):
            faults.append("a result without content")
    elif not content:
        faults.append(f"a {role} message without content")
    return faults


def _call_faults(call: Wire) -> list[str]:
    faults = []
    function = call.get("function")
    told: Wire = function if isinstance(function, Mapping) else {}
    if not call.get("id"):
        faults.append("a call without an id")
    if not told.get("name"):
        faults.append("a call without a name")
    if not isinstance(told.get("arguments"), str):
        faults.append("a call whose arguments are no JSON text")
    return faults
