"""Guards that watch other agents' streams."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.guardrails.active import activate
from app.guardrails.asking import Asking
from app.guardrails.base import GuardConfig
from app.guardrails.cross_agent import Observer, watched
from tests.guardrails.acting import CONTEXT, Acting, blocks, breaks, replaces, sanitizer, streaming

CHUNKS: list[dict[str, Any]] = [
    {"type": "text_delta", "text_delta": "a bad", "is_final": False, "stream_id": "s"},
    {"type": "tool_call_request", "tool_calls": [], "is_final": False, "stream_id": "s"},
    {"type": "final_response", "final_response_text": "a bad word", "is_final": True, "stream_id": "s"},
]


async def watch(*observers: Observer, agent: str = "poet") -> list[dict[str, Any]]:
    async def chunks() -> AsyncIterator[dict[str, Any]]:
        for chunk in CHUNKS:
            yield chunk

    return [chunk async for chunk in watched(chunks(), agent, observers, CONTEXT, Asking())]


async def test_an_observer_that_may_not_interrupt_only_flags() -> None:
    for guard in (Acting(blocks("bad"), "g"), sanitizer(replaces("bad", "good"), "g")):
        seen = await watch(Observer(activate(guard)))
        assert [chunk["type"] for chunk in seen] == [chunk["type"] for chunk in CHUNKS]
        assert seen[-1]["final_response_text"] == "a bad word"
        assert seen[-1]["metadata"]["guardrail"]["output"][0]["action"] == "flag"
        assert "metadata" not in CHUNKS[-1]


async def test_an_observer_that_may_interrupt_blocks_and_changes() -> None:
    blocked = await watch(Observer(activate(Acting(blocks("word"), "g")), may_interrupt=True))
    assert [chunk["type"] for chunk in blocked] == ["text_delta", "tool_call_request", "error"]
    assert (blocked[-1]["code"], blocked[-1]["stream_id"]) == ("NOT_THAT", "s")
    changed = await watch(Observer(activate(sanitizer(replaces("bad", "good"), "g")), may_interrupt=True))
    assert changed[-1]["final_response_text"] == "a good word"


@pytest.mark.parametrize(("wants", "kinds"), [(True, ["text_delta"]), (False, [])])
async def test_pieces_are_shown_to_guards_that_want_them(
    wants: bool,  # noqa: FBT001 - a parameter of the test
    kinds: list[str],
) -> None:
    guard = streaming(blocks("nothing")) if wants else Acting(blocks("nothing"))
    await watch(Observer(activate(guard)))
    assert guard.kinds == [*kinds, "tool_call_request", "final_response"]


async def test_only_the_named_agents_are_watched_and_all_when_none_is_named() -> None:
    for agents, asked in (((), 2), (["poet"], 2), (["critic"], 0)):
        guard = Acting(blocks("nothing"))
        await watch(Observer(activate(guard), agents))
        assert len(guard.asked) == asked


async def test_a_failing_observer_is_skipped() -> None:
    seen = await watch(Observer(activate(Acting(breaks, "g", GuardConfig())), may_interrupt=True))
    assert seen == CHUNKS
