"""The runtime's tools by name."""

from collections.abc import Iterable

from app.domain.errors import ConfigurationError
from app.domain.tools import ToolSpec
from app.tools.base import DEFAULT_RULES, Tool, ToolRules


class ToolRegistry:
    """Names are unique; a tool is found by the name that the model is told."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Register the tools; ConfigurationError when two have one name."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.spec.name in self._tools:
                message = f"Two runtime tools are named {tool.spec.name!r}; rename one of them."
                raise ConfigurationError(message)
            self._tools[tool.spec.name] = tool

    def find(self, name: str) -> Tool | None:
        """Give the tool of that name, or None."""
        return self._tools.get(name)

    def rules(self, name: str) -> ToolRules:
        """Give what holds for the tool of that name."""
        rules = getattr(self._tools.get(name), "rules", DEFAULT_RULES)
        return rules if isinstance(rules, ToolRules) else DEFAULT_RULES

    @property
    def names(self) -> frozenset[str]:
        """Every name."""
        return frozenset(self._tools)

    def specs(self, names: Iterable[str]) -> tuple[ToolSpec, ...]:
        """Give what a model is told of the named tools, in the order of the names; unknown ones are left out."""
        return tuple(self._tools[name].spec for name in names if name in self._tools)
