"""What hosts do to a conversation, each act up to the request that is to be attacked, and that request."""

import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.servers import CUT, Server
from tests.sse import Frame, FrameReader, only

TWO_CALLS: dict[str, Any] = {
    "steps": [
        {"call": {"id": "call_a", "name": "get_weather", "arguments": '{"city": "Rome"}'}},
        {"call": {"id": "call_b", "name": "get_weather", "arguments": '{"city": "Bonn"}', "index": 1}},
    ]
}
THIRD: dict[str, Any] = {"call": {"id": "call_c", "name": "get_weather", "arguments": '{"city": "Oslo"}', "index": 2}}
THREE_CALLS: dict[str, Any] = {"steps": [*TWO_CALLS["steps"], THIRD]}


@dataclass(slots=True)
class Told:
    """What a host was told: the status (None when the response was cut before it) and the events that came."""

    status: int | None = None
    frames: list[Frame] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)
    whole: bool = False

    refused_late: bool = False

    @property
    def is_accepted(self) -> bool:
        return self.status == httpx.codes.OK and not self.refused_late

    def refuse(self, block: bytes) -> None:
        """Take note of a refusal that came when the response had begun: events without an id, since none is stored."""
        event, data = block.split(b"\ndata: ")
        self.refused_late = True
        if event == b"event: error":
            self.body = json.loads(data)


@dataclass(slots=True)
class Scene:
    """A conversation that stands before the request to be attacked."""

    server: Server
    mock: ModelServer
    conversation: str
    stream_id: str = ""
    pause_id: str = ""
    calls: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        return f"21 degrees, {self.conversation} says"

    @property
    def results(self) -> list[dict[str, Any]]:
        return [{"tool_call_id": call, "output": self.output} for call in self.calls]

    async def pause(self, **more: Any) -> None:
        """Bring the conversation to a held pause."""
        frames = await self.server.turn(self.conversation, "What is the weather?", tools=[TOOL], **more)
        request = only(frames, "tool_call_request")
        self.stream_id, self.pause_id = frames[0].data["stream_id"], request.data["pause_id"]
        self.calls = tuple(call["id"] for call in request.data["tool_calls"])

    async def tell(self, path: str, body: dict[str, Any], **more: Any) -> Told:
        """Post and read whatever comes, also from a process that goes away."""
        told = Told()
        reader = FrameReader()
        try:
            async with self.server.client.stream("POST", path, json=body, timeout=60, **more) as response:
                told.status = response.status_code
                if not response.headers["content-type"].startswith("text/event-stream"):
                    await response.aread()
                    told.body = response.json()
                    told.whole = True
                    return told
                rest = b""
                async for piece in response.aiter_raw():
                    *blocks, rest = (rest + piece).split(b"\n\n")
                    for block in blocks:
                        if block.startswith(b"event: "):
                            told.refuse(block)
                        else:
                            told.frames += reader.feed(block + b"\n\n")
                told.whole = True
        except (*CUT, httpx.ConnectError, httpx.ReadTimeout, httpx.WriteError):
            pass
        return told

    async def say(self, text: str, **more: Any) -> Told:
        path = f"/v1/conversations/{self.conversation}/turns"
        return await self.tell(path, {"input": text, "tools": [TOOL], **more})

    async def pass_results(self, results: list[dict[str, Any]] | None = None, **more: Any) -> Told:
        path = f"/v1/streams/{self.stream_id}/tool-results"
        return await self.tell(path, {"results": self.results if results is None else results, **more})

    async def resume(self) -> Told:
        path = f"/v1/conversations/{self.conversation}/resume"
        return await self.tell(path, {"pause_id": self.pause_id, "results": self.results})

    async def cancel(self) -> Told:
        return await self.tell(f"/v1/streams/{self.stream_id}/cancel", {})


Part = Callable[[Scene], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Act:
    """An act: what comes before, the request itself, and the transactions of it that are attacked."""

    name: str
    before: Part
    request: Callable[[Scene], Coroutine[Any, Any, Told]]
    attacked: tuple[str, ...]

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")


async def _nothing(_: Scene) -> None:
    return


async def _pause(scene: Scene) -> None:
    await scene.pause()


async def _pause_of_three(scene: Scene) -> None:
    scene.mock.script(THREE_CALLS)
    await scene.pause()


async def _partly_answered(scene: Scene) -> None:
    await _pause_of_three(scene)
    told = await scene.pass_results(scene.results[1:2], partial=True)
    assert told.body["missing"] == ["call_a", "call_c"]
    scene.accepted = ("call_b",)


ACTS = (
    Act("reply", _nothing, lambda scene: scene.say("Hello"), ("accept", "touch", "settle")),
    Act("pause", _nothing, lambda scene: scene.say("What is the weather?"), ("settle",)),
    Act("results", _pause, lambda scene: scene.pass_results(), ("continue", "settle")),
    Act("resume", _pause, lambda scene: scene.resume(), ("continue",)),
    Act("new turn", _partly_answered, lambda scene: scene.say("Never mind"), ("take",)),
    Act("partial", _pause_of_three, lambda scene: scene.pass_results(scene.results[1:2], partial=True), ("partial",)),
    Act("last", _partly_answered, lambda s: s.pass_results(s.results[::2], partial=True), ("partial", "continue")),
    Act("cancel", _partly_answered, lambda scene: scene.cancel(), ("end",)),
)
