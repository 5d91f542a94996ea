"""Tools that are HTTP calls: what goes where, what comes back, and what is never reached."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from app.domain.errors import ConfigurationError
from app.tools.web import PrivateAddressError, PublicResolver, WebTool, read_tools_file
from tests.tools.running import fault, run

ENVIRONMENT = {"SHOP_TOKEN": "t-secret"}


class Shop:
    """A server that tells what it was asked, or answers as told."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[dict[str, Any]] = []
        self.answer: web.Response | None = None

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.text()
        self.asked.append(
            {
                "method": request.method,
                "path": request.raw_path,
                "token": request.headers.get("authorization"),
                "body": body,
            }
        )
        return self.answer or web.json_response({"ok": True})

    def tool(self, host: str = "127.0.0.1", *, private: bool = True, **more: Any) -> WebTool:
        part = {
            "name": "order_status",
            "description": "Tells the state of an order.",
            "url": f"http://{host}:{self.port}/orders/{{order_id}}",
            "headers": {"authorization": "Bearer ${SHOP_TOKEN}"},
            "input_schema": {"type": "object", "properties": {"order_id": {}}, "required": ["order_id"]},
            **more,
        }
        file = {"allowed_hosts": [host], "private_hosts": [host] if private else [], "tools": [part]}
        (made,), _ = read_tools_file(json.dumps(file), ENVIRONMENT)
        return made


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    made = Shop()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


async def test_arguments_go_into_the_address_and_the_query(shop: Shop) -> None:
    result = await run(shop.tool(), {"order_id": "a/b ?#", "verbose": True, "tags": ["x", "y z"]})

    assert result.output == {"ok": True}
    assert shop.asked == [
        {
            "method": "GET",
            "path": "/orders/a%2Fb%20%3F%23?verbose=true&tags=x&tags=y+z",
            "token": "Bearer t-secret",
            "body": "",
        }
    ]


async def test_of_a_post_the_rest_is_the_body_as_json(shop: Shop) -> None:
    await run(shop.tool(method="POST"), {"order_id": 7, "note": "für dich"})

    assert (shop.asked[0]["path"], json.loads(shop.asked[0]["body"])) == ("/orders/7", {"note": "für dich"})


@pytest.mark.parametrize("value", ["..", ".", ""])
async def test_an_argument_can_not_lead_out_of_its_place(shop: Shop, value: str) -> None:
    assert fault(await run(shop.tool(), {"order_id": value}))[0] == "TOOL_EXECUTION_FAILED"
    assert shop.asked == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (web.Response(status=404, text="no such\norder"), "HTTP 404: no such order"),
        (web.Response(status=500), "HTTP 500: no text"),
        (web.Response(status=302, headers={"location": "http://169.254.169.254/"}), "redirect (HTTP 302)"),
        (web.Response(text="x" * 101), "more than 100 bytes"),
        (web.Response(text="{oops", content_type="application/json"), "is not"),
        (web.Response(body=b"\x00\x01", content_type="image/png"), "image/png, which is no text"),
    ],
)
async def test_what_is_no_answer_is_told_to_the_model(shop: Shop, answer: web.Response, told: str) -> None:
    shop.answer = answer

    assert told in fault(await run(shop.tool(max_output_bytes=100), {"order_id": "1"}))[1]
    assert len(shop.asked) == 1


@pytest.mark.parametrize(("answer", "output"), [(web.Response(text="fine"), "fine"), (web.Response(status=204), None)])
async def test_text_and_nothing_are_answers(shop: Shop, answer: web.Response, output: str | None) -> None:
    shop.answer = answer

    assert (await run(shop.tool(), {"order_id": "1"})).output == output


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_private_address_is_not_reached_unless_it_is_allowed(shop: Shop, host: str) -> None:
    assert "private address" in fault(await run(shop.tool(host, private=False), {"order_id": "1"}))[1]
    assert shop.asked == []


@pytest.mark.parametrize(
    "host",
    [
        "http://10.0.0.1/",
        "http://169.254.169.254/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fd00::1]/",
        "http://0.0.0.0/",
    ],
)
async def test_no_form_of_a_private_address_passes(host: str) -> None:
    name = host.removeprefix("http://").removesuffix("/")
    file = {"allowed_hosts": [name.strip("[]")], "tools": [{"name": "t", "description": "d", "url": host}]}
    (made,), _ = read_tools_file(json.dumps(file), {})

    assert "private address" in fault(await run(made))[1]


async def test_a_name_that_leads_to_a_private_address_is_refused_where_it_is_resolved() -> None:
    resolver: AbstractResolver = PublicResolver(private=False)
    with pytest.raises(PrivateAddressError):
        await resolver.resolve("localhost", 80)
    assert await PublicResolver(private=True).resolve("localhost", 80)


async def test_a_server_that_is_not_there_is_told_without_its_address(shop: Shop) -> None:
    tool = shop.tool(url="http://127.0.0.1:9/{order_id}")

    code, message = fault(await run(tool, {"order_id": "1"}))

    assert (code, "127.0.0.1" in message) == ("TOOL_EXECUTION_FAILED", False)


def declared(**more: Any) -> str:
    part = {"name": "t", "description": "d", "url": "https://a.example.org/x", **more}
    return json.dumps({"allowed_hosts": ["a.example.org"], "tools": [part]})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tools: [", "not YAML"),
        ("tulls: []", "tulls"),
        (declared(url="https://b.example.org/x"), "not among the allowed_hosts"),
        (declared(url="https://{host}/x"), "tools.0.url"),
        (declared(url="https://a.example.org/{id}"), "needs id, which its schema does not require"),
        (declared(url="ftp://a.example.org/"), "tools.0.url"),
        (declared(input_schema={"type": "nonsense"}), "no JSON Schema"),
        (declared(headers={"x": "${NOT_SET}"}), "NOT_SET"),
        (declared(name="a b"), "tools.0.name"),
    ],
)
def test_a_file_that_is_wrong_is_told_by_place(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_tools_file(text, ENVIRONMENT, "tools.yaml")


def test_an_empty_file_declares_nothing() -> None:
    assert read_tools_file("", {}) == ([], [])
