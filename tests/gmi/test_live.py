"""GMIs that remember, which a host brings: one for each session, and what it is told where nothing else is stored."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.domain.chunks import FinalResponseMarker, GmiChunk, GmiOutput
from app.domain.messages import Message
from app.domain.turn import Caller
from app.turn.gmi.base import Gmi, GmiTurnInput
from app.turn.gmi.live import LiveGmi, LiveGmis
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result, running_stage
from tests.turn.pausing import Answer, by_results, by_resume, codes, held
from tests.turn.playing import end, stop

OTHER = "chat-2"
SESSION = "session-1"
WAYS = pytest.mark.parametrize("way", [by_results, by_resume])


class Own:
    """A host's GMI: plays outputs, and has a layer that learns from what a turn is to be told."""

    def __init__(self, persona_id: str, outputs: list[GmiOutput]) -> None:
        self.instance_id = f"gmi_of_{persona_id}"
        self.persona_id = persona_id
        self.outputs = outputs
        self.asked: list[GmiTurnInput] = []
        self.prepared: list[str] = []
        self.set: list[Any] = []
        self.ends = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.has_ended = False
        self.refuses = False
        self.works = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        self.asked.append(turn)
        self.prepared.append(f"{turn.context.conversation_id}: {turn.messages[-1].content}")
        yield FinalResponseMarker()
        self.works.set()
        await self.may_answer.wait()
        yield self.outputs.pop(0)

    def hydrate_conversation_history(self, messages: Sequence[Message]) -> None:
        if self.refuses:
            raise RuntimeError
        self.set.append([message.content for message in messages])

    def hydrate_turn_context(self, **context: str) -> None:
        self.set.append(context)

    async def shutdown(self) -> None:
        self.ends.set()
        await self.may_end.wait()
        self.has_ended = True


class Makes:
    """Makes the host's GMIs, all of which play the same outputs, one after another."""

    def __init__(self, *outputs: GmiOutput) -> None:
        self.outputs = list(outputs)
        self.made: list[Own] = []
        self.gmis = LiveGmis(self)

    def __call__(self, caller: Caller, session_id: str, persona_id: str) -> Gmi:
        del caller, session_id
        self.made.append(Own(persona_id, self.outputs))
        return self.made[-1]

    def stage(self, database: str, *, persistence: bool) -> AbstractAsyncContextManager[Stage]:
        return running_stage(database, gmis=self.gmis, enable_conversational_persistence=persistence)

    @property
    def told(self) -> list[tuple[str, Any]]:
        """What the last turn was told, without the system's prompt."""
        turn = next(gmi.asked[-1] for gmi in reversed(self.made) if gmi.asked)
        return [(message.role, message.content) for message in turn.messages if message.role != "system"]


async def next_of(items: AsyncIterator[Any]) -> Any:
    return await anext(items)


async def ask(stage: Stage, text: str = "What is the weather?", chat: str = CHAT, **more: Any) -> None:
    await stage.play(text, conversation=chat, session=SESSION, tools=[WEATHER], **more)


# Without conversational persistence -----------------------------------------------------------------------------


@requirement("R128", "R129", "R130", "R135", "R136")
async def test_turns_of_a_session_read_each_other_where_nothing_is_stored(shared_database: str) -> None:
    makes = Makes(end("One."), end("Two."), end("Three."))
    async with makes.stage(shared_database, persistence=False) as stage:
        await ask(stage, "First?")
        await ask(stage, "Second?", OTHER)
        await ask(stage, "Third?")
        assert await stage.messages() == []
    assert len(makes.made) == 1
    assert makes.told == [
        ("user", "First?"),
        ("assistant", "One."),
        ("user", "Second?"),
        ("assistant", "Two."),
        ("user", "Third?"),
    ]


@requirement("R137", "R136")
async def test_with_persistence_on_a_turn_reads_its_own_conversation_alone(shared_database: str) -> None:
    makes = Makes(end("One."), end("Two."))
    async with makes.stage(shared_database, persistence=True) as stage:
        await ask(stage, "First?")
        await ask(stage, "Second?", OTHER)
        gmi = await makes.gmis.acquire(ADA, SESSION, "demo")
    assert makes.told == [("user", "Second?")]
    assert isinstance(gmi, LiveGmi)
    assert [message.content for message in gmi.history] == ["First?", "One.", "Second?", "Two."]


@requirement("R126", "R140")
@WAYS
async def test_a_continuation_goes_on_with_the_gmis_own_history(shared_database: str, way: Answer) -> None:
    makes = Makes(end("Hello."), stop("c1"), end("Mild."))
    async with makes.stage(shared_database, persistence=False) as stage:
        await ask(stage, "Hi.")
        await ask(stage)
        with capture_logs() as logs:
            done = await way(stage, await held(stage), result("c1", "21"))
    assert done[-1]["final_response_text"] == "Mild."
    assert makes.told == [
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "What is the weather?"),
        ("assistant", None),
        ("tool", "21"),
    ]
    assert "gmi.history_shared" not in [log["event"] for log in logs]
    assert makes.made[0].set == []


