"""What phases may have beside what every turn needs: each part is None where it is not set, and costs nothing then."""

from collections.abc import Callable
from dataclasses import field

from app.domain.clock import Clock
from app.domain.errors import ConfigurationError
from app.domain.frozen import dataclass
from app.domain.memory_policy import MemoryPolicy, RecallPolicy
from app.domain.profiles import ProfilesPolicy
from app.memory.embedding import Embedder
from app.memory.longterm import LongTermMemory
from app.skills.folder import Skills
from app.store.database import Database
from app.telemetry.outcomes import Outcomes
from app.turn.gmi.sentiment import Sentiment
from app.turn.preparation.planner import Planner
from app.turn.preparation.setting import PreparationSettings


@dataclass(frozen=True, slots=True)
class Aids:
    """The parts. `memory_policy` holds for conversations of which nothing else was said.

    `attached` gives the long-term memory while anybody asks for one, which may change with the personas' files.
    """

    planner: Planner | None = None
    skills: Skills = field(default_factory=Skills)
    outcomes: Outcomes | None = None
    profiles: ProfilesPolicy | None = None
    attached: Callable[[], LongTermMemory | None] = lambda: None
    memory_policy: MemoryPolicy = field(default_factory=MemoryPolicy)
    recall: RecallPolicy = field(default_factory=RecallPolicy)
    sentiment: Sentiment = field(default_factory=Sentiment)

    @property
    def memory(self) -> LongTermMemory | None:
        """The long-term memory that a turn has now; where there is none it costs nothing."""
        return self.attached()


def aids_of(
    settings: PreparationSettings,
    database: Database,
    clock: Clock,
    *,
    skills: Skills,
    embedder: Embedder | None,
    attached: Callable[[], LongTermMemory | None],
) -> Aids:
    """Make the parts that are set. ConfigurationError when plans are to rank by meaning and no model embeds."""
    planning, telemetry, profiles = settings.turn_planning, settings.task_outcome_telemetry, settings.prompt_profiles
    by_meaning = planning is not None and planning.ranking == "embeddings"
    if by_meaning and embedder is None:
        message = "FERMATA_TURN_PLANNING ranks by embeddings, and no model embeds: set FERMATA_EMBEDDING_MODEL."
        raise ConfigurationError(message)
    vectors = embedder.vectors if embedder is not None and by_meaning else None
    return Aids(
        planner=Planner(planning.policy(), vectors) if planning is not None else None,
        skills=skills,
        outcomes=Outcomes(database, clock, telemetry.policy(), settings.adaptive_execution.policy())
        if telemetry is not None
        else None,
        profiles=profiles.policy() if profiles is not None else None,
        attached=attached,
        memory_policy=MemoryPolicy().merged(settings.long_term_memory_policy),
        recall=settings.long_term_memory_recall.policy(),
    )
