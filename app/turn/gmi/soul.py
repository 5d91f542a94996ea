"""A persona as a folder: `SOUL.md`, whose front matter says who it is and whose text is its prompt.

What `IDENTITY.md`, `STYLE.md` and `AGENTS.md` beside it say follows that text, each under a heading.
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from app.domain.errors import ConfigurationError
from app.domain.front_matter import parted

FILE: Final = "SOUL.md"
BESIDE: Final = {"IDENTITY.md": "Identity", "STYLE.md": "Style", "AGENTS.md": "Agents"}
"""The files beside it, by the heading that each is told under, in their order."""

_NO_ID: Final = re.compile(r"[^a-z0-9]+")


def soul_fields(folder: Path) -> dict[str, Any]:
    """Give a folder's persona by the names that persona files have; ConfigurationError for what can't be read.

    Front matter may have `name`, `agentId` (else made of the name), `role`, `hexaco`, `defaultMood`, `allowedMoods`,
    `hardLimits` and `reasoningTrace`; what it has besides is of use for others.
    """
    where = f"{folder.name}/{FILE}"
    found = parted(_text(folder / FILE, where))
    if found is None:
        message = f"{where}: the file must begin with front matter between two lines of ---."
        raise ConfigurationError(message)
    try:
        front = yaml.safe_load(found[0])
    except yaml.YAMLError as error:
        message = f"{where}: the front matter is not valid YAML: {' '.join(str(error).split())}"
        raise ConfigurationError(message) from None
    if not isinstance(front, dict):
        message = f"{where}: the front matter must be one mapping."
        raise ConfigurationError(message)
    prompt = found[1].strip()
    for name, heading in BESIDE.items():
        if (folder / name).is_file():
            prompt = f"{prompt}\n\n# {heading}\n\n{_text(folder / name, f'{folder.name}/{name}').strip()}".strip()
    mood = {"default_mood": front.get("defaultMood"), "allowed_moods": front.get("allowedMoods") or []}
    trace = front.get("reasoningTrace") or {}
    fields = {
        "id": front.get("agentId") or _NO_ID.sub("-", str(front.get("name") or "").lower()).strip("-"),
        "name": front.get("name"),
        "description": front.get("role") or "",
        "version": "1.0.0",
        "system_prompt": prompt,
        "personality_traits": front.get("hexaco") or {},
        "hard_limits": front.get("hardLimits") or [],
        "mood_adaptation": {"enabled": any(mood.values()), **mood},
        "reasoning_trace": {
            "max_entries": trace.get("maxEntries"),
            "max_message_length": trace.get("maxMessageLength"),
        },
    }
    return {name: value for name, value in fields.items() if value is not None}


def _text(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{where}: the file can't be read: {error}"
        raise ConfigurationError(message) from None
