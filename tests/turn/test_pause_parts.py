"""Results that are images or files: a list of typed parts is the tool message's content, any other list is data."""

from typing import Any

import pytest

from app.domain.answers import result_message
from app.domain.messages import is_parts
from tests.stage import result
from tests.turn.pausing import Answer, asks_for, by_results, by_resume, held, paused, scripted

PIXEL = "iVBORw0KGgo="
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "A map."},
    {"type": "image", "data": PIXEL, "mime_type": "image/png"},
    {"type": "image_url", "url": "https://example.org/a.png", "detail": "low"},
    {"type": "audio", "data": PIXEL, "mime_type": "audio/wav"},
    {"type": "file", "data": PIXEL, "mime_type": "application/pdf", "name": "a.pdf"},
]


@pytest.mark.parametrize("part", PARTS)
def test_every_kind_of_part_makes_a_list_of_parts(part: dict[str, Any]) -> None:
    assert is_parts([part])
    assert result_message(result("c1", [part])).content == [part]


@pytest.mark.parametrize(
    "output",
    [
        [],
        {},
        PARTS[0],
        "text",
        [PARTS[0], "text"],
        [PARTS[0], {"type": "text"}],
        [{"type": "text", "text": 1}],
        [{"type": "text", "text": "a", "score": "0.5"}],
        [{"type": "city", "text": "Berlin"}],
        [{"text": "no type"}],
        [{"type": ["text"], "text": "a"}],
        [{"type": "image_url", "url": "file:///etc/passwd"}],
        [{"type": "image", "data": "not base64!"}],
        [{"type": "image", "data": "abc"}],
        [{"type": "image", "data": PIXEL, "mime_type": "text/html"}],
        [{"type": "audio", "data": PIXEL, "mime_type": "image/png"}],
        [{"type": "file", "data": PIXEL}],
        [PARTS],
    ],
)
def test_anything_else_is_told_as_json(output: Any) -> None:
    assert not is_parts(output)
    content = result_message(result("c1", output)).content
    assert isinstance(content, str)


def test_an_error_is_told_behind_its_label_whatever_it_looks_like() -> None:
    failed = result("c1", PARTS, is_error=True)
    assert str(result_message(failed).content).startswith("The tool get_weather failed: ")


@pytest.mark.parametrize("way", [by_results, by_resume])
async def test_parts_reach_the_model_and_stay_in_the_conversation(shared_database: str, way: Answer) -> None:
    async with scripted(shared_database) as stage:
        pause = await paused(stage, "c1", "c2")
        stage.provider.add("I see a map.", "Bye.")
        await way(stage, pause, result("c2", PARTS), result("c1", [1, 2]))

        assert [message.content for message in stage.provider.requests[-1].messages[-2:]] == ["[1,2]", PARTS]
        (stored,) = [message for message in await stage.messages() if message.tool_call_id == "c2"]
        assert stored.content == PARTS
        await stage.play("Thanks.")
        assert PARTS in [message.content for message in stage.provider.requests[-1].messages]


async def test_parts_survive_a_pause_and_a_restart(shared_database: str) -> None:
    async with scripted(shared_database) as stage:
        first = await paused(stage, "c1")
        stage.provider.add(asks_for("c2"))
        await by_results(stage, first, result("c1", PARTS))
        kept = stage.provider.requests[-1].messages
    async with scripted(shared_database, "Done.") as stage:
        await by_results(stage, await held(stage), result("c2"))
        assert stage.provider.requests[-1].messages[: len(kept)] == kept
        assert kept[-1].content == PARTS
