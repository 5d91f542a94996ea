"""What a continuation is told: the paused turn byte for byte, on whichever process, whatever happened in between."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.chunks import FinalResponseMarker, GmiChunk, GmiOutput, SourcesAvailable, TextDelta
from app.domain.jsontext import dumps, loads
from app.domain.messages import Message, dump
from app.domain.turn import Caller, Pause
from app.providers.base import ModelRequest
from app.providers.scripted import call
from app.turn.gmi.base import Gmi, GmiTurnInput
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import CHAT, STOCK, WEATHER, Stage, one, result, running_stage
from tests.turn.pausing import Answer, by_results, by_resume, codes, held, paused, scripted, weather
from tests.turn.playing import Act, Playing, asks, end, stop

WAYS = pytest.mark.parametrize("way", [by_results, by_resume])
SOURCES = ({"id": "s1", "title": "The almanac"},)
PERSONAS = {
    "demo": "id: demo\nname: Demo\nsystem_prompt: You are the default.\ntools: [current_time]\n",
    "poet": "id: poet\nname: Poet\nsystem_prompt: You are a poet.\n",
}


@pytest.fixture
def two_personas(tmp_path: Path) -> Path:
    """A folder with the personas `demo` (the default, which has a tool of its own) and `poet`."""
    for name, content in PERSONAS.items():
        (tmp_path / f"{name}.yaml").write_text(content, encoding="utf-8")
    return tmp_path


# What happens between the pause and its results ---------------------------------------------------------------------


@asynccontextmanager
async def nothing(stage: Stage) -> AsyncIterator[Stage]:
    yield stage


@asynccontextmanager
async def another_process(stage: Stage) -> AsyncIterator[Stage]:
    async with scripted(stage.database) as other:
        yield other


@asynccontextmanager
async def a_restart(stage: Stage) -> AsyncIterator[Stage]:
    await stage.runtime.stop()
    async with scripted(stage.database) as other:
        yield other


@asynccontextmanager
async def another_conversation(stage: Stage) -> AsyncIterator[Stage]:
    stage.provider.add([call("current_time", {}, id="theirs")], "It is late.")
    await stage.play("Something private.", conversation="chat-2", session="session-1")
    yield stage


@asynccontextmanager
async def another_persona(stage: Stage) -> AsyncIterator[Stage]:
    stage.provider.add("A rhyme.")
    done = await stage.play("Write.", conversation="chat-2", session="session-1", persona_id="poet")
    assert done[-1]["active_persona_details"]["name"] == "Poet"
    yield stage


Between = Callable[[Stage], Any]
BETWEEN = pytest.mark.parametrize(
    "between",
    [nothing, another_process, a_restart, another_conversation, another_persona],
    ids=lambda way: way.__name__,
)


def body(request: ModelRequest) -> bytes:
    """Give all that a provider is asked, as bytes."""
    shown = {name: getattr(request, name) for name in ("model", "temperature", "top_p", "max_tokens", "user")}
    tools = [tool.to_json() for tool in request.tools]
    return dumps({**shown, "messages": dump(request.messages), "tools": tools})


@requirement("R137", "R138", "R139", "R140", "R141", "R142", "R143", "R147")
@requirement("R148", "R160", "R161", "R163", "R167", "R172", "R184", "R185", "R199")
@BETWEEN
@WAYS
async def test_a_continuation_is_told_the_paused_turn_byte_for_byte(
    database: str, two_personas: Path, between: Between, way: Answer
) -> None:
    turn: dict[str, Any] = {"session": "session-1", "tools": [WEATHER, STOCK]}
    async with scripted(database, personas_dir=two_personas) as stage:
        stage.provider.add("Hello.", [call("current_time", {}, id="own-1")])
        stage.provider.add(["Let me see.", call("current_time", {}, id="own-2"), weather("c1"), weather("c2", "Rome")])
        await stage.play("Hi.", session="session-1")
        await stage.play("What is the weather?", **turn)
        asked = stage.provider.requests[-1]
        pause = await held(stage)
        async with between(stage) as other:
            # The other process has other persona files: the paused persona comes with the pause.
            other.provider.add("Mild in both.")
            done = await way(other, pause, result("c2", {"t": 25}), result("c1", "21"))
            continued = other.provider.requests[-1]

    assert done[-1]["final_response_text"] == "Mild in both."
    assert done[-1]["active_persona_details"]["name"] == "Demo"
    told = continued.messages
    assert dumps(dump(told[: len(asked.messages)])) == dumps(dump(asked.messages))
    assert told[0].content == "You are the default."
    answer, own, first, second = told[len(asked.messages) :]
    assert [one_of.id for one_of in answer.tool_calls] == ["own-2", "c1", "c2"]
    assert answer.content == "Let me see."
    assert (own.tool_call_id, loads(str(own.content))["time_zone"]) == ("own-2", "UTC")
    assert (first.tool_call_id, first.content) == ("c1", "21")
    assert (second.tool_call_id, second.content) == ("c2", '{"t":25}')
    assert [message.content for message in told].count("What is the weather?") == 1
    assert (continued.tools, continued.model, continued.user) == (asked.tools, asked.model, asked.user)


@requirement("R161", "R162", "R163")
@WAYS
async def test_what_another_conversation_said_before_is_not_in_the_kept_history(stage: Stage, way: Answer) -> None:
    stage.provider.add("A secret.", "Hello.")
    await stage.play("Tell me a secret.", conversation="chat-2", session="session-1")
    await stage.play("Hi.", session="session-1")
    pause = await paused(stage, "c1", session="session-1")
    stage.provider.add("Mild.")
    await way(stage, pause, result("c1"))

    said = [(message.role, message.content) for message in stage.provider.requests[-1].messages[1:]]
    assert said == [
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "What is the weather?"),
        ("assistant", None),
        ("tool", "21 degrees"),
    ]


@requirement("R100", "R101")
async def test_the_history_that_a_pause_keeps_names_each_call_and_a_continuation_answers_each(stage: Stage) -> None:
    pause = await paused(stage, "c1", "c2", "c3")
    stage.provider.add("Some.")
    await by_results(stage, pause, result("c2"))

    told = stage.provider.requests[-1].messages
    assert [message.tool_call_id for message in told[-3:]] == ["c1", "c2", "c3"]
    assert [message.is_error for message in told[-3:]] == [True, False, True]


@requirement("R169", "R170")
async def test_the_stored_history_has_the_hosts_calls_and_not_those_that_the_gmi_ran(stage: Stage) -> None:
    stage.provider.add([call("current_time", {}, id="own-1")], [call("current_time", {}, id="own-2"), weather("c1")])
    await stage.play("What is the weather?", tools=[WEATHER])

    stored = await stage.messages()
    assert [(message.role, [one_of["id"] for one_of in message.tool_calls]) for message in stored] == [
        ("user", []),
        ("assistant", ["c1"]),
    ]


@requirement("R349", "R91")
@WAYS
async def test_a_continuation_that_stops_again_leaves_the_next_one_what_it_had_itself(
    stage: Stage, way: Answer
) -> None:
    first = await paused(stage, "c1")
    stage.provider.add(["Wait.", call("current_time", {}, id="own-1"), weather("c2")])
    await way(stage, first, result("c1"))
    second = await held(stage)
    one_before = stage.provider.requests[-1]
    async with scripted(stage.database, "Done.") as other:
        await way(other, second, result("c2"))
        last = other.provider.requests[-1]

    assert dump(last.messages[: len(one_before.messages)]) == dump(one_before.messages)
    assert [message.tool_call_id for message in last.messages[-2:]] == ["own-1", "c2"]
    assert (last.tools, last.model) == (one_before.tools, one_before.model)


# A host's own GMI -----------------------------------------------------------------------------------------------


class Watched(Playing):
    """Plays acts, notes for whom it was taken, and gives the outputs' own histories."""

    def __init__(self, *acts: Act) -> None:
        super().__init__(*acts)
        self.taken: list[tuple[Caller, str, str]] = []

    async def acquire(self, caller: Caller, session_id: str, persona_id: str) -> Gmi:
        self.taken.append((caller, session_id, persona_id))
        return self

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        self.asked.append(turn)
        *chunks, last = self.acts.pop(0)
        for chunk in chunks:
            yield chunk
        yield FinalResponseMarker()
        yield last


