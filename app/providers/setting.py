"""What an operator sets about models, as one value: it is there without the providers."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from app.domain.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What an operator sets. Where a setting and the file say different things, the setting holds.

    `environment` has the providers' keys by the names of their variables, and the proxies.
    """

    file: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    openai_base_url: str | None = None
    transport: Literal["aiohttp", "httpx"] = "aiohttp"
    gather_seconds: float = 0.0
    chat: str | None = None
    utility: str | None = None
    embedding: str | None = None
