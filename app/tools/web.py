"""Tools that are HTTP calls, declared in a file: which method and address, what goes where, and what may be reached.

YAML, read once at start; it holds no secret itself. Example:

    allowed_hosts: [shop.example.org]
    private_hosts: [stock.internal]        # of the allowed ones, those that may be at a private address
    tools:
      - name: order_status
        description: Tells the state of an order.
        url: https://shop.example.org/api/orders/{order_id}
        headers: {authorization: "Bearer ${SHOP_TOKEN}"}
        input_schema:
          type: object
          properties: {order_id: {type: string}}
          required: [order_id]
"""

import re
import socket
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import yaml
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from yarl import URL

from app.domain.errors import ConfigurationError
from app.domain.jsontext import dumps, loads
from app.domain.tools import ToolSpec
from app.tools.addresses import is_private
from app.tools.base import ToolContext, ToolError, ToolRules
from app.tools.declared import filled
from app.tools.mcp_file import McpServerPart, checked

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BODILESS: Final = frozenset({"GET", "DELETE"})
_SHOWN: Final = 300
_FAILED: Final = 400
_REDIRECTS: Final = range(300, 400)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class WebToolPart(_Part):
    """One tool. Arguments that the address does not name go into the query, or into the body as JSON."""

    name: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(min_length=1)
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: Annotated[str, Field(pattern=r"^https?://[^{}\s/?#]+(/[^\s#]*)?$")]
    headers: dict[str, str] = Field(default_factory=dict)
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    timeout_seconds: float = Field(default=15, gt=0, le=600)
    max_output_bytes: int = Field(default=64 * 1024, ge=1)
    requires_approval: bool = False
    required_capabilities: frozenset[str] = frozenset()
    output_schema: dict[str, Any] | None = None


class WebToolsFile(_Part):
    """The whole file."""

    allowed_hosts: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()
    tools: tuple[WebToolPart, ...] = ()
    mcp_servers: tuple[McpServerPart, ...] = ()


