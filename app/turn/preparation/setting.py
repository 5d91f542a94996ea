"""The settings of what is prepared for a turn before its model is asked, as part of all settings."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.domain.memory_policy import RecallPolicy, RecallProfile, recall_policy
from app.domain.outcomes import AdaptivePolicy, ScopeMode, TelemetryPolicy
from app.domain.planning import Kind, PlanningPolicy, Selection
from app.domain.profiles import Preset, ProfileRule, ProfilesPolicy
from app.domain.tools import FailureMode

Share = Annotated[float, Field(ge=0, le=1)]


class _Setting(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class TurnPlanningSetting(_Setting):
    """How turns are planned: which of the capabilities there are fit a turn's input, and what is done with that."""

    failure_mode: FailureMode = "fail_open"
    allow_request_overrides: bool = True
    discovery: bool = True
    only_available: bool = True
    kind: Kind = "any"
    include_prompt_context: bool = True
    selection: Selection = "discovered"
    retries: int = Field(default=1, ge=0, le=10)
    retry_ms: float = Field(default=150, ge=0, le=10_000)
    most: int = Field(default=5, ge=1, le=100)
    most_full: int = Field(default=2, ge=0, le=20)
    always: list[str] = []
    ranking: Literal["words", "embeddings"] = "words"

    def policy(self) -> PlanningPolicy:
        """Give what the planner is told."""
        given = self.model_dump(exclude={"ranking", "retry_ms", "always"})
        return PlanningPolicy(**given, retry_seconds=self.retry_ms / 1000, always=tuple(self.always))


class TaskOutcomeSetting(_Setting):
    """How the outcomes of turns are counted, and when that is worth an alert."""

    window: int = Field(default=100, ge=5, le=5000)
    scope: ScopeMode = "organization_persona"
    alerts: bool = True
    alert_below: Share = 0.55
    alert_samples: int = Field(default=8, ge=1, le=10_000)
    alert_cooldown_ms: float = Field(default=60_000, ge=0, le=86_400_000)

    def policy(self) -> TelemetryPolicy:
        """Give what the windows are told."""
        given = self.model_dump(exclude={"alert_cooldown_ms"})
        return TelemetryPolicy(**given, alert_cooldown=self.alert_cooldown_ms / 1000)


class AdaptiveSetting(_Setting):
    """When plans are made more careful, by the outcomes of turns like them."""

    enabled: bool = True
    samples: int = Field(default=5, ge=1, le=1000)
    threshold: Share = 0.7
    force_all_tools: bool = True
    force_fail_open: bool = True

    def policy(self) -> AdaptivePolicy:
        """Give what phase 6 is told."""
        return AdaptivePolicy(**self.model_dump())


class PresetSetting(_Setting):
    """A way of answering that turns may be given."""

    id: str = Field(min_length=1, max_length=64)
    label: str = ""
    instructions: str = ""
    addon_prompt_keys: list[str] = []


class ProfileRuleSetting(_Setting):
    """When a preset is chosen: all conditions that are named must hold."""

    id: str = Field(min_length=1, max_length=64)
    priority: int
    preset_id: str
    modes: list[str] = []
    least_characters: int | None = Field(default=None, ge=0)
    most_characters: int | None = Field(default=None, ge=0)
    any_keyword: list[str] = []


class ProfilesSetting(_Setting):
    """Prompt profiles: what is left out is as it is built in."""

    presets: list[PresetSetting] | None = None
    rules: list[ProfileRuleSetting] | None = None
    review_every: int = Field(default=6, ge=1, le=1000)
    force_on_compaction: bool = True
    default_preset: str = "general_concise"
    by_mode: dict[str, str] | None = None

    def policy(self) -> ProfilesPolicy:
        """Give what phase 10 is told."""
        told: dict[str, Any] = self.model_dump(exclude={"presets", "rules"}, exclude_none=True)
        if self.presets is not None:
            told["presets"] = tuple(Preset(**_tuples(preset)) for preset in self.presets)
        if self.rules is not None:
            told["rules"] = tuple(ProfileRule(**_tuples(rule)) for rule in self.rules)
        return ProfilesPolicy(**told)


class RecallSetting(_Setting):
    """When long-term memory is looked at and how much is told: a profile, and numbers over it."""

    profile: RecallProfile = "aggressive"
    cadence_turns: int | None = Field(default=None, ge=1, le=100)
    force_on_compaction: bool | None = None
    max_characters: int | None = Field(default=None, ge=300, le=12_000)
    top_k: int | None = Field(default=None, ge=1, le=50)

    def policy(self) -> RecallPolicy:
        """Give what phase 11 is told."""
        return recall_policy(self.profile, self.model_dump(exclude={"profile"}))


def _tuples(setting: BaseModel) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in setting.model_dump().items()}


class PreparationSettings(BaseModel):
    """What sessions may change and what a prompt is given beside the conversation; off unless it is set."""

    model_config = ConfigDict(defer_build=True)

    skills_dir: Path | None = Field(
        default=None,
        description="Folder of skills: a folder with a SKILL.md for each. Sessions switch them on and off.",
    )
    session_overrides: bool = Field(
        default=False,
        description="Let sessions have options, preferences and skills of their own, which each turn then reads; on "
        "where there are skills.",
    )
    turn_planning: TurnPlanningSetting | None = Field(
        default=None,
        description="Plan turns: offer the tools, and tell of the skills, that fit the input. A JSON object with "
        "`selection`, `failure_mode`, `ranking` and so on; `{}` is enough. When not set, all tools are offered.",
    )
    task_outcome_telemetry: TaskOutcomeSetting | None = Field(
        default=None,
        description="Count how well turns do, in windows over all processes: a JSON object with `window`, `scope`, "
        "`alert_below` and so on. When not set, nothing is counted.",
    )
    adaptive_execution: AdaptiveSetting = Field(
        default_factory=AdaptiveSetting.model_construct,
        description="Where turns are planned and counted: offer all tools, and fail open, while they do badly. A JSON "
        "object with `enabled`, `samples`, `threshold`, `force_all_tools` and `force_fail_open`.",
    )
    prompt_profiles: ProfilesSetting | None = Field(
        default=None,
        description="Choose a way of answering by a turn's mode and words: a JSON object with `presets`, `rules`, "
        "`by_mode` and so on; `{}` takes those that are built in. When not set, the persona's prompt is used as it is.",
    )
    long_term_memory_policy: dict[str, Any] = Field(
        default_factory=dict,
        description="What conversations may use of long-term memory where nothing else is said: a JSON object with "
        "`enabled`, `scopes` and so on, as in a turn's `memory_control`.",
    )
    long_term_memory_recall: RecallSetting = Field(
        default_factory=RecallSetting.model_construct,
        description="When long-term memory is looked at, and how much is told: a JSON object with `profile` "
        "(`aggressive`, `balanced`, `conservative`) and numbers over it.",
    )
