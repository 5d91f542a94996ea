"""The rolling summary as an operator sets it: one JSON object, checked, and turned into the runtime's policy."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from app.domain.policy import Compaction, SummaryPolicy

YEAR: Final = 366 * 24 * 3600
"""Seconds: as long as anything that is set may last."""

Seconds = Annotated[float, Field(gt=0, le=3600)]


class CompactionSetting(BaseModel):
    """How a rolling summary is made. In a profile, what is left out is as in the settings that hold for all modes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enabled: bool = Field(default=False, description="Whether there is a rolling summary.")
    model: str | None = Field(default=None, pattern="^[^:\\s]+:\\S+$", description="`provider:model` that writes it.")
    cooldown_seconds: float = Field(default=60, ge=0, le=YEAR, description="Least time between two passes.")
    head_messages_to_keep: int = Field(default=2, ge=0, description="First messages that are never summarized.")
    tail_messages_to_keep: int = Field(default=12, ge=0, description="Newest messages that are not summarized.")
    min_messages_to_summarize: int = Field(default=12, ge=1, description="Fewer than this are not worth a pass.")
    max_messages_to_summarize_per_pass: int = Field(default=48, ge=1, le=1000, description="A pass takes no more.")
    max_output_tokens: int = Field(default=900, ge=1, description="Longest summary; at least 64 are asked for.")
    temperature: float = Field(default=0.1, ge=0, le=2, description="How freely it is written.")
    system_prompt: str | None = Field(default=None, min_length=1, description="Instead of the prompt that ships.")

    def compaction(self) -> Compaction:
        """Give what the runtime is told."""
        return Compaction(
            enabled=self.enabled,
            model=self.model,
            cooldown=self.cooldown_seconds,
            head=self.head_messages_to_keep,
            tail=self.tail_messages_to_keep,
            least=self.min_messages_to_summarize,
            most=self.max_messages_to_summarize_per_pass,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            system_prompt=self.system_prompt,
        )


class RollingSummarySetting(CompactionSetting):
    """The rolling summary: what holds for all modes, profiles, and which mode picks which profile."""

    profiles: dict[str, CompactionSetting] = Field(default_factory=dict, description="Profiles by id.")
    profiles_by_mode: dict[str, str] = Field(default_factory=dict, description="Profile id by mode of the turn.")
    default_profile_id: str | None = Field(default=None, description="Profile of modes that name none.")
    deadline_seconds: Seconds = Field(default=8, description="Longest time that a pass may hold up a turn.")
    max_input_tokens: int = Field(default=24_000, ge=1000, description="What a pass reads at most.")

    def policy(self) -> SummaryPolicy:
        """Give what the runtime is told; a profile has its own values and, where it sets none, those for all modes."""
        own = self.model_dump(include=set(CompactionSetting.model_fields))
        merged = {
            name: CompactionSetting(**{**own, **profile.model_dump(exclude_unset=True)})
            for name, profile in self.profiles.items()
        }
        return SummaryPolicy(
            base=self.compaction(),
            profiles={name: profile.compaction() for name, profile in merged.items()},
            by_mode={mode.strip().lower(): name for mode, name in self.profiles_by_mode.items()},
            default_profile=self.default_profile_id,
            deadline=self.deadline_seconds,
            max_input_tokens=self.max_input_tokens,
        )
