"""What phases may have beside what every turn needs: each part is None where it is not set, and costs nothing then."""

from dataclasses import dataclass, field

from app.skills.folder import Skills
from app.telemetry.outcomes import Outcomes
from app.turn.preparation.planner import Planner


@dataclass(frozen=True, slots=True)
class Aids:
    """The parts."""

    planner: Planner | None = None
    skills: Skills = field(default_factory=Skills)
    outcomes: Outcomes | None = None
