"""MCP servers as the file of tools declares them, beside the tools that are HTTP calls.

For example:

    mcp_servers:
      - name: files
        command: [uvx, mcp-server-files, /srv/files]
        env: {FILES_TOKEN: "${FILES_TOKEN}"}
        tools: [read_*, list_files]            # all of them when left out
        requires_approval: [delete_*]
      - name: shop
        url: https://shop.example.org/mcp
        headers: {authorization: "Bearer ${SHOP_TOKEN}"}

A model is told of them as `files__read_file`.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.domain.errors import ConfigurationError
from app.tools.declared import filled

PACKAGE: Final = "mcp"


class McpServerPart(BaseModel):
    """One server: a program to start (`command`), or an address."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(pattern="^[A-Za-z0-9-]{1,24}$")
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: Annotated[str, Field(pattern=r"^https?://[^{}\s/?#]+(/[^\s#]*)?$")] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    requires_approval: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=30, gt=0, le=600)
    connect_seconds: float = Field(default=10, gt=0, le=120)
    max_output_bytes: int = Field(default=64 * 1024, ge=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            message = "give either command or url"
            raise ValueError(message)
        if self.url is not None and (self.env or self.cwd):
            message = "env and cwd go with command"
            raise ValueError(message)
        if self.command is not None and self.headers:
            message = "headers go with url"
            raise ValueError(message)
        return self


def checked(
    parts: tuple[McpServerPart, ...], hosts: set[str], private: set[str], environment: Mapping[str, str], place: str
) -> list[tuple[McpServerPart, bool]]:
    """Give the servers with their variables filled in, and whether each may be at a private address.

    Raises ConfigurationError for a host that is not allowed, a variable that is not set, a name that two have, and when
    the package for MCP is not installed.
    """
    if parts and find_spec(PACKAGE) is None:
        message = f"{place} names MCP servers; install the service with the extra `mcp`."
        raise ConfigurationError(message)
    found: dict[str, tuple[McpServerPart, bool]] = {}
    for part in parts:
        if part.name in found:
            message = f"{place}: two MCP servers are named {part.name}."
            raise ConfigurationError(message)
        host = (urlsplit(part.url or "").hostname or "").lower()
        if part.url is not None and host not in hosts:
            message = f"{place}: the MCP server {part.name} is at {host}, which is not among the allowed_hosts."
            raise ConfigurationError(message)
        owner = f"the MCP server {part.name}"
        texts = {
            "headers": {name: filled(text, environment, owner, place) for name, text in part.headers.items()},
            "env": {name: filled(text, environment, owner, place) for name, text in part.env.items()},
        }
        found[part.name] = (part.model_copy(update=texts), host in private)
    return list(found.values())
