"""The console in a real browser, on a real service with the persona that ships."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.api.process import Service, service
from tests.browser.cutter import wire_to
from tests.databases import Databases
from tests.mock_model import ModelServer

WEATHER = "What is the weather in Berlin?"
SENT_BACK = "21 degrees and a light wind"


@pytest.fixture(scope="module")
async def running(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A service for all tests that leave it as it is; each has a chat of its own."""
    async with databases.fresh() as url, service(tmp_path_factory.mktemp("service"), DATABASE_URL=url) as started:
        yield started


@pytest.fixture
async def held(database: str, mock: ModelServer, tmp_path: Path) -> AsyncIterator[Service]:
    """A service whose model stands still in the middle of its first answer, until the gate `rest` is opened."""
    mock.script({"steps": [{"text": "You said "}, {"gate": "rest"}, {"text": "Hello!"}]})
    async with service(
        tmp_path, DATABASE_URL=database, OPENAI_BASE_URL=mock.base_url, OPENAI_API_KEY="sk-test",
        FERMATA_DEFAULT_MODEL="openai:mock",
    ) as started:  # fmt: skip
        yield started


def replies(page: Page) -> Locator:
    return page.locator(".message.assistant")


def pause(page: Page) -> Locator:
    return page.get_by_role("form", name="The turn waits for you")


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Your message").fill(text)
    await page.get_by_role("button", name="Send", exact=True).click()


async def answer(page: Page, text: str) -> None:
    await pause(page).get_by_label("Result (JSON or text)").fill(text)
    await pause(page).get_by_role("button", name="Send the result").click()


async def test_a_message_is_answered_piece_by_piece(page: Page, held: Service, mock: ModelServer) -> None:
    await page.goto(held.address)
    await say(page, "Hello!")

    await expect(page.locator(".message.user")).to_have_text("Hello!")
    await expect(page.locator(".message.assistant.running")).to_have_text("You said ")
    mock.open("rest")
    await expect(replies(page)).to_have_text("You said Hello!")
    await expect(page.locator(".running")).to_have_count(0)
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()


async def test_a_turn_that_waits_is_answered_in_a_form(page: Page, running: Service) -> None:
    await page.goto(running.address)
    await say(page, WEATHER + " And what time is it?")

    await expect(pause(page)).to_contain_text("get_weather")
    await expect(pause(page)).to_contain_text('"city": "Berlin"')
    skeleton = await pause(page).get_by_label("Result (JSON or text)").input_value()
    assert json.loads(skeleton) == {"city": "Berlin", "result": ""}
    await answer(page, SENT_BACK)

    await expect(replies(page).last).to_contain_text(SENT_BACK)
    await expect(pause(page)).to_have_count(0)


async def test_a_call_that_failed_is_told_to_the_model(page: Page, running: Service) -> None:
    await page.goto(running.address)
    await say(page, WEATHER)
    await pause(page).get_by_label("The call failed").check()
    await pause(page).get_by_label("What went wrong").fill("The thermometer is broken")
    await pause(page).get_by_role("button", name="Send the result").click()

    await expect(replies(page).last).to_contain_text("The thermometer is broken")


async def test_a_reload_in_the_middle_of_a_pause_finds_it_again(page: Page, running: Service) -> None:
    await page.goto(running.address)
    await say(page, WEATHER)
    await expect(pause(page)).to_be_visible()

    await page.reload()
    await expect(page.locator(".message.user")).to_have_text(WEATHER)
    await answer(page, SENT_BACK)
    await expect(replies(page).last).to_contain_text(SENT_BACK)

    await page.reload()
    await expect(replies(page).last).to_contain_text(SENT_BACK)
    await expect(pause(page)).to_have_count(0)


async def test_a_reload_in_the_middle_of_an_answer_reads_on(page: Page, held: Service, mock: ModelServer) -> None:
    await page.goto(held.address)
    await say(page, "Hello!")
    await expect(page.locator(".message.assistant.running")).to_contain_text("You said")

    await page.reload()
    await expect(page.locator(".message.assistant.running")).to_contain_text("You said")
    mock.open("rest")

    await expect(replies(page)).to_have_text("You said Hello!")
    await expect(page.locator(".message.user")).to_have_count(1)


