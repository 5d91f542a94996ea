"""Requests to real processes that are brought to points between their statements, and the check of what is left."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from app.domain.ids import row_key
from app.store import tables
from tests.databases import rows
from tests.kill_points import At, Hold, KillPoints, kill_points
from tests.live.acts import Act, Scene, Told
from tests.live.audit import check_pause, check_streams, check_tables, settled
from tests.mock_model import ModelServer
from tests.servers import Server, Servers

SETTINGS = {
    "FERMATA_LEASE_SECONDS": "3",
    "FERMATA_LEASE_RENEW_SECONDS": "0.8",
    "FERMATA_DATABASE_POOL_SIZE": "64",
    "FERMATA_MAX_RERUNS": "32",
}
UNHURRIED = {"FERMATA_LEASE_SECONDS": "20", "FERMATA_LEASE_RENEW_SECONDS": "3"}
"""For processes that nobody kills: a busy machine that does not let one run for a while is no death."""

OPEN = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database()
    AND (state LIKE 'idle in transaction%' OR (state, wait_event) = ('active', 'ClientRead'))
"""
WRITTEN = (tables.stream_events, tables.messages, tables.streams, tables.pauses, tables.inbound_messages)


@dataclass(frozen=True, slots=True)
class Ground:
    """Where it happens: one database, with points between it and the process under attack, and a model."""

    servers: Servers
    points: KillPoints
    database: str
    mock: ModelServer

    async def attacked(self, **settings: str) -> Server:
        """Start a process that can be held at points."""
        return await self.servers.start(self.points.url, self.mock.base_url, **{**SETTINGS, **settings})

    async def fresh(self, **settings: str) -> Server:
        """Start a process that nobody attacks."""
        return await self.servers.start(self.database, self.mock.base_url, **SETTINGS, **settings)

    async def written(self) -> list[list[Any]]:
        """Give all that operations write."""
        queries = [select(table).order_by(*table.primary_key) for table in WRITTEN]
        return [await rows(self.database, str(query)) for query in queries]


Two = tuple[Ground, Server, Server]
"""A ground with two processes on it, both of which can be held at points."""


@asynccontextmanager
async def open_ground(servers: Servers, database: str, mock: ModelServer) -> AsyncIterator[Ground]:
    """Put the points in front of the database."""
    async with kill_points(database) as points:
        yield Ground(servers, points, database, mock)


@dataclass(slots=True)
class Attack:
    """One request that is to be broken off at one point."""

    act: Act
    transaction: str
    at: At
    scene: Scene
    hold: Hold | None = None
    told: Told = field(default_factory=Told)

    def __str__(self) -> str:
        return self.scene.conversation


async def stand(points: KillPoints, attacks: Sequence[Attack]) -> list["asyncio.Task[Told]"]:
    """Bring every attack's request to its point."""
    for attack in attacks:
        await attack.act.before(attack.scene)
    for attack in attacks:
        attack.hold = points.hold(attack.transaction, attack.at, row_key("", attack.scene.conversation))
    asking = [asyncio.create_task(attack.act.request(attack.scene)) for attack in attacks]
    await asyncio.gather(*(attack.hold.reached() for attack in attacks if attack.hold))
    return asking


async def audit(server: Server, database: str, attacks: Sequence[Attack]) -> None:
    """Check each conversation on a process that had no part in it, and go on with each."""
    await settled(database)
    await check_tables(database)
    few = asyncio.Semaphore(4)

    async def check(attack: Attack) -> None:
        async with few:
            try:
                await check_one(server, database, attack)
            except AssertionError as error:
                error.add_note(f"at {attack}, told {attack.told}")
                raise

    await asyncio.gather(*map(check, attacks))
    await check_tables(database)


async def check_one(server: Server, database: str, attack: Attack) -> None:
    scene = attack.scene
    await check_streams(server, database, scene.conversation, attack.told.frames)
    await check_pause(server, scene.conversation, scene.results)
    frames = await server.turn(scene.conversation, "And now?")
    assert frames[-1].data["status"] == "completed"
    contents = await rows(
        database,
        "SELECT tool_call_id, content::text AS content FROM messages JOIN conversations ON id = conversation "
        "WHERE conversation_id = $1 AND role = 'tool'",
        scene.conversation,
    )
    kept = {row["tool_call_id"]: row["content"] for row in contents}
    emitted = [frame.data["tool_call_id"] for frame in attack.told.frames if frame.event == "tool_result_emission"]
    for call in {*scene.accepted, *attack.told.body.get("received", ()), *emitted} & set(scene.calls):
        assert scene.output in kept[call], f"the result of {call} was accepted and is lost: {kept}"


async def break_off(asking: Sequence["asyncio.Task[Told]"], attacks: Sequence[Attack], *, go: bool) -> None:
    """Let all go on (or cut them), and note what their hosts were told."""
    for attack in attacks:
        assert attack.hold
        (attack.hold.go if go else attack.hold.drop)()
    async with asyncio.timeout(30):
        for attack, told in zip(attacks, asking, strict=True):
            attack.told = await told
