"""The settings of what is prepared for a turn before its model is asked, as part of all settings."""

from pathlib import Path

from pydantic import BaseModel, Field


class PreparationSettings(BaseModel):
    """What sessions may change and what a prompt is given beside the conversation; off unless it is set."""

    skills_dir: Path | None = Field(
        default=None,
        description="Folder of skills: a folder with a SKILL.md for each. Sessions switch them on and off.",
    )
    session_overrides: bool = Field(
        default=False,
        description="Let sessions have options, preferences and skills of their own, which each turn then reads; on "
        "where there are skills.",
    )
