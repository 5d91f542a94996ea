"""What a persona changes of itself in a session, by its tools and within the bounds of its file."""

from collections.abc import Callable, Mapping
from typing import Any

from app.domain.errors import AppError, ConfigurationError
from app.domain.overrides import Overrides, OverridesChange
from app.domain.persona import Persona, SelfImprovement
from app.domain.skills import skill_id
from app.tools.base import Tool, ToolContext, ToolError
from app.tools.builtin.session import AdaptSession, ManageSkills, ReadSkill
from app.turn.facade.overrides import SessionOverrides

ALL = "*"


class Adapting:
    """Checks a persona's changes of itself and makes them. They count from the session's next turn on."""

    def __init__(self, overrides: SessionOverrides, persona: Callable[[str], Persona]) -> None:
        """Keep the overrides, and what gives a persona by its id."""
        self._overrides = overrides
        self._known = persona

    def check(self, persona: Persona) -> None:
        """ConfigurationError when a persona names skills that there are not, or may change what nobody reads."""
        named = [*persona.skills, *(name for name in persona.self_improvement.skills if name != ALL)]
        unknown = [name for name in named if self._overrides.skills.find(name) is None]
        if unknown:
            message = (
                f"The persona {persona.id!r} names skills that FERMATA_SKILLS_DIR does not have: {', '.join(unknown)}."
            )
            raise ConfigurationError(message)
        if persona.self_improvement.is_allowed:
            self._check_on(persona)

    def tools(self) -> list[Tool]:
        """Give the tools, for personas that name them; none where sessions have no overrides."""
        if not self._overrides.on:
            return []
        return [AdaptSession(self.set), ManageSkills(self.list_skills, self.switch), ReadSkill(self.read_skill)]

    async def set(self, context: ToolContext, name: str, value: Any) -> Mapping[str, Any]:
        """Set one thing: `temperature`, or a preference that the persona may set. ToolError says what is allowed."""
        bounds = self._bounds(context)
        if name == "temperature" and isinstance(value, int | float) and not isinstance(value, bool):
            least, most = bounds.least_temperature, bounds.most_temperature
            if least is None and most is None:
                message = "This persona may not change its temperature."
                raise ToolError(message)
            low, high = least if least is not None else 0.0, most if most is not None else 2.0
            if not low <= value <= high:
                message = f"The temperature must be between {low:g} and {high:g}."
                raise ToolError(message)
            return await self._change(context, OverridesChange(options={"temperature": float(value)}))
        if name not in bounds.preferences:
            message = f"This persona may set: {', '.join(bounds.preferences) or 'nothing'}."
            raise ToolError(message)
        kept = value.strip() if isinstance(value, str) else value
        return await self._change(context, OverridesChange(preferences={name: kept or None}))

    async def list_skills(self, context: ToolContext) -> list[Mapping[str, Any]]:
        """Give the skills, and which are on in the session."""
        kept = await self._overrides.find(context.caller, context.session_id)
        on = {skill.id for skill in self._overrides.enabled(kept, self._persona(context))}
        return [
            {"skill": skill.id, "description": skill.description, "on": skill.id in on}
            for skill in self._overrides.skills.all()
        ]

    async def switch(self, context: ToolContext, name: str, on: bool) -> Mapping[str, Any]:  # noqa: FBT001 - a tool's argument
        """Switch a skill on or off."""
        wanted, allowed = skill_id(name), self._bounds(context).skills
        if ALL not in allowed and wanted not in map(skill_id, allowed):
            message = f"This persona may switch: {', '.join(allowed) or 'no skill'}."
            raise ToolError(message)
        change = OverridesChange(enable_skills=(wanted,)) if on else OverridesChange(disable_skills=(wanted,))
        return await self._change(context, change)

    async def read_skill(self, context: ToolContext, name: str, path: str | None) -> Mapping[str, Any]:
        """Give a skill's instructions in full, or a file of its folder; of a skill that is not off."""
        skill = self._overrides.skills.find(name)
        kept = await self._overrides.find(context.caller, context.session_id)
        if skill is None or skill.id in kept.disabled_skills:
            message = f"There is no skill {name!r} that is switched on."
            raise ToolError(message)
        text = skill.instructions if path is None else self._overrides.skills.read(skill, path)
        if text is None:
            message = f"The skill has no text file {path!r}; paths are relative to its folder."
            raise ToolError(message)
        return {"skill": skill.id, "text": text}

    async def _change(self, context: ToolContext, change: OverridesChange) -> Mapping[str, Any]:
        most = self._bounds(context).most_changes

        def check(kept: Overrides) -> None:
            if kept.own_changes >= most:
                message = f"This persona may change itself {most} times in a session, and has."
                raise ToolError(message)

        try:
            await self._overrides.change(context.caller, context.session_id, change, check=check)
        except AppError as refusal:
            raise ToolError(refusal.message) from None
        return {"changed": True, "from": "the next turn on"}

    def _bounds(self, context: ToolContext) -> SelfImprovement:
        return self._persona(context).self_improvement

    def _persona(self, context: ToolContext) -> Persona:
        return self._known(context.persona_id)

    def _check_on(self, persona: Persona) -> None:
        try:
            self._overrides.check_on()
        except AppError as refusal:
            message = f"The persona {persona.id!r} may change itself (self_improvement). {refusal.message}"
            raise ConfigurationError(message) from None
