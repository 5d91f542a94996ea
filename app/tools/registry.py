"""The runtime's tools by name."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from app.domain.errors import ConfigurationError
from app.domain.persona import Persona
from app.domain.tools import ToolSpec
from app.tools.base import DEFAULT_RULES, Tool, ToolRules


class ToolSource(Protocol):
    """Tools that come and go while the service runs."""

    def tools(self) -> Mapping[str, Tool]:
        """Give the tools that there are now, by name."""
        ...

    async def run(self) -> None:
        """Keep what the tools need, until this is cancelled."""
        ...


class ToolRegistry:
    """Names are unique; a tool is found by the name that the model is told.

    What a source has is there beside the tools that were registered, and never in place of one.
    """

    def __init__(
        self, tools: Iterable[Tool], sources: Iterable[ToolSource] = (), *, disabled: Iterable[str] = ()
    ) -> None:
        """Register the tools; ConfigurationError when two have one name. Nobody is offered those that are disabled."""
        self._disabled = frozenset(disabled)
        self.sources = tuple(sources)
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.spec.name in self._tools:
                message = f"Two runtime tools are named {tool.spec.name!r}; rename one of them."
                raise ConfigurationError(message)
            self._tools[tool.spec.name] = tool

    def find(self, name: str) -> Tool | None:
        """Give the tool of that name, or None."""
        found = self._tools.get(name)
        return found if found is not None or not self.sources else self._all().get(name)

    def rules(self, name: str) -> ToolRules:
        """Give what holds for the tool of that name."""
        rules = getattr(self.find(name), "rules", DEFAULT_RULES)
        return rules if isinstance(rules, ToolRules) else DEFAULT_RULES

    def check_persona(self, persona: Persona) -> None:
        """ConfigurationError when a persona names a tool that there is not. Nobody knows what a source will have."""
        unknown = [name for name in persona.tools if not any(fnmatchcase(one, name) for one in self._tools)]
        if unknown and not self.sources:
            known = ", ".join(sorted(self._tools)) or "none"
            message = (
                f"The persona {persona.id!r} names tools that there are not: {', '.join(unknown)}. There are: {known}."
            )
            raise ConfigurationError(message)
        lacking = [name for name in persona.tools if name in self._tools and self._lacks(name, persona)]
        if lacking:
            needed = sorted(set().union(*(self.rules(name).required_capabilities for name in lacking)))
            message = (
                f"The persona {persona.id!r} names tools that need capabilities which it lacks: {', '.join(lacking)}. "
                f"Its allowed_capabilities must have: {', '.join(needed)}."
            )
            raise ConfigurationError(message)

    def denied(self, persona: Persona) -> frozenset[str]:
        """Give the names of the persona's tools that are there, and which it may not use all the same."""
        return frozenset(
            name
            for name in persona.tools
            if self.find(name) is not None and (name in self._disabled or self._lacks(name, persona))
        )

    def offered_to(self, persona: Persona, names: Iterable[str] | None = None) -> tuple[ToolSpec, ...]:
        """Give what a model is told of a persona's tools, or of the named ones: those there are and that it may use."""
        found = self.specs(persona.tools if names is None else names)
        return tuple(spec for spec in found if spec.name not in self._disabled and not self._lacks(spec.name, persona))

    def _lacks(self, name: str, persona: Persona) -> bool:
        return not self.rules(name).required_capabilities <= set(persona.allowed_capabilities)

    @property
    def names(self) -> frozenset[str]:
        """Every name."""
        return frozenset(self._all())

    def specs(self, names: Iterable[str]) -> tuple[ToolSpec, ...]:
        """Give what a model is told of the named tools, in the order of the names; unknown ones are left out.

        A name may be a pattern, such as `shop__*`, for tools that are not known before they are there.
        """
        known = self._all()
        found: dict[str, ToolSpec] = {}
        for name in names:
            if name in known:
                found.setdefault(name, known[name].spec)
            elif any(sign in name for sign in "*?["):
                matching = (one for one in sorted(known) if fnmatchcase(one, name))
                found.update({one: known[one].spec for one in matching if one not in found})
        return tuple(found.values())

    def _all(self) -> Mapping[str, Tool]:
        """Give all tools by name."""
        if not self.sources:
            return self._tools
        return {name: tool for source in self.sources for name, tool in source.tools().items()} | self._tools
