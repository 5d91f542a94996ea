"""A real browser: the system's Chromium, driven headless. One for all tests of a process, a fresh profile for each."""

import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
PATIENCE_MS = 30_000


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        sentence = "No Chromium is installed: apt-get install chromium, or set CHROMIUM to where it is."
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as driver:
        launched = await driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield launched
        await launched.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that fails its test when one of its scripts fails, or when it asks for anything of another machine."""
    context = await browser.new_context()
    opened = await context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None)
    opened.on("request", lambda asked: None if "//127.0.0.1:" in asked.url else faults.append(asked.url))
    yield opened
    await context.close()
    assert faults == []
