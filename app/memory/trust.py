"""How far what is remembered is trusted, by where it comes from.

It may make an answer personal; it authorises nothing: approvals ask people, and never memory. What a model has
concluded backs a fact for an hour, and is told as unverified from then on.
"""

from datetime import datetime, timedelta
from typing import Final

CONFIDENCE: Final = {"user_statement": 1.0, "tool": 1.0, "agent_inference": 0.8, "memory_summary": 0.75}
"""By source; others have `DEFAULT_CONFIDENCE`."""

DEFAULT_CONFIDENCE: Final = 0.8
_HOLDS: Final = {"agent_inference": timedelta(hours=1), "memory_summary": timedelta(hours=1)}


def is_unverified(source: str, created_at: datetime, now: datetime) -> bool:
    """Tell whether it needs to be verified before it is taken for a fact."""
    holds = _HOLDS.get(source)
    return holds is not None and now - created_at > holds
