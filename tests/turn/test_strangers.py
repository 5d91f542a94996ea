"""What is one caller's is not there for another: neither for another user, nor for one of the same name elsewhere."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.domain.errors import NotFoundError
from app.domain.turn import Caller, Pause, ResultsInput
from app.turn.facade.service import AgentRuntime
from tests.stage import ADA, CHAT, WEATHER, Stage, result
from tests.turn.pausing import asks_for, tables

OWNER = Caller("ada", "acme")
STRANGERS = [Caller("ada", "other"), ADA, Caller("ben", "acme")]
each_stranger = pytest.mark.parametrize("stranger", STRANGERS, ids=["elsewhere", "of no organization", "another user"])


@dataclass(frozen=True, slots=True)
class Mine:
    """What the owner has, as somebody asks for it."""

    runtime: AgentRuntime
    pause: Pause

    def results(self, caller: Caller, **more: Any) -> ResultsInput:
        return ResultsInput(caller, (result("c1"),), **more)


CALLS: dict[str, Callable[[Mine, Caller], Awaitable[Any]]] = {
    "conversation": lambda mine, caller: mine.runtime.get_conversation(caller, CHAT),
    "messages": lambda mine, caller: mine.runtime.list_messages(caller, CHAT, cursor=None, limit=9, descending=False),
    "pending request": lambda mine, caller: mine.runtime.pending_request(caller, CHAT),
    "rename": lambda mine, caller: mine.runtime.update_conversation(caller, CHAT, title="Mine", metadata=None),
    "erase": lambda mine, caller: mine.runtime.delete_conversation(caller, CHAT),
    "usage": lambda mine, caller: mine.runtime.conversation_usage(caller, CHAT),
    "trace": lambda mine, caller: mine.runtime.session_trace(caller, CHAT, cursor=None, limit=9, descending=False),
    "stream": lambda mine, caller: mine.runtime.stream_state(caller, mine.pause.stream_id),
    "events": lambda mine, caller: mine.runtime.open_events(caller, mine.pause.stream_id, None, follow=False),
    "usage of a stream": lambda mine, caller: mine.runtime.stream_usage(caller, mine.pause.stream_id),
    "prompts": lambda mine, caller: mine.runtime.stream_prompts(caller, mine.pause.stream_id),
    "cancel": lambda mine, caller: mine.runtime.cancel(caller, mine.pause.stream_id),
    "results": lambda mine, caller: mine.runtime.pass_results(mine.results(caller, stream_id=mine.pause.stream_id)),
    "resume": lambda mine, caller: mine.runtime.resume(
        mine.results(caller, conversation_id=CHAT, pause_id=mine.pause.pause_id)
    ),
}


async def owned(stage: Stage) -> Mine:
    """Let the owner have a conversation that waits for its host."""
    stage.provider.add("Hello.", asks_for("c1"))
    await stage.play("Before.", caller=OWNER)
    await stage.play("What is the weather?", caller=OWNER, tools=[WEATHER])
    pause = await stage.pending(caller=OWNER)
    assert pause is not None
    return Mine(stage.runtime, pause)


@each_stranger
async def test_whatever_a_stranger_names_is_not_found_and_stays_as_it_is(stage: Stage, stranger: Caller) -> None:
    mine = await owned(stage)
    stored = await tables(stage.database)
    for name, ask in CALLS.items():
        with pytest.raises(NotFoundError):
            pytest.fail(f"{name}: {await ask(mine, stranger)}")
    assert await tables(stage.database) == stored


@each_stranger
async def test_a_stranger_is_shown_nothing_in_lists(stage: Stage, stranger: Caller) -> None:
    await owned(stage)
    runtime = stage.runtime
    for caller, count in ((OWNER, 1), (stranger, 0)):
        assert len((await runtime.list_conversations(caller, None, 9)).items) == count
        assert len((await runtime.pending_requests(caller, None, 9)).items) == count


async def test_the_owner_finds_all_of_it_and_resumes(stage: Stage) -> None:
    mine = await owned(stage)
    stage.provider.add("Warm.")
    for name, ask in CALLS.items():
        if name not in {"erase", "cancel", "results", "prompts"}:
            await ask(mine, OWNER)


@each_stranger
async def test_erasing_a_user_erases_nothing_of_a_stranger(stage: Stage, stranger: Caller) -> None:
    mine = await owned(stage)
    stage.provider.add("Hi.")
    await stage.play("My own.", caller=stranger, conversation="my-own")
    assert await stage.runtime.users.erase(stranger) == 1
    assert (await mine.runtime.get_conversation(OWNER, CHAT)).message_count == 4
    assert (await mine.runtime.session_trace(OWNER, CHAT, cursor=None, limit=9, descending=False)).items
