"""Random conversations: as the service stores them, and as nothing should ever have stored them."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from hypothesis import strategies as st

from app.domain.messages import Entry, Message, ToolCall, load
from app.providers.base import ModelRequest
from app.providers.compat import ChatCompat
from app.providers.dialects.chat.body import chat_body
from tests.oracle import check_request

PROMPT = Message("system", "You help.")
INPUT = Message("user", "And now?", metadata={"source": "input"})
TEXTS = st.sampled_from(["Hello", "Ünïcödé 日本語 😀", "x" * 300, '{"a": [1, 2]}', "null", "\\u0416"])
IMAGE = [{"type": "text", "text": "Look"}, {"type": "image_url", "url": "https://example.org/a.png"}]


def broken_rules(messages: Sequence[Message]) -> list[str]:
    """Give what a strict server finds wrong in the messages, as they are sent behind a system prompt."""
    body = chat_body(ModelRequest(model="m", messages=(PROMPT, *messages)), ChatCompat())
    return check_request(body["messages"])


def calls_of(name: str, number: int) -> tuple[ToolCall, ...]:
    """Make calls with ids of their own."""
    return tuple(ToolCall(f"{name}_{index}", "look_up", {"n": index}) for index in range(number))


def answer(call: ToolCall, text: str = "found") -> Message:
    """Make a call's answer."""
    return Message("tool", text, tool_call_id=call.id, name=call.name)


def round_of(name: str, number: int, *, answered: int | None = None) -> list[Message]:
    """Make a round of `number` calls, the first `answered` of which have their answers."""
    calls = calls_of(name, number)
    return [Message("assistant", None, tool_calls=calls), *map(answer, calls[:answered])]


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """Give the messages positions from 1."""
    return [Entry(position, message) for position, message in enumerate(messages, start=1)]


@st.composite
def stored(draw: st.DrawFn, *, summaries: bool = True, least: int = 0) -> list[Message]:
    """Give what a conversation can hold: parallel rounds, failed and waiting ones, images, every role; input last."""
    names = (f"call{number}" for number in count())
    roles = ["user", "user", "assistant", "assistant", "round", "round", "waiting", "image", "system"]
    kinds = draw(st.lists(st.sampled_from([*roles, "summary"] if summaries else roles), min_size=least, max_size=40))
    messages: list[Message] = []
    for kind in kinds:
        text = draw(TEXTS)
        match kind:
            case "round":
                calls = calls_of(next(names), draw(st.integers(1, 5)))
                answers = [answer(call, text) for call in draw(st.permutations(calls))]
                failed = draw(st.integers(0, len(calls)))
                answers[:failed] = [
                    Message("tool", "It failed.", tool_call_id=message.tool_call_id, name=message.name, is_error=True)
                    for message in answers[:failed]
                ]
                messages += [Message("assistant", draw(st.none() | TEXTS), tool_calls=calls), *answers]
            case "waiting":
                number = draw(st.integers(1, 4))
                messages += round_of(next(names), number, answered=draw(st.integers(0, number - 1)))
            case "image":
                messages.append(Message("user", IMAGE))
            case _:
                messages.append(Message(load([{"role": kind}])[0].role, text))
    return [*messages, INPUT]


@st.composite
def messy(draw: st.DrawFn) -> list[Message]:
    """Give a list that breaks every rule: orphans, duplicates, ids used twice, messages that say nothing."""
    ids = st.sampled_from(["a", "b", "c", "a_2"])
    calls = st.lists(ids.map(lambda name: ToolCall(name, "look_up", {})), max_size=3).map(tuple)
    content: st.SearchStrategy[Any] = st.none() | TEXTS | st.just("") | st.just(" ") | st.just([]) | st.just(IMAGE)
    tools = st.builds(lambda name, text: Message("tool", text, tool_call_id=name), ids, TEXTS)
    assistants = st.builds(lambda text, made: Message("assistant", text, tool_calls=made), content, calls)
    others = st.builds(Message, st.sampled_from(["user", "system", "summary", "error", "thought"]), content)
    return draw(st.lists(st.one_of(tools, tools, assistants, assistants, others), max_size=25))