@requirement("R131", "R132")
@WAYS
async def test_a_continuation_reads_another_conversations_turn_too_and_says_so(
    shared_database: str, way: Answer
) -> None:
    makes = Makes(stop("c1"), end("Other."), end("Mild."))
    async with makes.stage(shared_database, persistence=False) as stage:
        await ask(stage)
        await ask(stage, "Something else?", OTHER)
        with capture_logs() as logs:
            await way(stage, await held(stage), result("c1", "21"))
    assert makes.told == [
        ("user", "Something else?"),
        ("assistant", "Other."),
        ("user", "What is the weather?"),
        ("assistant", None),
        ("tool", "21"),
    ]
    warnings = [log for log in logs if log["event"] == "gmi.history_shared"]
    assert [(log["log_level"], log["conversation_id"]) for log in warnings] == [("warning", CHAT)]
    assert makes.made[0].set == []


@requirement("R133", "R134")
@WAYS
async def test_a_pause_whose_gmi_is_gone_is_refused_and_stays(shared_database: str, way: Answer) -> None:
    makes = Makes(stop("c1"), end("Bye."))
    async with makes.stage(shared_database, persistence=False) as stage:
        await ask(stage)
        pause = await held(stage)
        await makes.gmis.cleanup_inactive(0)
        for _ in range(2):
            assert codes(await way(stage, pause, result("c1"))) == ["SYS_INVALID_STATE"]
            assert await held(stage) == pause
        assert sum(len(gmi.asked) for gmi in makes.made) == 1
        assert (await stage.play("Something else.", session=SESSION))[-1]["final_response_text"] == "Bye."
        assert await stage.pending() is None


# With conversational persistence --------------------------------------------------------------------------------


@requirement("R142", "R143", "R144", "R145", "R147", "R154", "R167", "R183")
@WAYS
@pytest.mark.parametrize("kept", ["alive", "gone"])
async def test_history_and_identity_are_set_from_the_pause_and_the_turn_is_prepared_anew(
    shared_database: str, way: Answer, kept: str
) -> None:
    sources = ({"id": "s1"},)
    makes = Makes(replace(stop("c1"), rag_sources=sources), end("Other."), end("Mild."), end("Fine."))
    async with makes.stage(shared_database, persistence=True) as stage:
        await ask(stage)
        pause = await held(stage)
        await ask(stage, "Something else?", OTHER)
        if kept == "gone":
            await makes.gmis.refresh("demo")
        await way(stage, pause, result("c1", "21"))
        assert makes.told == [("user", "What is the weather?"), ("assistant", None), ("tool", "21")]
        gmi = await makes.gmis.acquire(ADA, SESSION, "demo")

    own = makes.made[-1]
    assert len(makes.made) == (2 if kept == "gone" else 1)
    context = {"session_id": SESSION, "conversation_id": CHAT, "organization_id": ""}
    assert own.set == [["What is the weather?", None], context]
    assert own.prepared[-1] == f"{CHAT}: 21"
    assert own.asked[-1].sources == sources
    assert isinstance(gmi, LiveGmi)
    assert [message.content for message in gmi.history] == ["What is the weather?", None, "21", "Mild."]


@requirement("R146")
async def test_a_history_that_can_not_be_set_refuses_the_results_and_keeps_the_pause(shared_database: str) -> None:
    makes = Makes(stop("c1"), end("Other."), end("Mild."))
    async with makes.stage(shared_database, persistence=True) as stage:
        await ask(stage)
        pause = await held(stage)
        await ask(stage, "Something else?", OTHER)
        own = makes.made[0]

        own.refuses = True
        assert codes(await by_results(stage, pause, result("c1"))) == ["SYS_INTERNAL_SERVER_ERROR"]
        assert await held(stage) == pause
        assert [role for role, _ in await stage.said()] == ["user", "assistant"]
        own.refuses = False
        assert (await by_results(stage, pause, result("c1")))[-1]["final_response_text"] == "Mild."


@requirement("R171", "R172", "R174")
async def test_another_persona_ends_the_sessions_gmi_and_a_continuation_brings_the_paused_one_back(
    shared_database: str, tmp_path: Any
) -> None:
    for name in ("demo", "poet"):
        text = f"id: {name}\nname: {name}\nmodel: scripted:small\nsystem_prompt: You are {name}.\n"
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    makes = Makes(stop("c1"), end("A poem."), end("Mild."))
    async with running_stage(shared_database, gmis=makes.gmis, personas_dir=tmp_path) as stage:
        await ask(stage, persona_id="demo")
        pause = await held(stage)
        await ask(stage, "A poem?", OTHER, persona_id="poet")
        demo, poet = makes.made
        assert (demo.has_ended, poet.has_ended) == (True, False)
        await by_results(stage, pause, result("c1", "21"))
        assert [gmi.persona_id for gmi in makes.made] == ["demo", "poet", "demo"]
        assert poet.has_ended
        assert makes.made[-1].asked[0].messages[0].content == "You are demo."
    assert all(gmi.has_ended for gmi in makes.made)


# The manager ----------------------------------------------------------------------------------------------------


