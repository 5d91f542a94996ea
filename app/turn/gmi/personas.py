"""The personas that can be selected: one file each, read when the service starts and again when a file has changed."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from app.domain.errors import ConfigurationError, PersonaNotFoundError
from app.domain.persona import Persona
from app.turn.gmi.persona_file import read_persona
from app.turn.gmi.soul import BESIDE, FILE

Check = Callable[[Persona], None]
"""Raises ConfigurationError when the rest of the service can't give a persona what its file asks for."""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


class Personas:
    """The personas that can be selected. Turns that run, and pauses, keep the persona that they began with.

    `remember` tells whether any of them has a memory.
    """

    def __init__(self, personas: Mapping[str, Persona], *, default_id: str) -> None:
        """Keep them; ConfigurationError when the default is not among them."""
        self.default_id = default_id
        self.remember = False
        self._checks: tuple[Check, ...] = ()
        self._personas: Mapping[str, Persona] = {}
        self.replace(personas)

    def demand(self, *checks: Check) -> None:
        """Let all personas, also those that come later, pass these checks. ConfigurationError when one does not."""
        self._checks += checks
        self.replace(self._personas)

    def replace(self, personas: Mapping[str, Persona]) -> None:
        """Take these in the place of all others; ConfigurationError as at the start, and nothing has changed then."""
        if self.default_id not in personas:
            known = ", ".join(sorted(personas)) or "none"
            message = (
                f"There is no default persona {self.default_id!r}. Set FERMATA_DEFAULT_PERSONA_ID to one of: {known}."
            )
            raise ConfigurationError(message)
        for persona in personas.values():
            self.check(persona)
        self._personas = dict(personas)
        self.remember = any(persona.memory.enabled for persona in personas.values())

    def check(self, persona: Persona) -> None:
        """Raise ConfigurationError when a persona asks for what there is not."""
        for check in self._checks:
            check(persona)

    def find(self, persona_id: str) -> Persona:
        """Give the persona, or raise PersonaNotFoundError."""
        persona = self._personas.get(persona_id)
        if persona is None:
            message = f"There is no persona {persona_id!r}; GET /v1/personas lists them."
            raise PersonaNotFoundError(message, persona_id=persona_id)
        return persona

    def known(self, persona_id: str) -> Persona:
        """Give the persona, or a nameless one where its file has gone: what happened must be told all the same."""
        return self._personas.get(persona_id) or Persona(id=persona_id, name=persona_id, system_prompt="-")

    def all(self) -> tuple[Persona, ...]:
        """Give every persona, by id."""
        return tuple(self._personas[name] for name in sorted(self._personas))


def load_personas(folder: Path) -> dict[str, Persona]:
    """Read every `.yaml`, `.yml` and `.json` file of a folder, and every folder in it that has a `SOUL.md`.

    ConfigurationError names file and field of a fault.
    """
    if not folder.is_dir():
        message = f"The personas folder {folder} does not exist; set FERMATA_PERSONAS_DIR to a folder of persona files."
        raise ConfigurationError(message)
    return _by_id({path.name: read_persona(path) for path in _files(folder)})


def _files(folder: Path) -> list[Path]:
    """Give the files, and the folders that are personas, in the order of their names."""
    return [path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES or (path / FILE).is_file()]


def _by_id(found: Mapping[str, Persona]) -> dict[str, Persona]:
    personas: dict[str, Persona] = {}
    for name, persona in found.items():
        if persona.id in personas:
            message = f"{name}: id: the persona {persona.id!r} is defined in another file as well."
            raise ConfigurationError(message)
        personas[persona.id] = persona
    return personas


class PersonaFolder:
    """Reads a folder again when a file in it changes. What can't be used is logged, and what was there before stays."""

    def __init__(self, folder: Path, personas: Personas, *, interval: float) -> None:
        """`interval` is the time between two looks, in seconds."""
        self._folder = folder
        self._personas = personas
        self._interval = interval
        self._seen = _state(folder)
        self._good = {path.name: read_persona(path) for path in _files(folder)}
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._interval)
            await self.look()

    async def look(self) -> None:
        """Read what has changed since the last look. Never raises."""
        try:
            state = await asyncio.to_thread(_state, self._folder)
            if state == self._seen:
                return
            changed = {name for name in state if state[name] != self._seen.get(name)}
            self._seen = state
            await asyncio.to_thread(self._read, changed, set(state))
            self._personas.replace(_by_id(self._good))
        except ConfigurationError as error:
            self._log.error("personas.kept", fault=error.message)
        except OSError as error:
            self._log.error("personas.kept", fault=f"The folder {self._folder} can't be read: {error}")
        else:
            self._log.info("personas.read_again", changed=sorted(changed))

    def _read(self, changed: set[str], there: set[str]) -> None:
        good = {name: persona for name, persona in self._good.items() if name in there}
        for name in sorted(changed):
            try:
                persona = read_persona(self._folder / name)
                self._personas.check(persona)
            except ConfigurationError as error:
                self._log.error("personas.kept", fault=error.message)
            else:
                good[name] = persona
        self._good = dict(sorted(good.items()))


def _state(folder: Path) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """Tell by what a change of a file is seen, or of the files of a folder that is a persona."""
    return {path.name: tuple(map(_stat, _parts(path))) for path in _files(folder)}


def _parts(path: Path) -> list[Path]:
    return [part for name in (FILE, *BESIDE) if (part := path / name).is_file()] if path.is_dir() else [path]


def _stat(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
