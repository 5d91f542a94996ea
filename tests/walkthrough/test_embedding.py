"""The README's program that runs a turn without HTTP, as it is printed."""

import asyncio
import re
import sys
from pathlib import Path

from app.bootstrap import running
from app.guardrails.registry import Report
from app.providers.registry import ProviderRegistry
from app.providers.scripted import ScriptedProvider, call
from app.settings import Settings
from app.tools.functions import FunctionTool
from app.turn.facade.host import Host
from tests.gmi.keeping import persona
from tests.servers import ROOT, environment
from tests.stage import one, turn_input

LIMIT_SECONDS = 100.0


def program() -> str:
    """Give the Python of the README's section on programs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    part = re.search(r"^## In a Python program\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert part is not None
    found = re.search(r"^```python\n(.*?)^```$", part[1], re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


async def test_the_readmes_program_runs_a_turn_with_a_tool_of_its_own(database: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program(), encoding="utf-8")
    variables = environment(database, None, {})
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, str(file)),
        cwd=tmp_path,
        env={**variables, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            said, log = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
    assert running.returncode == 0, log.decode()
    assert "The weather in Rome: " in said.decode()
    assert said.decode().rstrip().endswith("It is kept: 4 messages.")


async def order_status(order_id: str) -> str:
    """Tells the state of an order."""
    return f"{order_id} is on its way"


async def test_a_program_brings_tools_and_providers_of_its_own_along_and_hears_of_verdicts(
    database: str, tmp_path: Path
) -> None:
    provider = ScriptedProvider([[call("order_status", {"order_id": "A7"}, id="c1")], "It is on its way."])
    own = persona(tmp_path, tools="[order_status]")
    settings = Settings(_env_file=None, **{"database_url": database, "guardrails": ["pii"], **own})
    parts = ProviderRegistry([provider])
    told: list[Report] = []
    async with running(
        settings, providers=parts, host_tools=[FunctionTool(order_status)], on_verdict=told.append
    ) as runtime:
        chunks = [chunk async for chunk in Host(runtime).process_request(turn_input("Where is A7?"))]
    assert one(chunks, "final_response")["final_response_text"] == "It is on its way."
    assert "A7 is on its way" in str(provider.requests[-1].messages[-1].content)
    assert [(report.action, report.final_text) for report in told] == [("allow", "It is on its way.")]
    provider.assert_used_up()
