"""The README's walk-through, run as it is printed, in order, in a fresh copy of the checkout."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.postgres import passable_folder
from tests.servers import ROOT, environment
from tests.sse import Frame, check_whole, frames_of, only, text_of
from tests.store.embedded.processes import standing_in, until

LIMIT_SECONDS = 100.0
MARK = "--- the next block ---"


def blocks() -> dict[str, str]:
    """Give the shell commands of the walk-through, block by block, by the heading that they stand under."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    part = re.search(r"^## Walk-through\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert part is not None
    found = {}
    for section in part[1].split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        shell = re.findall(r"^```sh\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
        if shell:
            found[title] = "".join(shell)
    return found


@pytest.fixture
async def checkout() -> AsyncIterator[Path]:
    """A copy of the files that git knows, with the environment of this run, as `make install` would make it."""
    with passable_folder() as folder:
        copy = folder / "fermata"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        for name in listed.stdout.decode().split("\0"):
            source = ROOT / name
            if name and source.is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy / name)
        copy.chmod(0o711)
        (copy / ".venv").symlink_to(sys.prefix)
        yield copy
        await until(lambda: not standing_in(copy / ".fermata" / "postgres"))  # the server's Postgres has gone


async def run(folder: Path, port: int) -> str:
    """Run all blocks in one shell, as somebody at a terminal would; give what it wrote."""
    script = f"\necho '{MARK}'\n".join(blocks().values())
    variables = environment(None, None, {"FERMATA_PORT": str(port)})
    for ours in ("PYTHONPATH", "FERMATA_DRAIN_GRACE_SECONDS", "FERMATA_LOG_FORMAT"):
        del variables[ours]
    with (folder / "shell.out").open("wb") as output, (folder / "shell.err").open("wb") as errors:
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-e", "-x", "-c", script),
            cwd=folder,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            code: int | None = await shell.wait()
    except TimeoutError:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, SIGKILL)
    told = {name: (folder / name).read_text(encoding="utf-8") for name in ("shell.out", "shell.err", "fermata.log")}
    assert code == 0, "\n".join(f"== {name}\n{text}" for name, text in told.items())
    return told["shell.out"]


def events(output: str) -> list[Frame]:
    frames = frames_of(output.encode())
    check_whole(frames)
    return frames


@pytest.mark.timeout(LIMIT_SECONDS + 20)
async def test_the_walk_through_goes_as_the_readme_says(checkout: Path, unused_tcp_port: int) -> None:
    output = await run(checkout, unused_tcp_port)
    said = dict(zip(blocks(), output.split(f"{MARK}\n"), strict=True))

    assert json.loads(said["Start"].splitlines()[-1])["status"] == "ok"
    turn = events(said["A turn"])
    assert turn[-1].data["status"] == "completed"
    assert text_of(turn).startswith("The time: ")

    paused = events(said["A turn that pauses"])
    request = only(paused, "tool_call_request").data
    assert request["requires_external_tool_result"] is True
    assert paused[-1].data == {"status": "paused", "pause_id": request["pause_id"], "last": paused[-1].n}
    pending = json.loads(said["What the conversation waits for"])
    assert (pending["pause_id"], pending["tool_calls"]) == (request["pause_id"], request["tool_calls"])

    assert json.loads(said["The server dies and comes back"])["status"] == "ok"
    rest = events(said["The results"])
    assert rest[0].data["stream_id"] == request["stream_id"]
    assert text_of(rest).startswith("The weather in Berlin: temperature_c 21, sky clear.")

    *again, messages = said["All of it again"].rstrip("\n").rpartition("\n\n")
    replayed = frames_of("".join(again).encode())
    assert [frame.raw for frame in replayed] == [frame.raw for frame in (*paused, *rest)]
    roles = [message["role"] for message in json.loads(messages)["items"]]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]

    assert said["From Python"].startswith("The weather in Rome: ")
    assert said["Stop"] == ""


def test_the_walk_through_has_the_steps_that_are_checked() -> None:
    assert list(blocks()) == [
        "Start", "A turn", "A turn that pauses", "What the conversation waits for", "The server dies and comes back",
        "The results", "All of it again", "From Python", "Stop",
    ]  # fmt: skip


def test_the_quick_start_is_two_commands_that_the_walk_through_covers() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quick = re.search(r"^## Quick start\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert quick is not None
    first, second = re.findall(r"^```sh\n(.*?)^```$", quick[1], re.MULTILINE | re.DOTALL)
    assert first == "make run\n"
    assert second.startswith("curl -N http://127.0.0.1:8000/v1/conversations/first/turns ")