def plain(turn: GmiTurnInput) -> dict[str, Any]:
    """Give what a GMI's turn is made of, without the operation's own functions and ids."""
    left_out = {"before_effect", "before_step", "after_round", "on_call", "context", "room"}
    shown = {name: getattr(turn, name) for name in turn.__slots__ if name not in left_out}
    return shown | {"session": turn.session.state}


async def begin(stage: Stage) -> Pause:
    await stage.play("What is the weather?", session="session-1", tools=[WEATHER])
    return await held(stage)


@requirement("R144", "R149", "R150", "R151", "R152", "R153", "R173", "R182", "R183", "R188")
@WAYS
async def test_nothing_of_another_conversations_turn_is_carried_into_a_continuation(
    shared_database: str, way: Answer
) -> None:
    sources = replace(stop("c1"), rag_sources=SOURCES)
    theirs: Act = [SourcesAvailable(({"id": "s9"},)), replace(end("Other."), rag_sources=({"id": "s9"},))]
    inputs = []
    for between in (False, True):
        acts: list[Act] = [[sources], *([theirs] if between else []), [end()]]
        watched = Watched(*acts)
        caller = Caller("ada", "acme")
        async with running_stage(shared_database, gmis=watched) as stage:
            await stage.play("What is the weather?", session="session-1", tools=[WEATHER], caller=caller)
            pause = await stage.pending(caller=caller)
            assert pause is not None
            if between:
                await stage.play("Other?", conversation="chat-2", session="session-1", caller=caller)
            done = await (
                stage.pass_results(pause.stream_id, result("c1"), caller=caller)
                if way is by_results
                else stage.resume(pause, result("c1"), caller=caller)
            )
            turn = watched.asked[-1]
            assert turn.sources == SOURCES
            assert done[-1]["rag_sources"] == list(SOURCES)
            context = turn.context
            assert (context.conversation_id, context.session_id, context.caller) == (CHAT, "session-1", caller)
            assert context.turn_id == pause.turn_id
            assert set(watched.taken) >= {(caller, "session-1", "demo")}
            assert len(set(watched.taken)) == 1
            inputs.append(plain(turn))
            await stage.runtime.delete_conversation(caller, CHAT)
    assert inputs[0] == inputs[1]


