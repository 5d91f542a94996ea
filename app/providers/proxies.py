"""Proxies of the environment, in the patterns of the HTTP client. Loopback addresses are never reached by a proxy."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from app.domain.errors import ConfigurationError

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_NEVER: Final = ("127.0.0.1", "localhost", "[::1]")


def proxies_of(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Give the proxy for each pattern of addresses, None for those that are reached directly.

    Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case; lower case goes first, as usual.
    Raises ConfigurationError for a proxy that is no address.
    """

    def value(name: str) -> str | None:
        return environment.get(name.lower()) or environment.get(name) or None

    excepted = [entry.strip() for entry in (value("NO_PROXY") or "").split(",") if entry.strip()]
    if "*" in excepted:
        return {}
    proxies: dict[str, str | None] = {}
    for scheme in ("http", "https"):
        if (proxy := value(f"{scheme.upper()}_PROXY") or value("ALL_PROXY")) is not None:
            proxies[f"{scheme}://"] = _address(proxy, scheme)
    if proxies:
        proxies.update((_pattern(entry), None) for entry in (*excepted, *_NEVER))
    return proxies


def _address(proxy: str, scheme: str) -> str:
    address = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(address)
        well = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well = False
    if not well:
        message = (
            f"The proxy for {scheme} addresses can't be read; set {scheme.upper()}_PROXY or ALL_PROXY to one such as "
            "http://proxy.example.org:3128."
        )
        raise ConfigurationError(message)
    return address


def _pattern(entry: str) -> str:
    """Give the pattern of one exception; a name stands for its subdomains too."""
    if entry.startswith("["):
        return f"all://{entry}"
    name = entry.lstrip(".").removeprefix("*.")
    number = name.replace(".", "").replace(":", "").isdigit()
    return f"all://{name}" if number or name == "localhost" else f"all://*{name}"