class WebTool:
    """One HTTP call. It follows no redirect, reads no more than its limit, and reaches no private address."""

    def __init__(self, part: WebToolPart, headers: Mapping[str, str], *, private: bool) -> None:
        """Take the tool as declared, with its headers' variables filled in."""
        self._part = part
        self._headers = dict(headers)
        self._private = private
        self.spec = ToolSpec(part.name, part.description, part.input_schema)
        self.rules = ToolRules(
            timeout=part.timeout_seconds,
            max_output_bytes=part.max_output_bytes,
            requires_approval=part.requires_approval,
            required_capabilities=part.required_capabilities,
            output_schema=part.output_schema,
        )

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Make the call; ToolError for what the server refuses and for what is not reached."""
        del context
        url, rest = self._address(arguments)
        if not self._private and is_private(url.raw_host or ""):
            message = f"The host of the tool {self._part.name} is a private address, which it may not reach."
            raise ToolError(message)
        body = None if self._part.method in _BODILESS else dumps(rest)
        headers = {"accept": "application/json, text/*", "user-agent": "fermata", **self._headers}
        if body is not None:
            headers = {"content-type": "application/json", **headers}
        connector = aiohttp.TCPConnector(resolver=PublicResolver(private=self._private), force_close=True)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(self._part.method, url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return await self._read(response)
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, PrivateAddressError) or isinstance(error.__cause__, PrivateAddressError):
                message = f"The host of the tool {self._part.name} is at a private address, which it may not reach."
                raise ToolError(message) from None
            message = f"The server of the tool {self._part.name} can't be reached ({type(error).__name__})."
            raise ToolError(message) from None

    def _address(self, arguments: Mapping[str, Any]) -> tuple[URL, dict[str, Any]]:
        """Give the address with the arguments that it names, and the others."""
        named = set(_PLACE.findall(self._part.url))
        rest = {name: value for name, value in arguments.items() if name not in named}
        address = _PLACE.sub(lambda found: _segment(found[1], arguments.get(found[1])), self._part.url)
        if self._part.method in _BODILESS and rest:
            pairs = [(name, _plain(entry)) for name, value in rest.items() for entry in _entries(value)]
            address += ("&" if "?" in address else "?") + urlencode(pairs)
        url = URL(address, encoded=True)
        return url, rest

    async def _read(self, response: aiohttp.ClientResponse) -> Any:
        longest = self._part.max_output_bytes
        content = await response.content.read(longest + 1)
        while len(content) <= longest and (more := await response.content.read(longest + 1 - len(content))):
            content += more
        if response.status in _REDIRECTS:
            message = f"The server answered with a redirect (HTTP {response.status}), which is not followed."
            raise ToolError(message)
        if response.status >= _FAILED:
            shown = " ".join(content[:_SHOWN].decode("utf-8", "replace").split())
            message = f"The server answered with HTTP {response.status}: {shown or 'no text'}"
            raise ToolError(message)
        if len(content) > longest:
            message = f"The server answered with more than {longest} bytes; ask it for less."
            raise ToolError(message)
        if not content:
            return None
        if "json" in response.content_type:
            try:
                return loads(content)
            except ValueError:
                message = "The server's answer says that it is JSON, and is not."
                raise ToolError(message) from None
        if response.content_type.startswith("text/"):
            return content.decode(response.charset or "utf-8", "replace")
        message = f"The server answered with {response.content_type}, which is no text."
        raise ToolError(message)


class PrivateAddressError(OSError):
    """A name leads to an address that is not for everyone."""


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses those that lead to private addresses: what is connected to is what was checked."""

    def __init__(self, *, private: bool) -> None:
        """With `private`, nothing is refused."""
        self._private = private
        self._names = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Give the addresses of a name."""
        found = await self._names.resolve(host, port, family)
        if not self._private and any(is_private(entry["host"]) for entry in found):
            raise PrivateAddressError
        return found

    async def close(self) -> None:
        """Give nothing back: there is nothing."""
        await self._names.close()


def read_tools_file(
    text: str, environment: Mapping[str, str], place: str = "the file of tools"
) -> tuple[list[WebTool], list[tuple[McpServerPart, bool]]]:
    """Give the tools and the MCP servers of the file; of a server also whether it may be at a private address.

    Raises ConfigurationError that names the place and what is wrong.
    """
    try:
        read = WebToolsFile.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        message = f"{place} is not YAML: {' '.join(str(error).split())[:200]}"
        raise ConfigurationError(message) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "its top"
        message = f"{place} is not right at {where}: {first['msg']}"
        raise ConfigurationError(message) from None
    tools = [_made(part, read, environment, place) for part in read.tools]
    allowed, private = _hosts(read.allowed_hosts), _hosts(read.private_hosts)
    return tools, checked(read.mcp_servers, allowed, private, environment, place)


def _made(part: WebToolPart, file: WebToolsFile, environment: Mapping[str, str], place: str) -> WebTool:
    host = (urlsplit(part.url).hostname or "").lower()
    if host not in _hosts(file.allowed_hosts):
        message = f"{place}: the tool {part.name} calls {host}, which is not among the allowed_hosts."
        raise ConfigurationError(message)
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes long, and most have no such file
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(part.input_schema)
    except SchemaError as error:
        message = f"{place}: the input_schema of {part.name} is no JSON Schema: {error.message[:200]}"
        raise ConfigurationError(message) from None
    unknown = set(_PLACE.findall(part.url)) - set(part.input_schema.get("required") or ())
    if unknown:
        message = f"{place}: the address of {part.name} needs {min(unknown)}, which its schema does not require."
        raise ConfigurationError(message)

    owner = f"the tool {part.name}"
    headers = {name: filled(text, environment, owner, place) for name, text in part.headers.items()}
    return WebTool(part, headers, private=host in _hosts(file.private_hosts))


def _hosts(names: tuple[str, ...]) -> set[str]:
    return {name.lower().strip("[]") for name in names}


def _segment(name: str, value: Any) -> str:
    text = _plain(value)
    if text in {"", ".", ".."}:
        message = f"The argument {name} can't be part of an address: {text!r}."
        raise ToolError(message)
    return quote(text, safe="")


def _entries(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode()