async def test_a_cut_answer_is_read_on_without_a_gap_or_a_repetition(page: Page, running: Service) -> None:
    async with wire_to(running.address) as wire:
        await page.goto(wire.address)
        wire.cut_after(b'"text_delta":"script, "')
        await say(page, "Hello!")
        await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
        assert wire.cut_happened.is_set()
        streamed = await replies(page).inner_text()

        await page.goto(running.address + "/" + page.url.partition("/#")[2].join(("#", "")))
        await expect(replies(page)).to_have_text(streamed)
    assert streamed.count("a script, not a model") == 1


async def test_an_answer_that_ends_in_order_but_without_its_end_is_read_on(page: Page, running: Service) -> None:
    async def cut(route: Route) -> None:
        # As behind a proxy that speaks HTTP/1.0: the response is closed as if it were whole.
        whole = await route.fetch()
        body = await whole.body()
        await route.fulfill(response=whole, body=body[: body.index(b'"text_delta":"script, "')])

    await page.goto(running.address)
    await page.route("**/turns", cut, times=1)
    await say(page, "Hello!")
    await expect(replies(page)).to_contain_text("a script, not a model")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    assert (await replies(page).inner_text()).count("a script, not a model") == 1


async def test_a_pause_is_answered_after_the_service_was_killed_and_started_again(
    page: Page, database: str, tmp_path: Path
) -> None:
    async with service(tmp_path, DATABASE_URL=database) as first:
        await page.goto(first.address)
        await say(page, WEATHER)
        await expect(pause(page)).to_be_visible()
        first.tell(signal.SIGKILL)
        await first.ends()
    port = int(first.address.rpartition(":")[2])
    async with service(tmp_path, port=port, DATABASE_URL=database):
        await answer(page, SENT_BACK)
        await expect(replies(page).last).to_contain_text(SENT_BACK)


async def test_a_refusal_is_shown_with_its_code_and_the_words_are_kept(page: Page, running: Service) -> None:
    await page.goto(running.address)
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Tools that you run").fill('[{"name": "no good"}]')
    await page.get_by_role("button", name="Save").click()
    await say(page, "Hello!")

    await expect(page.get_by_role("alert").first).to_contain_text("tools[0].name")
    await expect(page.get_by_role("alert").first).to_contain_text("422 SYS_VALIDATION_ERROR")
    await expect(page.get_by_label("Your message")).to_have_value("Hello!")


async def test_what_is_said_while_the_page_still_loads_is_not_forgotten(page: Page, running: Service) -> None:
    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.goto(running.address)
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Tools that you run").fill('[{"name": "no good"}]')
    await page.route("**/v1/personas*", held.put)
    await page.route("**/turns", held.put)
    await page.get_by_role("button", name="Save").click()
    await say(page, "Hello!")
    personas, turn = await held.get(), await held.get()
    async with page.expect_response("**/v1/personas*"):
        await personas.continue_()
    await turn.continue_()

    await expect(page.get_by_role("alert").first).to_contain_text("422 SYS_VALIDATION_ERROR")
    await expect(page.get_by_label("Your message")).to_have_value("Hello!")


async def test_markup_in_what_is_said_stays_text(page: Page, running: Service) -> None:
    markup = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"
    await page.goto(running.address)
    await say(page, markup)

    await expect(page.locator(".message.user")).to_have_text(markup)
    await expect(replies(page)).to_contain_text("<b>bold</b>")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    assert await page.locator("#log img, #log b").count() == 0
    assert await page.title() == "Fermata"


async def test_a_service_with_keys_asks_for_one_and_then_works(page: Page, database: str, tmp_path: Path) -> None:
    keys = json.dumps([{"name": "ann", "sha256": sha256(b"the-key").hexdigest()}])
    async with service(tmp_path, DATABASE_URL=database, FERMATA_API_KEYS=keys) as running:
        await page.goto(running.address)
        await expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
        await page.get_by_label("API key").fill("the-key")
        await page.get_by_label("User id").fill("ada")
        await page.get_by_role("button", name="Save").click()
        await say(page, "Hello!")
        await expect(replies(page)).to_contain_text("a script, not a model")
        chat = page.url.partition("#")[2]
        owner = await page.evaluate(
            "async (path) => (await (await fetch(path, {headers: {Authorization: 'Bearer the-key'}})).json()).user_id",
            f"/v1/conversations/{chat}?user_id=ada",
        )

    assert owner == "ada"


