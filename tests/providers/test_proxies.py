"""Proxies of the environment, read and used."""

import pytest

from app.domain.errors import ConfigurationError
from app.domain.messages import Message
from app.providers.base import ModelRequest
from app.providers.calls import HttpPolicy
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from app.providers.proxies import proxies_of
from tests.mock_model import ModelServer
from tests.providers.conftest import Transport
from tests.providers.reading import collect, outcome, text_of

REQUEST = ModelRequest("m", (Message("user", "hi"),))
LOOPBACK = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}


@pytest.mark.parametrize(
    ("environment", "proxies"),
    [
        ({}, {}),
        ({"NO_PROXY": "a.org"}, {}),
        ({"HTTPS_PROXY": "http://p:1"}, {"https://": "http://p:1", **LOOPBACK}),
        ({"https_proxy": "p:1", "HTTPS_PROXY": "q:1"}, {"https://": "http://p:1", **LOOPBACK}),
        ({"ALL_PROXY": "http://p:1"}, {"http://": "http://p:1", "https://": "http://p:1", **LOOPBACK}),
        (
            {"HTTP_PROXY": "http://p:1", "NO_PROXY": ".a.org, b.org,10.0.0.1"},
            {"http://": "http://p:1", "all://*a.org": None, "all://*b.org": None, "all://10.0.0.1": None, **LOOPBACK},
        ),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, {}),
    ],
)
def test_the_environment_is_read(environment: dict[str, str], proxies: dict[str, str | None]) -> None:
    assert proxies_of(environment) == proxies


@pytest.mark.parametrize("proxy", ["ftp://p:1", "http://p:many", "http://:1", "http://p:99999"])
def test_a_proxy_that_is_no_address_is_refused_at_the_start(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY or ALL_PROXY") as refused:
        proxies_of({"HTTPS_PROXY": proxy})
    assert proxy not in str(refused.value), "it may hold a password"


@pytest.mark.parametrize(("excepted", "reached"), [("", True), ("nobody.invalid", False)])
async def test_a_proxy_carries_the_request_unless_the_address_is_excepted(
    server: ModelServer, transport: Transport, excepted: str, *, reached: bool
) -> None:
    proxies = proxies_of({"HTTP_PROXY": server.root, "NO_PROXY": excepted})
    http = ModelHttp(HttpPolicy(transport=transport, verify_tls=False, proxies=proxies))

    events, error = await outcome(ChatProvider("far", "http://nobody.invalid/v1", None, http).stream(REQUEST))
    near = await collect(ChatProvider("near", server.base_url, None, http).stream(REQUEST))
    await http.aclose()

    assert (text_of(events) == "You said: hi", error is None) == (reached, reached)
    assert text_of(near) == "You said: hi"
    assert server.seen.connections == 1 + reached
