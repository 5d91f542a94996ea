"""What must be true of a conversation whatever was done to the processes that served it."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx

from tests.databases import rows
from tests.servers import Server
from tests.sse import Frame, check_order, frames_of

SETTLING_SECONDS = 30.0


async def settled(database: str, seconds: float = SETTLING_SECONDS) -> None:
    """Wait until no operation runs or waits."""
    running = """
        SELECT conversation_id FROM conversations WHERE running_operation IS NOT NULL UNION ALL
        SELECT stream_id FROM inbound_messages WHERE status = 'waiting'
    """
    left: Sequence[Any] = ()
    try:
        async with asyncio.timeout(seconds):
            while left := await rows(database, running):  # noqa: ASYNC110 - a state of the database
                await asyncio.sleep(0.05)
    except TimeoutError:
        message = f"still busy: {[row[0] for row in left]}"
        raise AssertionError(message) from None


def tells_of_state(frame: Frame) -> bool:
    """Tell whether the event may be announced only once it is stored; all others are previews."""
    match frame.event:
        case "final_response" | "error" | "end":
            return True
        case "tool_call_request":
            return "pause_id" in frame.data
        case "tool_result_emission":
            return bool(frame.data["tool_name"] == "get_weather")
        case "metadata_update":
            return "pause_resolved" in frame.data["updates"]
        case _:
            return False


async def check_tables(database: str) -> None:
    """Check what holds for all conversations while nothing runs."""
    unsettled = await rows(
        database, "SELECT pause_id FROM pending_external_tool_requests WHERE state NOT IN ('held', 'ended')"
    )
    assert not unsettled, "a pause that is neither held nor over"
    several = await rows(
        database,
        "SELECT conversation FROM pending_external_tool_requests WHERE state = 'held' GROUP BY 1 HAVING count(*) > 1",
    )
    assert not several, "two pauses are held at once"
    torn = await rows(
        database,
        """
        SELECT stream.stream_id, stream.status, pause.state FROM streams stream
        FULL JOIN (SELECT * FROM pending_external_tool_requests WHERE state = 'held') pause
            ON pause.stream_id = stream.stream_id AND pause.pause_id = stream.pause_id
        WHERE stream.status = 'running' OR (stream.status = 'paused') <> (pause.state IS NOT NULL)
            OR stream.stream_id IS NULL
        """,
    )
    assert not torn, f"streams and pauses disagree: {torn}"
    unfinished = await rows(database, "SELECT stream_id, status FROM inbound_messages WHERE status = 'running'")
    assert not unfinished, f"operations that nobody runs: {unfinished}"
    await _check_answers(database)


async def _check_answers(database: str) -> None:
    """Every call that is stored is answered once, right behind its message, or its pause is held."""
    stored = await rows(
        database,
        """
        SELECT conversation, role, tool_calls::text AS calls, tool_call_id, EXISTS (
            SELECT 1 FROM pending_external_tool_requests held
            WHERE held.conversation = messages.conversation AND held.state = 'held'
        ) AS held, lead(conversation) OVER (PARTITION BY conversation ORDER BY position) IS NULL AS last
        FROM messages ORDER BY conversation, position
        """,
    )
    asked: list[str] = []
    for row in stored:
        if row["role"] == "tool":
            assert row["tool_call_id"] in asked, f"an answer without its call, or a second one: {row}"
            asked.remove(row["tool_call_id"])
        else:
            assert not asked, f"calls without an answer: {asked}"
            asked = [call["id"] for call in json.loads(row["calls"] or "[]")]
        if row["last"]:
            assert bool(asked) == row["held"], f"{asked} is open, and a pause is held: {row['held']}"
            asked = []


async def check_streams(server: Server, database: str, conversation: str, seen: Sequence[Frame] = ()) -> list[Frame]:
    """Check that all streams of the conversation are whole, and hold what was `seen`; gives all their frames."""
    streams = await rows(
        database,
        "SELECT stream_id, status, ends::text AS ends FROM streams JOIN conversations ON id = conversation "
        "WHERE conversation_id = $1 ORDER BY streams.created_at",
        conversation,
    )
    everything: list[Frame] = []
    for stream in streams:
        frames = frames_of(await server.replay(stream["stream_id"]))
        check_order(frames)
        ends = json.loads(stream["ends"])
        assert frames, stream
        assert frames[-1].event == "end", f"{stream['stream_id']} does not end"
        assert frames[-1].data["status"] == stream["status"]
        for end in ends:
            numbers = [frame.n for frame in frames if frame.fence == end["fence"]]
            assert numbers == list(range(1, end["last"] + 1)), f"{end}: {numbers}"
        everything += frames
    kept = {frame.id: frame for frame in everything}
    for frame in seen:
        if tells_of_state(frame) or frame.id in kept:
            assert frame.id in kept, f"announced and not stored: {frame}"
            assert kept[frame.id].raw == frame.raw
    return everything


async def check_pause(server: Server, conversation: str, results: Sequence[dict[str, Any]]) -> bool:
    """Check that the pause is held, and then goes on with results; or that it is over, and takes none. Tells which."""
    response = await server.client.get(f"/v1/conversations/{conversation}/pending-request")
    if response.status_code in {httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND}:
        return False
    pending = response.json()
    open_calls = {call["id"] for call in pending["tool_calls"]} - set(pending["received"])
    given = [result for result in results if result["tool_call_id"] in open_calls]
    given += [{"tool_call_id": call, "output": "late"} for call in open_calls - {r["tool_call_id"] for r in given}]
    frames = await server.results(pending["stream_id"], *given)
    assert frames[-1].data["status"] == "completed", frames[-1]
    return True


async def refused(server: Server, stream_id: str, *results: dict[str, Any]) -> dict[str, Any]:
    """Post results that must be refused, and give the problem."""
    response = await server.client.post(f"/v1/streams/{stream_id}/tool-results", json={"results": list(results)})
    assert response.status_code == httpx.codes.CONFLICT, response.text
    told: dict[str, Any] = response.json()
    return told
