"""What a takeover keeps of a continuation: what its tools gave, who agreed to them, and what the turn has used."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.domain.chunks import StepFinished, UsageUpdate
from app.domain.usage import Usage
from app.providers.scripted import Hold, call
from app.tools.base import ToolContext
from app.turn.orchestrator.tally import Tally
from tests.databases import rows
from tests.gmi.test_approval import PERSONA, PayBack, asked, says, till
from tests.stage import ADA, Stage, running_stage
from tests.turn.pausing import let_die, meanwhile, until
from tests.turn.test_setbacks import no_rerun, sweeping

PAY = call("pay_back", {"cents": 500}, id="c1")


class Hanging(PayBack):
    """Pays, and never says so."""

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        await super().execute(arguments, context)
        await asyncio.Event().wait()


async def crashed(stage: Stage, stream_id: str) -> tuple[dict[str, Any], Any]:
    """Let the stream's operation die, and give what its stream and the conversation keep once it was taken over."""
    takeover, _ = sweeping(stage)
    await let_die(stage)
    assert await takeover.sweep(no_rerun) == 1
    (answer,) = [message for message in await stage.messages() if message.tool_call_id == "c1"]
    return dict((await stage.runtime.stream_state(ADA, stream_id)).usage or {}), answer


async def test_what_was_journalled_is_kept_with_who_agreed_and_all_usage(shared_database: str, tmp_path: Path) -> None:
    async with till(shared_database, tmp_path, PayBack()) as stage:
        stream, hold = (await asked(stage, Usage(10, 3), PAY))["stream_id"], Hold()
        stage.provider.add([Usage(5, 1), call("current_time", id="own-1")], ["So far", hold])
        async with meanwhile(stage.pass_results(stream, says("c1"))):
            await asyncio.wait_for(hold.reached.wait(), 20)
            usage, answer = await crashed(stage, stream)
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (15, 4)
        assert json.loads(answer.content) == {"paid": 500}
        assert answer.metadata["approval"]["by"] == "ada"


async def test_what_was_not_journalled_is_told_as_not_run_and_what_the_paused_turn_used_is_kept(
    shared_database: str, tmp_path: Path
) -> None:
    tool = Hanging()
    async with till(shared_database, tmp_path, tool) as stage:
        stream = (await asked(stage, Usage(10, 3), PAY))["stream_id"]

        async def has_paid() -> bool:
            return bool(tool.paid)

        async with meanwhile(stage.pass_results(stream, says("c1"))):
            await until(has_paid)
            usage, answer = await crashed(stage, stream)
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (10, 3)
        assert "EXTERNAL_TOOL_NOT_RUN" in answer.content
        assert answer.metadata["approval"]["by"] == "ada"


async def test_with_persistence_off_no_answer_of_an_approved_call_is_stored(
    shared_database: str, tmp_path: Path
) -> None:
    (tmp_path / "cashier.yaml").write_text(PERSONA, encoding="utf-8")
    of_cashier: dict[str, Any] = {"personas_dir": tmp_path, "default_persona_id": "cashier"}
    tools = [PayBack()]
    async with running_stage(
        shared_database, tools=tools, enable_conversational_persistence=False, **of_cashier
    ) as stage:
        request = await asked(stage, PAY)
        stage.provider.add("Done.")
        assert (await stage.pass_results(request["stream_id"], says("c1")))[-1]["final_response_text"] == "Done."
    assert await rows(shared_database, "SELECT 1 FROM messages") == []


def test_the_usage_so_far_counts_attempts_that_failed_and_of_a_step_its_last_word() -> None:
    tally = Tally(before=Usage(100, 10))
    tally.count(UsageUpdate(Usage(10, 1), attempt_failed=True))
    tally.count(UsageUpdate(Usage(5, 0)))
    tally.count(UsageUpdate(Usage(5, 2)))
    assert tally.usage == Usage(115, 13)
    tally.count(StepFinished(0, "", None, "scripted", "small"))
    tally.count(UsageUpdate(Usage(7, 1)))
    assert tally.usage == Usage(122, 14)
