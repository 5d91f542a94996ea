"""The import contracts hold, and importing any module of app does nothing to the world."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"

# Runs in a process of its own, since this one has imported everything already. The audit hook also sees what libraries
# do.
IMPORT_ALL = """
import os, pkgutil, signal, sys, threading

WATCHED = {"socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.fork", "os.posix_spawn",
           "os.mkdir", "os.remove", "os.rename", "os.chdir", "os.putenv", "signal.signal"}

def watch(event, args):
    writes = event == "open" and args[0] != os.devnull and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
    if event in WATCHED or writes:
        raise SystemExit(f"importing {current} does this: {event} {args!r}")

current = "the standard library"
import app
names = ["app", *sorted(found.name for found in pkgutil.walk_packages(app.__path__, "app."))]
environment = dict(os.environ)
sys.addaudithook(watch)
for current in names:
    __import__(current)
    assert threading.active_count() == 1, f"importing {current} starts a thread"
assert dict(os.environ) == environment, "an import changes the environment"
{more}
print(*names)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code at the root of the repository with nothing in its environment."""
    return subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, timeout=50, check=False
    )


def modules() -> set[str]:
    """Give the dotted names of app's modules; a folder without __init__.py would hide its own from the import."""
    files = (ROOT / "app").rglob("*.py")
    parts = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    return {".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts}


def test_the_import_contracts_hold() -> None:
    done = run(LINT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_app_needs_no_environment_and_has_no_side_effect() -> None:
    done = run(IMPORT_ALL.replace("{more}", ""))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stdout.split()) == modules()


@pytest.mark.parametrize(
    "deed",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        pytest.param("open('never-made.txt', 'w')", marks=pytest.mark.slow),
        pytest.param("import subprocess; subprocess.run(['true'])", marks=pytest.mark.slow),
    ],
)
def test_the_watch_on_imports_sees_what_it_is_there_for(deed: str) -> None:
    done = run(IMPORT_ALL.replace("{more}", deed))
    assert done.returncode != 0
    assert "does this" in done.stderr


LATER = {
    "aiohttp": "a model is called, or a tool of the file of tools",
    "alembic": "there is a migration to do",
    "app.api.schemas.chunks": "the interface is described",
    "app.store.embedded.supervisor": "no DATABASE_URL is set",
    "certifi": "a model is called",
    "httpx": "a model is called",
    "jsonschema": "a tool is called, or a reply must be data",
    "markdown_it": "the service listens, in a thread",
    "numpy": "languages are detected, or texts are embedded here",
    "presidio_analyzer": "the guardrail of that name judges",
    "py3langid": "languages are detected",
    "spacy": "the guardrail presidio judges",
    "sqlalchemy.ext.asyncio": "never: it brings the ORM; statements are awaited by the pool's own connection",
    "sqlalchemy.orm": "never: rows are values",
    "tldextract": "the guardrail presidio judges",
    "tokenizers": "a model has a tokenizer of its own",
    "playwright": "never: tests use it",
    "pydantic.v1": "never: models are of the second version",
    "pytest": "never: tests use it",
    "rich": "never: logs are written without it",
    "typer": "never: only tools for developers use it",
    "watchfiles": "never: no code is loaded again",
    "websockets": "never: no route is one",
}
"""Modules that take long to import, and when they are."""


STARTED = "import sys; from app.__main__ import commands; commands(); "


