"""Reads a folder of skills: each is a folder with a `SKILL.md`, whose YAML front matter names and describes it (R12).

The files are read once, when the service starts. What else lies in a skill's folder is read when a model asks for it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.domain.errors import ConfigurationError
from app.domain.front_matter import parted
from app.domain.skills import Skill, skill_id
from app.domain.text import clean_text

FILE: Final = "SKILL.md"
LARGEST_FILE: Final = 256 << 10


class FrontMatter(BaseModel):
    """The fields of the format. Others are let be: the format grows, and a skill is written for many readers."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    description: str = Field(min_length=1, max_length=1024)
    license: str | None = None
    metadata: dict[str, Any] = {}


class Skills:
    """The skills that there are."""

    def __init__(self, skills: Mapping[str, Skill] | None = None, folder: Path | None = None) -> None:
        """Keep them; `folder` is where their further files are."""
        self._skills = dict(skills or {})
        self._folder = folder

    def __bool__(self) -> bool:
        """Tell whether there is one."""
        return bool(self._skills)

    def find(self, name: str) -> Skill | None:
        """Give the skill that a name means, or None."""
        return self._skills.get(skill_id(name))

    def all(self) -> tuple[Skill, ...]:
        """Give every skill, by id."""
        return tuple(self._skills[name] for name in sorted(self._skills))

    def read(self, skill: Skill, path: str) -> str | None:
        """Give the text of a file of the skill's folder; None when it has no such file, or that is no text to show."""
        if self._folder is None:
            return None
        base = (self._folder / skill.id).resolve()
        try:
            file = (base / path).resolve()
            if not file.is_relative_to(base) or not file.is_file() or file.stat().st_size > LARGEST_FILE:
                return None
            return clean_text(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def load_skills(folder: Path | None) -> Skills:
    """Read every skill of a folder; ConfigurationError names the file and what is wrong with it."""
    if folder is None:
        return Skills()
    if not folder.is_dir():
        message = f"The skills folder {folder} does not exist; set FERMATA_SKILLS_DIR to a folder of skill folders."
        raise ConfigurationError(message)
    files = [path / FILE for path in sorted(folder.iterdir()) if (path / FILE).is_file()]
    return Skills({file.parent.name: _load(file) for file in files}, folder)


def _load(file: Path) -> Skill:
    where = f"{file.parent.name}/{FILE}"
    try:
        text = clean_text(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        message = f"{where}: the file can't be read: {error}"
        raise ConfigurationError(message) from None
    found = parted(text)
    if found is None or len(text) > LARGEST_FILE:
        message = f"{where}: the file must begin with front matter between two lines of ---, and be at most 256 KiB."
        raise ConfigurationError(message)
    try:
        front = FrontMatter.model_validate(yaml.safe_load(found[0]))
    except yaml.YAMLError as error:
        message = f"{where}: the front matter is not valid YAML: {' '.join(str(error).split())}"
        raise ConfigurationError(message) from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}" for fault in error.errors())
        message = f"{where}: front matter: {faults}"
        raise ConfigurationError(message) from None
    if front.name != file.parent.name:
        message = f"{where}: name: the skill is named {front.name!r} and its folder is not; name both the same."
        raise ConfigurationError(message)
    category = front.metadata.get("category")
    return Skill(front.name, front.description.strip(), found[1], str(category or ""), front.license)
