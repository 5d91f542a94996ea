"""The snapshot: all that a continuation needs, stored with the pause, so that any process can go on days later.

Its message list is exactly what the paused step's model was sent, with that step's answer and the results of calls that
the GMI ran itself. A continuation appends results and rebuilds nothing. Provider keys are never part of it.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from app.domain.errors import UnavailableError
from app.domain.frozen import dataclass
from app.domain.language import Language
from app.domain.messages import Message, dump, load
from app.domain.tools import ToolSpec
from app.domain.turn import PauseTerms, TurnOptions
from app.domain.usage import Hop, Usage

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a pause keeps of its turn. `persona` is the persona as it was, in its file form.

    `model` is the one that the turn asked for, `hop` the one that served it last. `runtime_tools` are the names of
    those that the turn was offered; None stands for all of the persona's.
    """

    messages: tuple[Message, ...]
    persona: Mapping[str, Any]
    host_tools: tuple[ToolSpec, ...]
    options: TurnOptions
    usage: Usage
    sources: tuple[Mapping[str, Any], ...] = ()
    terms: PauseTerms = field(default_factory=PauseTerms)
    model: str | None = None
    hop: Hop | None = None
    language: Language | None = None
    runtime_tools: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {
            "version": VERSION,
            "messages": dump(self.messages),
            "persona": dict(self.persona),
            "host_tools": [tool.to_json() for tool in self.host_tools],
            "options": self.options.to_json(),
            "usage": self.usage.to_json(),
            "sources": [dict(source) for source in self.sources],
            "terms": self.terms.to_json(),
            "model": self.model,
            "hop": self.hop.to_json() if self.hop is not None else None,
            "language": self.language.to_json() if self.language is not None else None,
            "runtime_tools": list(self.runtime_tools) if self.runtime_tools is not None else None,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Snapshot":
        """Read the stored form. UnavailableError for the format of a newer release: the pause stays as it is."""
        version = stored.get("version")
        if version != VERSION:
            message = f"The pause was stored in format {version}, which this release can't read; a newer one can."
            raise UnavailableError(message)
        offered = stored.get("runtime_tools")
        return cls(
            messages=load(stored["messages"]),
            persona=stored["persona"],
            host_tools=tuple(ToolSpec.from_json(tool) for tool in stored["host_tools"]),
            options=TurnOptions.from_json(stored["options"]),
            usage=Usage.from_json(stored["usage"]),
            sources=tuple(stored["sources"]),
            terms=PauseTerms.from_json(stored["terms"]),
            model=stored.get("model"),
            hop=Hop.from_json(stored["hop"]) if stored.get("hop") else None,
            language=Language.from_json(stored.get("language")),
            runtime_tools=tuple(offered) if offered is not None else None,
        )