@requirement("R164", "R165", "R166")
@pytest.mark.parametrize("noted", [(), ("c1",), ("c1", "c2")])
async def test_the_kept_history_ends_by_naming_each_call_that_the_gmi_did_not_note(
    shared_database: str, noted: Sequence[str]
) -> None:
    """A layer of the host around its GMI stops the turn; the GMI itself has noted some of the calls, or none."""
    history = (
        Message("system", "Be kind."),
        Message("user", "Weather?"),
        Message("assistant", "I will ask.", tool_calls=tuple(asks(call_id) for call_id in noted)),
    )
    watched = Watched([replace(stop("c1", "c2"), history=history)], [end()])
    async with running_stage(shared_database, gmis=watched) as stage:
        pause = await begin(stage)
        await by_results(stage, pause, result("c1", "one"), result("c2", "two"))

    told = watched.asked[-1].messages
    assert told[:3] == history
    named = [one_of.id for message in told for one_of in message.tool_calls]
    assert named == ["c1", "c2"]
    answers = {message.tool_call_id: message.content for message in told if message.role == "tool"}
    assert answers == {"c1": "one", "c2": "two"}
    for place, message in enumerate(told):
        calls = [one_of.id for one_of in message.tool_calls]
        assert [answer.tool_call_id for answer in told[place + 1 : place + 1 + len(calls)]] == calls


@requirement("R168")
@WAYS
async def test_a_gmi_without_a_history_of_its_own_is_given_the_stored_one(shared_database: str, way: Answer) -> None:
    watched = Watched([end("Hello.")], [stop("c1", text="I will ask.")], [end()])
    async with running_stage(shared_database, gmis=watched) as stage:
        await stage.play("Hi.", session="session-1")
        pause = await begin(stage)
        await way(stage, pause, result("c1", "21"))

    told = watched.asked[-1].messages
    assert [(message.role, message.content) for message in told[1:]] == [
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "What is the weather?"),
        ("assistant", "I will ask."),
        ("tool", "21"),
    ]


@requirement("R48", "R49", "R52", "R182", "R184", "R217", "R218")
@WAYS
async def test_sources_come_before_the_text_of_turn_and_continuation_and_again_at_the_end(
    shared_database: str, way: Answer
) -> None:
    first: Act = [SourcesAvailable(SOURCES), TextDelta("Let me see."), replace(stop("c1"), rag_sources=SOURCES)]
    async with running_stage(shared_database, gmis=Playing(first)) as stage:
        turn = await stage.play("What is the weather?", tools=[WEATHER])
        pause = await held(stage)
    async with scripted(shared_database, "Mild.", "Bye.") as other:
        continued = await way(other, pause, result("c1"))
        last = await other.play("Thanks.")

    for chunks in (turn, continued):
        shown = [
            "sources" if "rag_sources" in chunk.get("updates", {}) else chunk["type"]
            for chunk in chunks
            if chunk["type"] == "text_delta" or "rag_sources" in chunk.get("updates", {})
        ]
        assert shown == ["sources", "text_delta"]
        (told,) = [chunk["updates"]["rag_sources"] for chunk in chunks if "rag_sources" in chunk.get("updates", {})]
        assert told == list(SOURCES)
    assert one(continued, "final_response")["rag_sources"] == list(SOURCES)
    assert one(last, "final_response")["rag_sources"] is None
    assert "structured" not in one(continued, "final_response")


@requirement("R145", "R146", "R341", "R342")
@WAYS
async def test_a_snapshot_of_a_newer_release_refuses_the_results_and_keeps_the_pause(
    database: str, way: Answer
) -> None:
    change = "UPDATE pending_external_tool_requests SET snapshot = jsonb_set(snapshot::jsonb, '{version}', $1)::json"
    async with scripted(database) as stage:
        pause = await paused(stage, "c1")
        await rows(database, change, "99")

        assert codes(await way(stage, pause, result("c1"))) == ["SYS_SERVICE_UNAVAILABLE"]
        assert (await held(stage)).pause_id == pause.pause_id
        assert [role for role, _ in await stage.said()] == ["user", "assistant"]
        assert len(stage.provider.requests) == 1

        await rows(database, change, "1")
        stage.provider.add("Mild.")
        assert (await by_results(stage, pause, result("c1")))[-1]["final_response_text"] == "Mild."
