"""Python functions as tools: name, description and JSON Schema come from the function itself.

A host's package offers them through the entry point group `fermata.tools`; each entry is a function, a tool, or a list
of them:

    [project.entry-points."fermata.tools"]
    shop = "acme_shop.tools:TOOLS"
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from app.domain.errors import ConfigurationError
from app.domain.tools import ToolSpec
from app.tools.base import DEFAULT_RULES, Tool, ToolContext, ToolError, ToolRules

GROUP: Final = "fermata.tools"
RULES_MARK: Final = "__fermata_rules__"


def tool(
    *,
    timeout: float | None = None,
    max_output_bytes: int | None = None,
    requires_approval: bool = False,
    required_capabilities: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function with rules of its own: see `ToolRules`."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(
            function,
            RULES_MARK,
            ToolRules(timeout, max_output_bytes, requires_approval, frozenset(required_capabilities)),
        )
        return function

    return mark


class FunctionTool:
    """A function, sync or async. A parameter of type ToolContext gets for whom it runs; all others are arguments.

    A function that is not async runs in a thread of its own, and is not stopped when its time is over.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the function; ConfigurationError when its parameters can't be told as JSON Schema."""
        self._function = function
        name = getattr(function, "__name__", type(function).__name__)
        try:
            hints = get_type_hints(function, include_extras=True)
            parameters = inspect.signature(function).parameters.values()
            self._context = next((entry.name for entry in parameters if hints.get(entry.name) is ToolContext), None)
            self._model = _model(name, [entry for entry in parameters if entry.name != self._context], hints)
            schema = self._model.model_json_schema()
        except Exception as error:  # noqa: BLE001 - whatever a host's function raises while it is read
            message = f"The function {name} can't be a tool: {type(error).__name__}: {error}"
            raise ConfigurationError(message) from None
        schema.pop("title", None)
        self.spec = ToolSpec(name, inspect.getdoc(function) or name, schema)
        self.rules: ToolRules = getattr(function, RULES_MARK, DEFAULT_RULES)

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function; ToolError for arguments that are not of the types it names."""
        try:
            read = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            message = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:5])
            raise ToolError(message) from None
        given = {name: getattr(read, name) for name in type(read).model_fields}
        if self._context is not None:
            given[self._context] = context
        if inspect.iscoroutinefunction(self._function):
            output = await self._function(**given)
        else:
            output = await asyncio.to_thread(self._function, **given)
        return output.model_dump(mode="json") if isinstance(output, BaseModel) else output


def installed_tools(entries: Iterable[EntryPoint] | None = None) -> list[Tool]:
    """Give the tools that installed packages offer. ConfigurationError names the entry that can't be loaded."""
    found: list[Tool] = []
    for entry in entries if entries is not None else entry_points(group=GROUP):
        try:
            loaded = entry.load()
        except Exception as error:  # noqa: BLE001 - a package may raise anything when it is imported
            message = f"The tools {entry.name!r} ({entry.value}) can't be loaded: {type(error).__name__}: {error}"
            raise ConfigurationError(message) from None
        found += as_tools(loaded, entry.name)
    return found


def as_tools(offered: Any, place: str) -> list[Tool]:
    """Give the tools that an entry offers: a function, a tool, or an iterable of them."""
    if isinstance(getattr(offered, "spec", None), ToolSpec) and hasattr(offered, "execute"):
        return [offered]
    if callable(offered):
        return [FunctionTool(offered)]
    if isinstance(offered, Iterable) and not isinstance(offered, str | bytes):
        return [one for entry in offered for one in as_tools(entry, place)]
    message = f"The tools {place!r} are neither a function, nor a tool, nor a list of them."
    raise ConfigurationError(message)


def _model(name: str, parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            message = f"the parameter {parameter.name} must be one that is given by its name"
            raise TypeError(message)
        if parameter.name not in hints:
            message = f"the parameter {parameter.name} has no type"
            raise TypeError(message)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    made: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return made