DEACTIVATIONS: dict[str, Callable[[LiveGmis], Coroutine[Any, Any, Any]]] = {
    "refresh": lambda gmis: gmis.refresh("demo"),
    "cleanup": lambda gmis: gmis.cleanup_inactive(0),
    "another persona": lambda gmis: gmis.acquire(ADA, SESSION, "poet"),
}


@requirement("R175", "R176", "R177", "R178", "R179")
@pytest.mark.parametrize("how", DEACTIVATIONS)
async def test_who_asks_while_a_gmi_ends_waits_and_gets_a_new_one(how: str) -> None:
    makes = Makes()
    first = await makes.gmis.acquire(ADA, SESSION, "demo")
    old = makes.made[0]
    old.may_end.clear()
    ending = asyncio.create_task(DEACTIVATIONS[how](makes.gmis))
    await asyncio.wait_for(old.ends.wait(), 20)
    asking = [asyncio.create_task(makes.gmis.acquire(ADA, SESSION, "demo")) for _ in range(3)]
    others = await makes.gmis.acquire(ADA, "session-2", "demo")
    assert not any(one.done() for one in asking)

    old.may_end.set()
    async with asyncio.timeout(20):
        given = [await one for one in asking]
        await ending
    assert old.has_ended
    assert first not in given
    assert others not in given
    assert all(isinstance(gmi, LiveGmi) and gmi.own is not old for gmi in given)
    await makes.gmis.close()


@requirement("R135")
async def test_a_session_has_one_gmi_also_when_many_ask_at_once_and_users_share_none() -> None:
    makes = Makes()
    given = await asyncio.gather(*(makes.gmis.acquire(ADA, SESSION, "demo") for _ in range(5)))
    assert len({id(gmi) for gmi in given}) == 1
    for caller in (Caller("bob"), Caller("ada", "acme")):
        assert await makes.gmis.acquire(caller, SESSION, "demo") is not given[0]
    assert len(makes.made) == 3
    await makes.gmis.close()
    assert all(gmi.has_ended for gmi in makes.made)


async def test_a_gmi_that_does_not_end_holds_nobody_up_for_ever() -> None:
    makes = Makes()
    makes.gmis = LiveGmis(makes, shutdown_seconds=0.01)
    await makes.gmis.acquire(ADA, SESSION, "demo")
    makes.made[0].may_end.clear()
    with capture_logs() as logs:
        await asyncio.wait_for(makes.gmis.close(), 20)
    assert [log["event"] for log in logs] == ["gmi.shutdown_failed"]
    assert await makes.gmis.acquire(ADA, SESSION, "demo") is not None
    await makes.gmis.close()


async def test_a_gmi_remembers_so_many_messages_and_no_answer_without_its_call(shared_database: str) -> None:
    makes = Makes(stop("c1"), *(end(f"{number}.") for number in range(12)))
    async with makes.stage(shared_database, persistence=False) as stage:
        await ask(stage)
        await by_results(stage, await held(stage), result("c1"))
        for number in range(9):
            await ask(stage, f"{number}?")
        gmi = await makes.gmis.acquire(ADA, SESSION, "demo")
        assert isinstance(gmi, LiveGmi)
        assert [message.role for message in gmi.history[:2]] == ["assistant", "user"]
        assert len(gmi.history) == 19


async def test_a_gmi_runs_the_turns_of_its_conversations_one_after_another(shared_database: str) -> None:
    makes = Makes(end("One."), end("Two."), end("Three."))
    async with makes.stage(shared_database, persistence=True) as stage:
        await ask(stage, "First?")
        gmi, own = await makes.gmis.acquire(ADA, SESSION, "demo"), makes.made[0]
        assert isinstance(gmi, LiveGmi)
        turn = own.asked[0]
        first, second = gmi.process_turn_stream(turn), gmi.process_turn_stream(turn)
        assert await anext(first) == FinalResponseMarker()
        waits = asyncio.create_task(next_of(second))
        for _ in range(50):
            await asyncio.sleep(0)
        assert (len(own.asked), waits.done(), gmi.is_busy) == (2, False, True)
        assert [item async for item in first] == [end("Two.")]
        async with asyncio.timeout(30):
            assert await waits == FinalResponseMarker()
        await second.aclose()  # type: ignore[attr-defined]
        assert gmi.is_busy is False


async def test_results_are_refused_while_the_gmi_runs_a_turn_of_another_conversation(shared_database: str) -> None:
    makes = Makes(stop("c1"), end("Other."), end("Mild."))
    async with makes.stage(shared_database, persistence=True) as stage:
        await ask(stage)
        pause, own = await held(stage), makes.made[0]
        own.works.clear()
        own.may_answer.clear()
        other = asyncio.create_task(ask(stage, "Something else?", OTHER))
        async with asyncio.timeout(30):
            await own.works.wait()
        assert codes(await by_results(stage, pause, result("c1"))) == ["SYS_INVALID_STATE"]
        assert await held(stage) == pause
        own.may_answer.set()
        async with asyncio.timeout(30):
            await other
        assert (await by_results(stage, pause, result("c1")))[-1]["final_response_text"] == "Mild."
