"""The console's form for calls that the service runs only when a person agrees."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.api.process import Service, service
from tests.databases import Databases
from tests.mock_model import ModelServer
from tests.till import Till, till, wants_back

DONE = {"steps": [{"text": "So be it."}]}


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
async def money() -> AsyncIterator[Till]:
    async with till() as made:
        yield made


@pytest.fixture(scope="module")
async def running(
    databases: Databases, model: ModelServer, money: Till, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("approvals")
    values: dict[str, Any] = {
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "sk-test-of-the-mock",
        "FERMATA_DEFAULT_MODEL": "openai:mock",
        **money.settings(folder),
    }
    async with databases.fresh() as url, service(folder, DATABASE_URL=url, **values) as started:
        yield started


def form(page: Page) -> Locator:
    return page.get_by_role("form", name="The turn waits for you")


def answers(request: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in request["body"]["messages"] if message["role"] == "tool"]


async def ask(page: Page, running: Service, model: ModelServer, money: Till, *cents: int) -> None:
    model.seen.scripts.clear()
    model.seen.requests.clear()
    money.paid.clear()
    model.script(wants_back(*cents), DONE)
    await page.goto(running.address)
    await page.get_by_label("Your message").fill("Pay Ann back.")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(form(page)).to_contain_text("pay_back")


async def send(page: Page, name: str) -> None:
    await form(page).get_by_role("button", name=name).click()


async def test_a_call_is_run_once_a_person_agrees(
    page: Page, running: Service, model: ModelServer, money: Till
) -> None:
    await ask(page, running, model, money, 500)
    await page.reload()
    await expect(form(page)).to_contain_text("pay_back")
    await send(page, "Send the decision")
    # Nothing is sent before one of the two is chosen.
    await expect(form(page)).to_be_visible()
    assert money.paid == []
    await form(page).get_by_label("Run it", exact=True).check()
    await send(page, "Send the decision")

    await expect(page.locator(".message.assistant").last).to_contain_text("So be it.")
    await expect(form(page)).to_have_count(0)
    assert money.paid == [500]
    assert [json.loads(answer) for answer in answers(model.seen.requests[-1])] == [{"paid": 500}]


async def test_one_call_is_changed_and_the_other_refused(
    page: Page, running: Service, model: ModelServer, money: Till
) -> None:
    await ask(page, running, model, money, 500, 900)
    first, second = await form(page).locator("fieldset").all()
    await first.get_by_label("Run it", exact=True).check()
    await first.get_by_label("Arguments (JSON)").fill("not JSON")
    await second.get_by_label("Don’t run it").check()
    await second.get_by_label("Why not").fill("Too much.")
    await send(page, "Send the decisions")
    await expect(form(page)).to_be_visible()
    assert money.paid == []

    await first.get_by_label("Arguments (JSON)").fill('{"cents": 50}')
    await send(page, "Send the decisions")

    await expect(page.locator(".message.assistant").last).to_contain_text("So be it.")
    assert money.paid == [50]
    changed, refused = answers(model.seen.requests[-1])
    assert json.loads(changed)["changed_by_a_person"] == {"arguments": {"cents": 50}}
    assert "A person refused this call: Too much." in refused


async def test_arguments_that_the_tool_refuses_are_told_and_the_form_stays(
    page: Page, running: Service, model: ModelServer, money: Till
) -> None:
    await ask(page, running, model, money, 500)
    await form(page).get_by_label("Run it", exact=True).check()
    await form(page).get_by_label("Arguments (JSON)").fill('{"cents": 0}')
    await send(page, "Send the decision")

    await expect(page.get_by_role("alert").first).to_contain_text("422 SYS_VALIDATION_ERROR")
    await form(page).get_by_label("Arguments (JSON)").fill('{"cents": 5}')
    await send(page, "Send the decision")
    await expect(page.locator(".message.assistant").last).to_contain_text("So be it.")
    assert money.paid == [5]