def test_a_start_imports_nothing_that_it_may_never_need() -> None:
    done = run(STARTED + "print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & set(LATER) == set()


def test_what_a_start_leaves_out_can_be_imported_afterwards() -> None:
    done = run(STARTED + "import rich.text; print(rich.text.Text('here'))")
    assert done.stdout == "here\n", done.stderr


BUILT = """
from fastapi.openapi.models import OpenAPI
from pydantic import BaseModel
from app.api.schemas.turns import TurnBody
print(OpenAPI.__pydantic_complete__, TurnBody.__pydantic_complete__, "defer_build" in BaseModel.model_config)
print(TurnBody.model_validate({"input": "Hello"}).input, TurnBody.__pydantic_complete__)
"""


def test_models_are_built_when_they_are_first_used() -> None:
    done = run(STARTED + BUILT)
    assert done.stdout == "False False False\nHello True\n", done.stderr


PLAIN = """
import gc, sys
from pydantic import BaseModel

def state():
    return gc.isenabled(), gc.get_threshold(), dict(BaseModel.model_config)

before = state()
import app.main
there = {name for name in sys.modules if name in HEAVY}
there |= {name for name in sys.modules if ".".join(name.split(".")[:2]) in BEHIND} - VALUES
assert not there, f"app.main imports {sorted(there)}; it is the door and the settings, which need none of that"
assert state() == before, f"an import leaves {state()} where {before} was"
assert None not in sys.modules.values(), "an import hides modules from others"

from fastapi.openapi.models import OpenAPI
from app.settings import Settings
assert not OpenAPI.__pydantic_complete__ and not Settings.__pydantic_complete__, "models are built that nobody uses"

import pydantic.v1, structlog, uvicorn.supervisors
assert structlog.dev.rich is not None, "structlog remembers that there is no rich"
assert uvicorn.supervisors.ChangeReload.__name__ == "WatchFilesReload", "uvicorn remembers that there is no watchfiles"
"""
HEAVY = {
    "aiohttp",
    "alembic",
    "asyncpg",
    "greenlet",
    "httpx",
    "jsonschema",
    "markdown_it",
    "prometheus_client",
    "pydantic.v1",
    "pygments",
    "rich",
    "sqlalchemy",
    "structlog",
    "yaml",
}
"""Packages that the door and the settings don't need."""
BEHIND = {
    "app.bootstrap",
    "app.conversation",
    "app.guardrails",
    "app.memory",
    "app.prompts",
    "app.providers",
    "app.skills",
    "app.store",
    "app.telemetry",
    "app.tools",
    "app.turn",
}
VALUES = {
    "app.conversation",
    "app.conversation.setting",
    "app.guardrails",
    "app.guardrails.options",
    "app.guardrails.terms",
    "app.providers",
    "app.providers.setting",
    "app.turn",
    "app.turn.preparation",
    "app.turn.preparation.setting",
}
"""What of the packages behind the door the settings are made of."""


def test_the_application_is_there_without_what_lies_behind_it_and_leaves_the_process_as_it_was() -> None:
    names = f"HEAVY, BEHIND, VALUES = {HEAVY!r}, {BEHIND!r}, {VALUES!r}\n"
    done = run(names + PLAIN)
    assert done.returncode == 0, done.stderr


ASKED = """
import asyncio
from app.main import create_app
from app.settings import load_settings

app = create_app(load_settings())

def worked_out():
    ready = [route for route in app.routes if "app" in vars(route)]
    print(*(method + " " + route.path for route in ready for method in route.methods))

async def ask(method, path):
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            print(message["status"])

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [(b"host", b"x")]}
    await app(scope, receive, send)

worked_out()
asyncio.run(ask("GET", "/healthz"))
asyncio.run(ask("GET", "/nowhere"))
worked_out()
print("pydantic.v1" in sys.modules)
"""


def test_a_route_is_worked_out_when_it_is_first_called() -> None:
    done = run(STARTED + ASKED)
    assert [line for line in done.stdout.splitlines() if "[" not in line] == [
        "",
        "200",
        "404",
        "GET /healthz",
        "False",
    ], done


def test_a_start_describes_the_whole_interface() -> None:
    done = run("from app.__main__ import commands; commands()(['openapi', '--check'])")
    assert done.returncode == 0, done.stderr


COMPILED = """
for name, module in list(sys.modules.items()):
    if name.startswith("app.") and ".embedded" not in name:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == name and "__dataclass_params__" in vars(kind):
                print(kind.__name__ if kind.__dataclass_params__.frozen else "")
"""


def test_frozen_dataclasses_are_made_the_cheap_way() -> None:
    done = run(STARTED + COMPILED)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.split()) - {"Cursor", "ActiveGuard"}
    assert found == set(), (
        f"import dataclass from app.domain.frozen for {found}: there it is made in a fifth of the time"
    )


def test_the_collector_never_looks_through_what_a_start_imports() -> None:
    done = run(
        "import app.__main__, gc; app.__main__.commands(); "
        "print(gc.isenabled(), gc.get_freeze_count() > 50_000, gc.get_threshold()[0])"
    )
    assert done.stdout == "True True 10000\n", done.stderr