@pytest.mark.parametrize("late", ["while the key is typed", "when the key is saved"])
async def test_a_late_refusal_without_a_key_takes_nothing_from_the_one_that_is_given(
    page: Page, database: str, tmp_path: Path, late: str
) -> None:
    keys = json.dumps([{"name": "ann", "sha256": sha256(b"the-key").hexdigest()}])
    held: asyncio.Queue[Route] = asyncio.Queue()

    async def come(refused: Route) -> None:
        async with page.expect_response(lambda response: "/v1/personas" in response.url and response.status == 401):
            await refused.continue_()

    async with service(tmp_path, DATABASE_URL=database, FERMATA_API_KEYS=keys) as running:
        await page.route("**/v1/personas*", held.put, times=1)
        await page.goto(running.address)
        await expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
        refused = await held.get()
        await page.get_by_label("API key").fill("the-key")
        if late == "while the key is typed":
            await come(refused)
        async with page.expect_response(lambda response: "/v1/personas" in response.url and response.ok):
            await page.get_by_role("button", name="Save").click()
            if late == "when the key is saved":
                await come(refused)
        await say(page, "Hello!")
        await expect(replies(page)).to_contain_text("a script, not a model")
        await expect(page.get_by_role("alert").first).to_be_hidden()


async def test_chats_are_listed_opened_and_erased(page: Page, running: Service) -> None:
    await page.add_init_script("localStorage.setItem('fermata.user', 'a user of this test alone')")
    await page.goto(running.address)
    await say(page, "My first chat")
    await expect(page.get_by_role("button", name="My first chat", exact=True)).to_be_visible()
    await page.get_by_role("button", name="New chat").click()
    await expect(page.locator("#log")).to_contain_text("Nothing has been said here yet.")
    await page.get_by_role("button", name="My first chat", exact=True).click()
    await expect(page.locator(".message.user")).to_have_text("My first chat")

    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Erase My first chat").click()

    await expect(page.locator("#chat-list li")).to_have_count(0)


async def test_events_are_parsed_wherever_they_are_cut(page: Page, running: Service) -> None:
    await page.goto(running.address)
    found = await page.evaluate(
        """async () => {
            const { EventParser } = await import("/page/events.js");
            const first = ": ok\\n\\nid: 1-1\\nevent: a\\ndata: {}\\n\\n";
            const text = first + "id: 1-2\\r\\ndata: x\\r\\ndata:y\\r\\n\\r\\nevent: none\\n\\n";
            const results = new Set();
            for (let one = 0; one <= text.length; one++) {
                for (let two = one; two <= text.length; two++) {
                    const parser = new EventParser();
                    const parts = [text.slice(0, one), text.slice(one, two), text.slice(two)];
                    results.add(JSON.stringify(parts.flatMap((part) => parser.push(part))));
                }
            }
            return [...results];
        }"""
    )

    assert [json.loads(result) for result in found] == [
        [{"id": "1-1", "event": "a", "data": "{}"}, {"id": "1-2", "event": "message", "data": "x\ny"}]
    ]


async def test_the_reference_shows_every_call_that_the_service_describes(page: Page, running: Service) -> None:
    await page.goto(running.address + "/docs")
    await page.locator("#run_turn summary").click()
    described = await page.evaluate("async () => (await (await fetch('/openapi.json')).json()).paths")

    await expect(page.locator("#run_turn")).to_contain_text("max_tool_iterations")
    calls = sum(len(methods) for methods in described.values())
    await expect(page.locator("details.call:not([id^=schema])")).to_have_count(calls)


async def test_an_answer_can_be_stopped_and_keeps_what_was_said(page: Page, held: Service) -> None:
    await page.goto(held.address)
    await say(page, "Hello!")
    await expect(page.locator(".message.assistant.running")).to_contain_text("You said")

    await page.get_by_role("button", name="Stop").click()

    await expect(page.get_by_role("status")).to_have_text("Cancelled.")
    await expect(replies(page)).to_contain_text("You said")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
