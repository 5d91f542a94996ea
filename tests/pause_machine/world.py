"""Two runtimes on one database, whose model says what a step wants, and whose store refuses when it is told to."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from app.bootstrap import build
from app.domain.errors import AppError, ProviderError
from app.domain.ids import row_key
from app.domain.jsontext import loads
from app.domain.messages import Message
from app.guardrails.base import Action, Evaluation
from app.guardrails.registry import Guards
from app.providers.base import ModelRequest
from app.providers.registry import ProviderRegistry
from app.providers.scripted import Hold, Piece, ScriptedProvider, call
from app.settings import Settings
from app.turn.facade.expiry import Expiry
from app.turn.facade.host import Host
from app.turn.facade.service import AgentRuntime
from tests.guardrails.acting import OutputOnly
from tests.pause_machine.model import FORBIDDEN, NOT_RUN, SO_FAR, After

PATIENCE: Final = 30.0
REFUSALS: Final = """
CREATE TABLE refusals (name text);
CREATE FUNCTION refuse() RETURNS trigger AS 'BEGIN
    IF EXISTS (SELECT 1 FROM refusals WHERE name = TG_TABLE_NAME) THEN RAISE EXCEPTION ''refused''; END IF;
    RETURN NEW;
END' LANGUAGE plpgsql;
CREATE TRIGGER refusing BEFORE INSERT ON inbound_messages FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER refusing BEFORE INSERT ON pending_external_tool_requests FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@dataclass
class Plan:
    """What the model answers to the next request; with a `hold` it waits in the middle."""

    after: After
    calls: Sequence[str] = ()
    hold: Hold | None = None
    spoken: bool = False


@dataclass
class World:
    """The real thing. `plans` are the model's next answers; a request that none was made for fails the test."""

    url: str
    plans: deque[Plan] = field(default_factory=deque)
    conversation: str = ""
    surprises: list[str] = field(default_factory=list)
    asked: int = 0

    async def open(self) -> None:
        """Start both runtimes, once for all examples."""
        self.watch = await asyncpg.connect(self.url)
        await self.watch.execute(REFUSALS)
        self.provider = ScriptedProvider([self.answer] * 100_000)
        self.runtimes = [await self._started(), await self._started()]

    async def sabotage(self, statement: str) -> None:
        """Take something away from the database that keeps it in order."""
        await self.watch.execute(statement)

    async def close(self) -> None:
        for runtime in self.runtimes:
            await runtime.stop()
        await self.watch.close()

    async def _started(self) -> AgentRuntime:
        def rule(text: str | None) -> Evaluation | None:
            return Evaluation(Action.BLOCK, "not that") if FORBIDDEN in (text or "") else None

        # A history of the large profile may be longer than what is told by default, which the model does not follow.
        settings = Settings(
            _env_file=None, drain_grace_seconds=0, default_model="scripted:small", max_history_length_messages=0
        )
        providers, guards = ProviderRegistry([self.provider]), Guards([OutputOnly(rule)])
        runtime = build(settings, self.url, providers=providers, guards=guards)
        await runtime.start()
        return runtime

    # The model --------------------------------------------------------------------------------------------------

    def answer(self, request: ModelRequest) -> Sequence[Piece]:
        """Answer as planned."""
        self.asked += 1
        if not self.plans:
            self.surprises.append(f"a model was asked: {request.messages[-1]!r}")
            return ["unplanned"]
        plan = self.plans.popleft()
        before: list[Piece] = [SO_FAR] if plan.spoken else []
        pause: list[Piece] = [plan.hold] if plan.hold is not None else []
        return [*before, *pause, *pieces(plan)]

    # Steps ------------------------------------------------------------------------------------------------------

    def host(self, replica: int) -> Host:
        return Host(self.runtimes[replica])

    async def refused(self, doing: Awaitable[Any]) -> str:
        """Give the code with which something is refused, or the empty text."""
        try:
            await doing
        except AppError as refusal:
            return refusal.code
        return ""

    async def refusing(self, table: str | None) -> None:
        """Let the store refuse new rows of a table, or none."""
        await self.watch.execute("DELETE FROM refusals")
        if table is not None:
            await self.watch.execute("INSERT INTO refusals VALUES ($1)", table)

    async def expire(self) -> None:
        """Let the time of the held pause be over, and both runtimes look."""
        await self.watch.execute(
            "UPDATE pending_external_tool_requests SET expires_at = now() - interval '1 second'"
            " WHERE state = 'held' AND conversation = $1",
            self.key,
        )
        for runtime in self.runtimes:
            await Expiry(runtime._pausing, runtime.go_on_expired, runtime._services.clock.boot_seconds).look()

    async def crash(self, replica: int) -> None:
        """Let a runtime's operations die where they are, be found dead, and let a new process take its place."""
        gone = self.runtimes[replica]
        await gone._services.log.settle()
        await gone._lifecycle._beside.cancel()
        await gone._lifecycle.tasks.cancel()
        await self.watch.execute("UPDATE replicas SET dead = true WHERE id = $1", gone._services.lease.id)
        await gone._services.database.close()
        self.runtimes[replica] = await self._started()

    # What is stored ---------------------------------------------------------------------------------------------

    @property
    def key(self) -> UUID:
        return row_key("", self.conversation)

    async def until_idle(self) -> None:
        """Wait until nothing runs on the conversation."""
        query = "SELECT running_operation IS NULL FROM conversations WHERE id = $1"
        async with asyncio.timeout(PATIENCE):
            while True:
                if await self.watch.fetchval(query, self.key):
                    return
                await asyncio.sleep(0.005)

    async def stored(self) -> list[tuple[str, Any]]:
        """Give the conversation's messages in the model's terms."""
        query = "SELECT * FROM messages WHERE conversation = $1 ORDER BY position"
        entries = []
        for row in await self.watch.fetch(query, self.key):
            stored = {name: row[name] for name in ("role", "tool_call_id", "name", "is_error")}
            content = None if row["content"] is None else loads(row["content"])
            calls = loads(row["tool_calls"]) if row["tool_calls"] else []
            entries.append(Message.from_json({**stored, "content": content, "tool_calls": calls}))
        return [termed(entry) for entry in entries]

    async def rows(self, query: str) -> list[asyncpg.Record]:
        """Give the rows of a query about the conversation."""
        return list(await self.watch.fetch(query, self.key))


def termed(message: Message) -> tuple[str, Any]:
    """Give a message in the model's terms."""
    if message.role == "tool":
        not_run = message.is_error and "EXTERNAL_TOOL_NOT_RUN" in str(message.content)
        return "tool", (str(message.tool_call_id), NOT_RUN if not_run else message.content)
    if message.role == "assistant":
        return "assistant", (message.content, tuple(one.id for one in message.tool_calls))
    return message.role, message.content


def pieces(plan: Plan) -> list[Piece]:
    """Give what the model says last."""
    match plan.after:
        case "reply":
            return ["Done."]
        case "ask" | "ask two":
            return [call("get_weather", {"city": "Berlin"}, id=name) for name in plan.calls]
        case "fail":
            # Not a failure that opens a circuit: how many come in a row is for the histories to say.
            return [ProviderError("the provider failed", reason="invalid_request", provider="scripted")]
        case "forbidden":
            return [f"This is {FORBIDDEN}."]
        case "forbidden ask":
            return [f"This is {FORBIDDEN}.", *(call("get_weather", {}, id=name) for name in plan.calls)]
