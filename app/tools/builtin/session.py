"""Tools by which a persona changes itself in a session, and reads the skills that the session has."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from app.domain.tools import ToolSpec
from app.tools.base import ToolContext, ToolError


class AdaptSession:
    """Sets one option or preference of the session; what may be set is in the persona's file."""

    spec = ToolSpec(
        name="adapt_session",
        description=(
            "Changes how you answer in this session, from the next turn on: `temperature`, or a preference such as "
            "`verbosity`. Use it when the user asks for a lasting change."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "What is changed."},
                "value": {
                    "type": ["string", "number", "boolean", "null"],
                    "maxLength": 500,
                    "description": "Its value; null takes a preference back.",
                },
            },
            "required": ["name", "value"],
            "additionalProperties": False,
        },
    )

    def __init__(self, change: Callable[[ToolContext, str, Any], Awaitable[Mapping[str, Any]]]) -> None:
        """Keep what makes the change."""
        self._change = change

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Change it."""
        return await self._change(context, str(arguments["name"]), arguments["value"])


class ManageSkills:
    """Lists the skills, and switches one on or off."""

    spec = ToolSpec(
        name="manage_skills",
        description="Lists the skills there are, or switches one on or off in this session, from the next turn on.",
        input_schema={
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["list", "enable", "disable"]},
                "skill": {"type": "string", "minLength": 1, "description": "The skill to switch."},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    )

    def __init__(
        self,
        skills: Callable[[ToolContext], Awaitable[Sequence[Mapping[str, Any]]]],
        switch: Callable[[ToolContext, str, bool], Awaitable[Mapping[str, Any]]],
    ) -> None:
        """Keep what lists and what switches."""
        self._skills = skills
        self._switch = switch

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """List or switch."""
        action, skill = arguments["action"], arguments.get("skill")
        if action == "list":
            return {"skills": list(await self._skills(context))}
        if not skill:
            message = "Say which skill is meant."
            raise ToolError(message)
        return await self._switch(context, str(skill), action == "enable")


class ReadSkill:
    """Gives a skill's instructions in full, which a prompt may show cut, or a file that lies beside them."""

    spec = ToolSpec(
        name="read_skill",
        description="Gives the full instructions of a skill, or a text file of its folder that they name.",
        input_schema={
            "type": "object",
            "properties": {
                "skill": {"type": "string", "minLength": 1, "description": "The skill."},
                "path": {"type": "string", "minLength": 1, "description": "A file, relative to the skill's folder."},
            },
            "required": ["skill"],
            "additionalProperties": False,
        },
    )

    def __init__(self, read: Callable[[ToolContext, str, str | None], Awaitable[Mapping[str, Any]]]) -> None:
        """Keep what reads."""
        self._read = read

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Read it."""
        return await self._read(context, str(arguments["skill"]), arguments.get("path"))
