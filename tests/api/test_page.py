"""The static pages: everything they load is their own, and their policy says so."""

import re
from pathlib import Path

import pytest

from app.api.routes.page import FOLDER
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of

TEXTS = sorted(path for path in FOLDER.iterdir() if path.suffix in {".html", ".js", ".css"})


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_may_load_from_its_own_service_alone(path: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get(path)

    policy = response.headers["Content-Security-Policy"]
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["X-Frame-Options"] == "DENY"


async def test_everything_that_a_page_names_is_there(runtime: FakeRuntime) -> None:
    named = {name for text in TEXTS for name in re.findall(r"/page/[\w.]+", text.read_text(encoding="utf-8"))}
    async with client_of(application(runtime)) as client:
        answers = {name: await client.get(name) for name in named}

    assert {"/page/console.js", "/page/page.css", "/page/reference.js"} <= named
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 200} == {}
    assert answers["/page/console.js"].headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["nothing.js", "..%2fopenapi.py", "console.html"])
async def test_nothing_else_of_the_machine_is_given(name: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get(f"/page/{name}")

    assert response.status_code == 404


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert re.findall(r"(?:https?:)?//[a-z]+\.[a-z.]+", text) == []
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick="):
        assert unsafe not in text
