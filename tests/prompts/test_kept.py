"""Prompts that are kept for the operator: what is in them, what is not, and how long they stay."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import NotFoundError
from app.domain.turn import Caller
from app.domain.views import PromptsView
from app.providers.scripted import call
from app.store.database import Database
from app.turn.facade.retention import Retention
from tests.stage import ADA, WEATHER, Stage, result, running_stage

KEY = "sk-proj-" + "a1b2c3d4e5" * 3
OWN = "a-very-secret-value-of-ours"


async def read(stage: Stage, stream_id: str, caller: Caller = ADA) -> PromptsView:
    return await stage.runtime.stream_prompts(caller, stream_id)


async def test_a_kept_prompt_tells_all_that_the_model_was_told(shared_database: str) -> None:
    async with running_stage(shared_database, keep_prompts=True) as stage:
        stage.provider.add([call(WEATHER.name, {"city": "Wien"}, id="c1")], "Warm.")
        chunks = await stage.play("Weather?", tools=[WEATHER], user_context={"name": "Ada"})
        await stage.pass_results(chunks[-1]["stream_id"], result("c1"))

        first, second = (await read(stage, chunks[-1]["stream_id"])).prompts
        sent = stage.provider.requests
        assert [message["content"] for message in first["messages"]] == [m.content for m in sent[0].messages]
        assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
        assert (first["operation"], second["operation"]) == ("turn", "continuation")
        assert first["model"] == "scripted:demo"
        assert first["tools"] == ["current_time", "get_weather"]
        assert first["sections"].keys() == {"persona", "user_context"}
        assert first["cut"] == {}
        assert first["tokens"]["window"] == 128_000
        with pytest.raises(NotFoundError):
            await read(stage, chunks[-1]["stream_id"], Caller("eve"))


async def test_secrets_and_bytes_are_left_out(shared_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"type": "image", "data": "iVBO" * 100, "mime_type": "image/png"}
    given: list[dict[str, Any]] = [{"type": "text", "text": f"My key is {KEY} and yours {OWN}"}, image]
    async with running_stage(shared_database, keep_prompts=True) as stage:
        stage.provider.add("Ok.")
        keys = {"openai": OWN}
        chunks = await stage.play(given, provider_api_keys=keys)  # type: ignore[arg-type]

        (prompt,) = (await read(stage, chunks[-1]["stream_id"])).prompts
        assert prompt["messages"][-1]["content"] == [
            {"type": "text", "text": "My key is [secret] and yours [secret]"},
            {"type": "image", "data": "(400 characters)", "mime_type": "image/png"},
        ]


async def test_unless_it_is_asked_for_nothing_is_kept_and_the_refusal_names_the_setting(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        stage.provider.add("Hi.")
        chunks = await stage.play("Hello")
        with pytest.raises(NotFoundError, match="FERMATA_KEEP_PROMPTS"):
            await read(stage, chunks[-1]["stream_id"])


async def test_a_prompt_goes_with_the_events_of_its_stream(shared_database: str) -> None:
    database = Database(shared_database, pool_size=2)
    async with running_stage(shared_database, keep_prompts=True) as stage:
        stage.provider.add("Hi.")
        stream_id = (await stage.play("Hello"))[-1]["stream_id"]
        assert len((await read(stage, stream_id)).prompts) == 1
        while await Retention(database, keep=timedelta(0), faded=timedelta(0)).look():
            pass
        with pytest.raises(NotFoundError):
            await read(stage, stream_id)
    await database.close()
