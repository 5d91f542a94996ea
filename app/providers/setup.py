"""From settings to models: the file of providers, the environment's keys, and which model does what."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app.domain.errors import ConfigurationError
from app.domain.frozen import dataclass
from app.providers.calls import HttpPolicy
from app.providers.catalog import CATALOG
from app.providers.config import ProvidersFile, read_providers_file
from app.providers.gateway import GatewayPolicy
from app.providers.proxies import proxies_of
from app.providers.registry import SCRIPTED_MODEL, ProvidersPolicy
from app.providers.setting import ModelSettings

_BY_KEY: Final = (("OPENAI_API_KEY", "openai:gpt-4o-mini"), ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5"))
"""The chat model that follows from a key, where nothing names one."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which model does what, as `provider:model`. Without an embedding model, nothing is embedded."""

    chat: str
    utility: str
    embedding: str | None


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """All that follows from the settings: what to build, and which model does what."""

    providers: ProvidersPolicy
    gateway: GatewayPolicy
    roles: Roles
    windows: Mapping[str, int]
    """Context windows in tokens, of the models whose window the file tells."""
    tokenizers: Mapping[str, Path]
    """Files `tokenizer.json`, of the models whose tokenizer the file tells."""


def set_up(settings: ModelSettings) -> ModelSetup:
    """Read the file and put everything together. Raises ConfigurationError that says what to correct."""
    file = _read(settings.file)
    limits = file.limits
    own = {name: part.max_concurrent for name, part in file.providers.items() if part.max_concurrent is not None}
    names = {*CATALOG, *file.providers}
    places = sum(own.get(name, limits.max_concurrent) for name in names)
    chat = settings.chat or file.roles.chat or _by_key(settings)
    return ModelSetup(
        providers=ProvidersPolicy(
            openai_base_url=settings.openai_base_url,
            environment=settings.environment,
            file=file,
            http=HttpPolicy(
                transport=settings.transport,
                gather_seconds=settings.gather_seconds,
                connect_seconds=limits.connect_seconds,
                first_event_seconds=limits.first_event_seconds,
                idle_seconds=limits.idle_seconds,
                max_connections=places + 1,
                proxies=proxies_of(settings.environment),
            ),
        ),
        gateway=GatewayPolicy(
            attempts=limits.attempts,
            total_seconds=limits.total_seconds,
            admitted=limits.max_concurrent,
            admitted_by=own,
            fallbacks=file.fallbacks,
        ),
        roles=Roles(
            chat=chat,
            utility=settings.utility or file.roles.utility or chat,
            embedding=settings.embedding or file.roles.embedding,
        ),
        windows={
            f"{name}:{model}": entry.context_window
            for name, part in file.providers.items()
            for model, entry in part.models.items()
            if entry.context_window is not None
        },
        tokenizers={
            f"{name}:{model}": Path(entry.tokenizer)
            for name, part in file.providers.items()
            for model, entry in part.models.items()
            if entry.tokenizer is not None
        },
    )


def _read(path: Path | None) -> ProvidersFile:
    if path is None:
        return ProvidersFile()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        message = f"The file of providers {path} can't be read ({reason}); set FERMATA_PROVIDERS_FILE to one that can."
        raise ConfigurationError(message) from None
    return read_providers_file(text, path.name)


def _by_key(settings: ModelSettings) -> str:
    found = (model for variable, model in _BY_KEY if settings.environment.get(variable))
    return next(found, SCRIPTED_MODEL)
